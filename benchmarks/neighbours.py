"""What a collective costs with a profiler plugin of somebody else alone, with ours alone, and with both.

    .venv/bin/python benchmarks/neighbours.py [--write]

A program calls the plugins as NCCL does; no GPU is needed. Turns alternate; the best of each is shown.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
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
ROUNDS = {"measure": 3000, "measure-beside": 10000, "measure-cold": 400}
HOW = {"measure": "", "measure-beside": ", beside it", "measure-cold": ", cold"}
ABOUT = (
    "Nanoseconds for each collective, the best of many rounds of 64: two calls in the thread that enqueues it, and "
    "three for each of two channels in NCCL's proxy thread. The program calls plugins as NCCL does; the foreign plugin "
    "asks for what NCCL Inspector asks for, and counts. *Beside it*: the proxy is at work on another processor, "
    "and between two collectives code and data of more than the first caches hold are gone through; means without the "
    "slowest eighth. *Cold*: single collectives, between which 8 MiB of something else are written, medians. No GPU is "
    "in it: `scripts/gpu_neighbours.sh` measures NCCL."
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


def environment(folder: Path, run: str, version: int, who: str) -> dict[str, str]:
    """As many variables whoever it is: the foreign plugin asks for some of its own at every call."""
    plugin = str(folder / f"v{version}.so")
    recorder = str(RECORDER)
    return {
        **os.environ,
        "FOREIGN_MASK": INSPECTOR,
        "RANKSCOPE_DIR": run,
        "NCCL_PROFILER_PLUGIN": plugin if who == "theirs" else recorder,
        "RANKSCOPE_NCCL_PROFILER_PLUGIN": plugin if who == "both" else "none",
        "BESIDE_LD_PRELOAD" if who == "theirs" else "LD_PRELOAD": recorder,
    }


def measured(program: Path, folder: Path, version: int, who: str, how: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(dir=folder) as run:
        return timed(program, version, environment(folder, run, version, who), how)


def timed(program: Path, version: int, given: dict[str, str], how: str) -> tuple[float, float]:
    command = [str(program), str(version), str(ROUNDS[how]), how]
    told = subprocess.run(command, env=given, check=True, capture_output=True, text=True).stdout.split()
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
        for place, thread in enumerate((f"that enqueues{HOW[how]}", f"proxy, 2 channels{HOW[how]}")):
            theirs, ours, both = (best[who][place] for who in ("theirs", "ours", "both"))
            passing = both - theirs - ours
            lines.append(
                f"| {version} | {thread} | "
                + " | ".join(f"{ns:.0f}" for ns in (theirs, ours, both, both - theirs, passing))
                + " |"
            )
    return lines


def instructions(program: Path, folder: Path) -> str:
    """Ours in a start and a stop, as callgrind counts them: of many calls, without what comes once."""
    if not shutil.which("valgrind"):
        return "Instructions were not counted: there is no valgrind."
    few, many = (counted(program, folder, calls) for calls in (1000, 3000))
    return f"A start and a stop are {(many - few) / 2000:,.0f} instructions of ours (version 5, counted by callgrind)."


def counted(program: Path, folder: Path, calls: int) -> int:
    given = {name: value for name, value in environment(folder, str(folder), 5, "both").items() if name != "LD_PRELOAD"}
    told = folder / "callgrind.out"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={told}", str(program), "5", str(calls), "calls"]
    subprocess.run(command, env=given, check=True, capture_output=True)
    functions = subprocess.run(
        ["callgrind_annotate", "--threshold=100", "--auto=no", "--show=Ir", str(told)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    ours = re.findall(rf"^\s*([\d,]+) .*\[.*/{RECORDER.name}\]$", functions, re.MULTILINE)
    return sum(int(number.replace(",", "")) for number in ours)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.relative_to(ROOT)}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compiled(folder)
        lines = [*table(program, folder), "", instructions(program, folder)]
    machine = f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}"
    about = f"Made by `benchmarks/neighbours.py` on {date.today()}, {machine}. {ABOUT}"
    text = "\n".join(["# A profiler plugin of the job behind ours", about, "", *lines, ""])
    print(text)
    if options.write:
        RESULT.write_text(text)


if __name__ == "__main__":
    main()
