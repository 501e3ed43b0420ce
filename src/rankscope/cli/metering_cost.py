"""Runs a command bare and recorded, in turns, to say what metering costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope.analyse.import_cost import BARE, Took, import_cost
from rankscope.cli.importing import record, run_to_end
from rankscope.model import Table

LEVELS = ("time", "calls", "paths")


def metering_cost(command: Sequence[str], repeats: int, folder: Path, say: Callable[[str], None]) -> Table:
    """Every level of --imports beside the bare command."""
    turns: dict[str, list[Took]] = {BARE: [], **{level: [] for level in LEVELS}}
    for turn in range(repeats):
        say(f"turn {turn + 1} of {repeats}: {len(turns)} runs")
        order = list(turns) if turn % 2 == 0 else list(reversed(turns))  # what drifts meanwhile falls on all alike
        for level in order:
            place = folder / f"cost-{turn}-{level}"
            if level == BARE:
                one = run_to_end(command, place, silent=True)
            else:
                one = record(command, place, level, silent=True)
            turns[level].append((one.wall_ns, one.cpu_ns))
    return import_cost(turns)
