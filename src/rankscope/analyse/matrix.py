"""Who sends how much to whom?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("rank", Unit.NAME, "From"),
    Column("to_rank", Unit.NAME, "To"),
    Column("calls", Unit.COUNT, "Messages"),
    Column("bytes", Unit.BYTES, "Bytes"),
    Column("mean_bytes", Unit.BYTES, "Bytes/message"),
)
SQL = """
    SELECT rank, world_rank, sum(calls)::BIGINT, sum(bytes)::BIGINT, sum(bytes) / sum(calls)
    FROM peers JOIN ranks USING (process) WHERE {condition} GROUP BY rank, world_rank ORDER BY 4 DESC, 1, 2"""


def matrix(tables: Tables, selection: Selection = ALL) -> Table:
    """Point-to-point messages and bytes by sender and receiver; empty unless recorded with --matrix."""
    rows = tables.query(SQL.format(condition=selection.condition))
    return arranged(Table("matrix", "Sent to", COLUMNS, rows), selection)
