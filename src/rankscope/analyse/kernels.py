"""Which kernels, copies and sets take the GPUs' time?"""

from __future__ import annotations

from rankscope.analyse.gpu_activities import kind_of, processes, say_what_is_lost
from rankscope.analyse.gpu_lengths import STATISTICS, Lengths, join, statistics
from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.model import Cell, Column, Table, Tables, Unit

COLUMNS = (Column("kind", Unit.NAME, "Kind"), Column("name", Unit.NAME, "Kernel"), *STATISTICS)


def kernels(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls and time of every kernel, copy and set, over the selected ranks."""
    found = statistics(by_name(tables, selection))
    rows: list[tuple[Cell, ...]] = [(kind_of(name), name, *cells) for name, cells in found]
    table = Table("kernels", "GPU kernels, copies and sets", COLUMNS, rows)
    say_what_is_lost(tables, selection, table)
    return arranged(table, selection)


def by_name(tables: Tables, selection: Selection) -> dict[str, Lengths]:
    """The lengths of the GPU activities of each name, over the selected ranks."""
    found: dict[str, Lengths] = {}
    for _, work in processes(tables, selection):
        join(found, work.names.items())
    return found
