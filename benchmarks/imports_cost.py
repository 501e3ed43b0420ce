"""What counting the system calls of an import costs, against the bare import, with `strace -f -c` beside it.

    python benchmarks/imports_cost.py [--rounds N] [--python PATH] [--statement TEXT] [--save]

Rounds of (bare, --imports off, time, calls, paths, strace -f -c) in turns whose order turns too; the median of the
ratios to the bare run of the same round, so that drift cancels. CPU time is that of the command and its children. The
bars are for calls: 1.15 times the CPU time, 1.2 times the wall time.
"""

import argparse
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results" / "imports_cost.md"
MODES = ("off", "time", "calls", "paths")
BARS = {"cpu": 1.15, "wall": 1.2}


def recorded(command: list[str], mode: str, folder: str) -> tuple[list[str], dict[str, str]]:
    """What `rankscope run` becomes: its own start is measured by startup.py."""
    native = ROOT / "src" / "rankscope" / "native"
    libraries = [
        native / "librankscope.so",
        *([native / "librankscope_calls.so"] if mode in ("calls", "paths") else []),
    ]
    run = tempfile.mkdtemp(dir=folder)
    return command, {
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "PYTHONPATH": str(ROOT / "src" / "rankscope" / "agent" / "start"),
        "RANKSCOPE_DIR": run,
        "RANKSCOPE_IMPORTS": mode,
        "RANKSCOPE_IMPORTS_UNTIL": "end",
    }


def measured(command: list[str], variables: dict[str, str]) -> tuple[float, float]:
    """CPU and wall seconds of one run."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall


def rounds_of(command: list[str], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """By kind, CPU and wall seconds of each round."""
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        kinds = {"bare": lambda: (command, {})}
        kinds.update({mode: lambda mode=mode: recorded(command, mode, folder) for mode in MODES})
        if shutil.which("strace"):
            table = str(Path(folder) / "strace.txt")
            kinds["strace -f -c"] = lambda: (["strace", "-f", "-c", "-o", table, *command], {})
        names = list(kinds)
        for number in range(-1, rounds):  # round -1 warms the caches
            turn = (number + 1) % len(names)
            for name in names[turn:] + names[:turn]:
                figures = measured(*kinds[name]())
                if number >= 0:
                    found.setdefault(name, []).append(figures)
    return {name: found[name] for name in names}


def table_of(found: dict[str, list[tuple[float, float]]]) -> tuple[list[str], bool]:
    """The table, and whether `calls` is within the bars."""
    lines = ["| kind | CPU: median s | ratio | lowest and highest | wall: median s | ratio | lowest and highest |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    within = True
    for name, figures in found.items():
        cells = [name]
        for place, bar in enumerate(BARS.values()):
            ratios = [one[place] / bare[place] for one, bare in zip(figures, found["bare"], strict=True)]
            middle = statistics.median(ratios)
            cells += [f"{statistics.median(one[place] for one in figures):.3f}", f"{middle:.3f}"]
            cells.append(f"{min(ratios):.2f} to {max(ratios):.2f}")
            within = within and not (name == "calls" and middle > bar)
        lines.append(f"| {' | '.join(cells)} |")
    return lines, within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--python", default=str(ROOT / ".envs" / "torch" / "bin" / "python"))
    parser.add_argument("--statement", default="import torch")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    table, within = table_of(rounds_of([options.python, "-c", options.statement], options.rounds))
    busy = (
        f" The machine was busy: load {load:.1f} before it began."
        if load > 1
        else f" Load before it began: {load:.1f}."
    )
    lines = [
        f"# What `--imports` costs: `{options.statement}`",
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()}-core {platform.machine()} virtual machine, "
        f"Linux {'.'.join(platform.release().split('.')[:2])}; `python benchmarks/imports_cost.py "
        f"--rounds {options.rounds} --save`; {options.rounds} rounds in turns, medians of the ratios within a round."
        f"{busy}",
        "",
        *table,
        "",
        f"Bars for `calls`: {BARS['cpu']} × CPU, {BARS['wall']} × wall: {'held' if within else '**not held**'}.",
    ]
    print("\n".join(lines))
    if options.save:
        RESULTS.write_text("\n".join(lines) + "\n")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
