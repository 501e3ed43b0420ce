"""Which kernels, copies and sets take the GPUs' time?"""

from __future__ import annotations

from rankscope.analyse.gpu_activities import kind_of
from rankscope.analyse.gpu_lengths import STATISTICS, all_ranks, statistics
from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.model import Cell, Column, Table, Tables, Unit

COLUMNS = (Column("kind", Unit.NAME, "Kind"), Column("name", Unit.NAME, "Kernel"), *STATISTICS)


def kernels(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls and time of every kernel, copy and set, over the selected ranks."""
    found = statistics(all_ranks(tables, selection))
    rows: list[tuple[Cell, ...]] = [(kind_of(name), name, *cells) for name, cells in found]
    return arranged(Table("kernels", "GPU kernels, copies and sets", COLUMNS, rows), selection)
