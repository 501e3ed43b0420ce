"""How long does a report of thousands of ranks take, and how much memory?

    python benchmarks/many_ranks.py [--ranks 6144] [--steps 500] [--wide 100000] [--dask] [--folder /tmp] [--out FILE]

Writes synthetic runs (docs/inside/synthetic.md) into a temporary folder, and reports each of them: for the first time,
a second time, a second time with another question, and without keeping anything. Memory is what all processes of the
report hold together (the sum of their proportional set sizes, looked at five times a second); a process's own largest
resident set is told beside it.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from synthetic_law import Law
from synthetic_run import write_run

ROOT = Path(__file__).parents[1]
LOOK_S = 0.2
HEADINGS = ("run", "report", "wall s", "CPU s", "peak MB, all processes", "largest process MB", "kept MB")


@dataclass
class Cost:
    """What one report took."""

    wall_s: float
    cpu_s: float
    together_bytes: int
    largest_bytes: int


def main() -> None:
    options = parser().parse_args()
    lines: list[str] = []
    begin_load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="many-ranks-") as folder:
        for name, law in laws(options):
            run = Path(folder) / "run"
            begun = time.perf_counter()
            write_run(run, law)
            size = sum(path.stat().st_blocks * 512 for path in run.glob("ranks/*/*.rank"))
            print(f"{name}: {size / 1e9:.2f} GB, written in {time.perf_counter() - begun:.1f} s", file=sys.stderr)
            time.sleep(3)  # a file that is not 2 s old is read again
            for told, cost in reports(run, options):
                lines.append(line(name, told, cost, run))
                print(lines[-1], file=sys.stderr, flush=True)
            shutil.rmtree(run)
    load = os.getloadavg()[0]
    table = [
        f"Load of the machine: {begin_load:.1f} before, {load:.1f} after.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'---|' * len(HEADINGS)}",
        *lines,
    ]
    print("\n".join(table))
    if options.out is not None:
        options.out.write_text("\n".join(table) + "\n")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ranks", type=int, default=6144, help="ranks of the run with logs (0: leave it out)")
    made.add_argument("--collectives", type=int, default=10_000, help="of each of them")
    made.add_argument("--steps", type=int, default=0, help="that each of them records")
    made.add_argument("--wide", type=int, default=100_000, help="ranks of the run with tallies only (0: leave it out)")
    made.add_argument("--dask", action="store_true", help="also with --dask local")
    made.add_argument("--folder", type=Path, help="where the runs are written (default: the folder for such files)")
    made.add_argument("--out", type=Path, help="write the table there too")
    return made


def laws(options: argparse.Namespace) -> Iterator[tuple[str, Law]]:
    if options.ranks:
        steps = f" + {options.steps:,} steps" if options.steps else ""
        told = f"{options.ranks:,} ranks × (200 tallies + {options.collectives:,} collectives{steps})"
        more = {"stragglers": (options.ranks // 3,), "skew_ns": 2 * 10**9, "drift_ppm": 30, "steps": options.steps}
        yield told, Law(options.ranks, 12, options.collectives, **more)
    if options.wide:
        yield f"{options.wide:,} ranks × 200 tallies", Law(options.wide, collectives=0)


def reports(run: Path, options: argparse.Namespace) -> Iterator[tuple[str, Cost]]:
    yield "first", report(run)
    yield "second", report(run)
    yield "second, another question (`--rank 7`)", report(run, "--rank", "7")
    yield "nothing kept (`--fresh`)", report(run, "--fresh")
    if options.dask:
        yield "nothing kept, `--dask local`", report(run, "--fresh", "--dask", "local")


def report(run: Path, *more: str, source: Path = ROOT / "src") -> Cost:
    """One `rankscope report` as a process of its own, its output thrown away."""
    command = [sys.executable, "-m", "rankscope", "report", str(run), "--out", str(run.parent / "report.txt"), *more]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    together = largest = 0
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(source)}) as process:
        while process.poll() is None:
            held = [memory(pid) for pid in family(process.pid)]
            together = max(together, sum(pss for pss, _ in held))
            largest = max([largest, *(peak for _, peak in held)])
            time.sleep(LOOK_S)
    wall_s = time.perf_counter() - begun
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall_s, cpu_s, together, largest)


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += family(int(child))
    except OSError:
        pass
    return found


def memory(pid: int) -> tuple[int, int]:
    """What a process holds now, shared pages by their share, and the most that was resident."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    return field(rollup, "Pss:"), field(status, "VmHWM:")


def field(text: str, name: str) -> int:
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(name)), 0)


def line(name: str, told: str, cost: Cost, run: Path) -> str:
    kept = sum(path.stat().st_size for path in (run / "tables").rglob("*") if path.is_file())
    cells = (name, told, f"{cost.wall_s:.1f}", f"{cost.cpu_s:.1f}", f"{cost.together_bytes / 1e6:,.0f}")
    return f"| {' | '.join((*cells, f'{cost.largest_bytes / 1e6:,.0f}', f'{kept / 1e6:,.0f}'))} |"


if __name__ == "__main__":
    main()
