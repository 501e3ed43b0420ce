"""What a collective costs with a profiler plugin of somebody else alone, with ours alone, and with both.

    .venv/bin/python benchmarks/neighbours.py [--write]

A program calls the plugins as NCCL does; no GPU is needed. Turns alternate; the best of each is shown.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import hatch_build  # noqa: E402

TESTS = ROOT / "tests" / "native" / "nccl"
RECORDER = hatch_build.NATIVE / "librankscope.so"
RESULT = ROOT / "benchmarks" / "results" / "neighbours.md"
VERSIONS, TURNS = (4, 5, 6), 7
ROUNDS = {"measure": 3000, "measure-cold": 400}
ABOUT = (
    "Nanoseconds for each collective, the best of many rounds of 64: two calls in the thread that enqueues it, and "
    "three for each of two channels in NCCL's proxy thread. The program calls plugins as NCCL does; the foreign plugin "
    "asks for what NCCL Inspector asks for, and counts. *Cold*: single collectives, between which 8 MiB of "
    "something else are written, medians. No GPU is in it: `scripts/gpu_neighbours.sh` measures NCCL."
)
INSPECTOR = "66"  # asks for collectives and channels of kernels, as NCCL Inspector does


def compiled(folder: Path) -> Path:
    """The caller, and a plugin for each version, without optimisations that would leave something out."""
    headers = [f"-I{hatch_build.NATIVE}/nccl", "-O2"]
    for version in VERSIONS:
        made = ["-shared", "-fPIC", f"-DVERSION={version}", str(TESTS / "foreign_plugin.c")]
        subprocess.run(["cc", *headers, *made, "-o", str(folder / f"v{version}.so")], check=True)
    program = folder / "scripted"
    subprocess.run(
        ["cc", *headers, "-rdynamic", "-pthread", str(TESTS / "scripted_nccl.c"), "-o", str(program)], check=True
    )
    return program


def measured(program: Path, folder: Path, version: int, who: str, how: str) -> tuple[float, float]:
    plugin = str(folder / f"v{version}.so")
    environment = {**os.environ, "NCCL_PROFILER_PLUGIN": plugin, "FOREIGN_MASK": INSPECTOR}
    if who != "theirs":
        with tempfile.TemporaryDirectory(dir=folder) as run:
            environment |= {"NCCL_PROFILER_PLUGIN": str(RECORDER), "LD_PRELOAD": str(RECORDER), "RANKSCOPE_DIR": run}
            environment |= {"RANKSCOPE_NCCL_PROFILER_PLUGIN": plugin if who == "both" else "none"}
            return timed(program, version, environment, how)
    return timed(program, version, environment, how)


def timed(program: Path, version: int, environment: dict[str, str], how: str) -> tuple[float, float]:
    command = [str(program), str(version), str(ROUNDS[how]), how]
    told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()
    return float(told[0]), float(told[1])


def table(program: Path, folder: Path) -> list[str]:
    lines = [
        "| version | thread | theirs alone | ours alone | both | added by us | of it: passing on |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for version, how in ((version, how) for how in ROUNDS for version in VERSIONS):
        best: dict[str, tuple[float, float]] = {}
        for _ in range(TURNS):
            for who in ("theirs", "ours", "both"):
                now = measured(program, folder, version, who, how)
                best[who] = min(best.get(who, now)[0], now[0]), min(best.get(who, now)[1], now[1])
        cold = ", cold" if how == "measure-cold" else ""
        for place, thread in enumerate((f"that enqueues{cold}", f"proxy, 2 channels{cold}")):
            theirs, ours, both = (best[who][place] for who in ("theirs", "ours", "both"))
            passing = both - theirs - ours
            lines.append(
                f"| {version} | {thread} | "
                + " | ".join(f"{ns:.0f}" for ns in (theirs, ours, both, both - theirs, passing))
                + " |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.relative_to(ROOT)}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = table(compiled(folder), folder)
    machine = f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}"
    about = f"Made by `benchmarks/neighbours.py` on {date.today()}, {machine}. {ABOUT}"
    text = "\n".join(["# A profiler plugin of the job behind ours", about, "", *lines, ""])
    print(text)
    if options.write:
        RESULT.write_text(text)


if __name__ == "__main__":
    main()
