"""How much of the GPUs' work is computing, communicating, copying?"""

from __future__ import annotations

from rankscope.analyse.gpu_lengths import STATISTICS, all_ranks, by_kind, statistics
from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.model import Cell, Column, Table, Tables, Unit

COLUMNS = (Column("kind", Unit.NAME, "Kind"), *STATISTICS)


def gpu_kinds(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls and time of computing, communicating, copying and setting, over the selected ranks."""
    found = statistics(by_kind(all_ranks(tables, selection)))
    rows: list[tuple[Cell, ...]] = [(kind, *cells) for kind, cells in found]
    table = Table("gpu_kinds", "GPU work by kind", COLUMNS, rows)
    if rows:
        told = "Time: the lengths added up. What runs side by side counts twice; in the table GPU time it does not."
        table.notes.append(told)
    return arranged(table, selection)
