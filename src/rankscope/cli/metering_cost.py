"""Runs a command bare and recorded, in turns, to say what metering costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope.analyse.import_cost import BARE, Took, import_cost
from rankscope.cli.importing import record, run_to_end
from rankscope.model import Table

AGAIN = "nothing, again"  # what it differs by from the other bare run is noise
LEVELS = ("time", "calls", "paths")


def metering_cost(command: Sequence[str], repeats: int, folder: Path, say: Callable[[str], None]) -> Table:
    """Every level of --imports beside the bare command."""
    turns: dict[str, list[Took]] = {name: [] for name in (BARE, AGAIN, *LEVELS)}
    order = list(turns)
    for turn in range(repeats):
        say(f"turn {turn + 1} of {repeats}: {len(order)} runs")
        for level in order:
            place = folder / f"cost-{turn}-{level}"
            if level in LEVELS:
                one = record(command, place, level, silent=True)
            else:
                one = run_to_end(command, place, silent=True)
            turns[level].append((one.wall_ns, one.cpu_ns))
        order = order[1:] + order[:1]  # nobody is always first
    return import_cost(turns)
