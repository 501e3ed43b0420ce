"""What does metering imports itself cost here?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from rankscope.model import Cell, Column, Table, Unit

COLUMNS = (
    Column("recorded", Unit.NAME, "Recorded"),
    Column("wall_ns", Unit.NS, "Wall"),
    Column("cpu_ns", Unit.NS, "CPU"),
    Column("wall_ratio", Unit.NUMBER, "Wall ratio"),
    Column("cpu_ratio", Unit.NUMBER, "CPU ratio"),
    Column("turns", Unit.COUNT, "Turns"),
)
BARE = "nothing"

Took = tuple[int, int]  # wall and CPU time of one run


def import_cost(turns: Mapping[str, Sequence[Took]]) -> Table:
    """Medians of each way to run a command, and of the ratios to the bare run of the same turn."""
    table = Table("import_cost", "Cost of metering", COLUMNS, [])
    bare = turns[BARE]
    for name, took in turns.items():
        ratios: list[Cell] = [
            median(run[at] / max(1, other[at]) for run, other in zip(took, bare, strict=True)) for at in (0, 1)
        ]
        table.rows.append((name, median(run[0] for run in took), median(run[1] for run in took), *ratios, len(took)))
    table.notes.append(
        "Nothing: bare, without rankscope; what its second run differs by is noise. Ratios: medians of turns."
    )
    return table
