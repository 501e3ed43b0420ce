"""What recording adds to a launch of Level Zero: empty kernels on the scripted driver, bare and recorded in turns.

    python benchmarks/level_zero_cost.py [--rounds N] [--save]

A round of each process: 200 kernels appended to an immediate list, then waited for; the median of its rounds, in ns a
launch. Told apart: the launching call alone, and with its share of collecting the device's times when the program
synchronises. Without an event of the program one of ours is injected. The scripted driver is quicker than any real one.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts.level_zero_random import Scripted, installed  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "level_zero_cost.md"
LIBRARY = ROOT / "src" / "rankscope" / "native" / "librankscope.so"
LAUNCHES, BAR_NS = 200, 150


def measured(built: Scripted, folder: Path, rounds: int, event: str, recorded: bool) -> tuple[float, float]:
    """ns a launch: of the call, and with collecting."""
    environment = {**os.environ, **built.variables()}
    if recorded:
        environment |= {"LD_PRELOAD": str(LIBRARY), "RANKSCOPE_DIR": tempfile.mkdtemp(dir=folder)}
    command = [str(built.program("launch_cost")), str(rounds), str(LAUNCHES), *filter(None, [event])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    call, whole = done.stdout.split()
    return float(call), float(whole)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    if installed() is None:
        print("no Level Zero here: make env-levelzero")
        return 1
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        built = Scripted(Path(scratch))
        for event, told in (("", "none: ours is injected"), ("event", "the program's")):
            pairs = [
                [measured(built, Path(scratch), options.rounds, event, recorded) for recorded in (False, True)]
                for _ in range(options.pairs)
            ]
            bare, recorded = (
                [statistics.median(pair[which][part] for pair in pairs) for part in (0, 1)] for which in (0, 1)
            )
            added = [statistics.median(pair[1][part] - pair[0][part] for pair in pairs) for part in (0, 1)]
            lines.append(f"| {told} | {bare[0]:.0f} | {recorded[0]:.0f} | {added[0]:.0f} | {added[1]:.0f} |")
    text = "\n".join(
        [
            "# What recording adds to a launch of Level Zero",
            f"`benchmarks/level_zero_cost.py --rounds {options.rounds}`, {time.strftime('%Y-%m-%d')}, "
            f"{platform.machine()}, {os.cpu_count()} processors, shared with other work; medians of {options.pairs} "
            f"pairs. The bar: {BAR_NS} ns added.",
            "",
            "| event of the launch | bare call (ns) | recorded call (ns) | added to the call (ns) "
            "| added, with collecting (ns) |",
            "|---|---:|---:|---:|---:|",
            *lines,
        ]
    )
    print(text)
    if options.save:
        RESULT.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
