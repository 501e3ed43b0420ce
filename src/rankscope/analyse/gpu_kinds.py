"""How much of the GPUs' work is computing, communicating, copying?"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.analyse.gpu_lengths import STATISTICS, Lengths, join, statistics
from rankscope.analyse.kernels import by_name
from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.gpu.activities import kind_of, say_what_is_lost
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (Column("kind", Unit.NAME, "Kind"), *STATISTICS)


def gpu_kinds(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls and time of computing, communicating, copying and setting, over the selected ranks."""
    found = statistics(by_kind(by_name(tables, selection)))
    rows: list[tuple[Cell, ...]] = [(kind, *cells) for kind, cells in found]
    table = Table("gpu_kinds", "GPU work by kind", COLUMNS, rows)
    if rows:
        told = "Time: the lengths added up. What runs side by side counts twice; in the table GPU time it does not."
        table.notes.append(told)
    say_what_is_lost(tables, selection, table)
    return arranged(table, selection)


def by_kind(names: Mapping[str, Lengths]) -> dict[str, Lengths]:
    """The lengths by what the activities do."""
    return join({}, ((kind_of(name), lengths) for name, lengths in names.items()))
