"""How much of what happened does the trace keep?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("layer", Unit.NAME, "Layer"),
    Column("kept", Unit.COUNT, "Events kept"),
    Column("lost", Unit.COUNT, "Events lost"),
    Column("begins_ns", Unit.NS, "Begins after start"),
    Column("spans_ns", Unit.NS, "Spans"),
)
SQL = """
    SELECT rank, substr(series, 7) AS layer,
        sum(value) FILTER (name = 'events kept')::BIGINT, sum(value) FILTER (name = 'events lost')::BIGINT,
        max(value) FILTER (name = 'begins')::BIGINT, max(value) FILTER (name = 'spans')::BIGINT
    FROM figures JOIN ranks USING (process) WHERE starts_with(series, 'trace ') AND tool = '' AND {condition}
    GROUP BY process, rank, layer ORDER BY rank, layer"""


def trace(tables: Tables, selection: Selection = ALL) -> Table:
    """Events kept and lost of each layer of each rank, and the time from the first to the last of those kept."""
    table = Table("trace", "Trace", COLUMNS, list(tables.query(SQL.format(condition=selection.condition))))
    if any(row[3] for row in table.rows):
        table.notes.append("A larger --trace keeps more; --trace-keep says which are kept.")
    return arranged(table, selection)
