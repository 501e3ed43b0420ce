"""What does each rank go through from its start to its end?"""

from __future__ import annotations

from rankscope.analyse.waterfall import SEGMENTS
from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.phases import chosen_of

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("elapsed_ns", Unit.NS, "Elapsed"),
    *(Column(f"{name.replace(' ', '_')}_ns", Unit.NS, name.capitalize()) for name in SEGMENTS),
)


def phase_ranks(tables: Tables, selection: Selection = ALL) -> Table:
    """The waterfall rank by rank: the phases add up to the elapsed time."""
    table = Table("phase_ranks", "Phases by rank", COLUMNS, [])
    for one in chosen_of(tables, selection):
        table.rows.append((one.rank, one.elapsed_ns, *(one.segments.get(name) for name in SEGMENTS)))
    return arranged(table, selection)
