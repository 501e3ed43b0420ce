"""What do the GPU's streams wait for between two activities?"""

from __future__ import annotations

from rankscope.analyse.trace_twins import CAUSES
from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.events.tables import trace_tables
from rankscope.questions.gpu.activities import say_what_is_lost
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("stream", Unit.NAME, "GPU/stream"),
    Column("cause", Unit.NAME, "Waits for"),
    Column("gaps", Unit.COUNT, "Gaps"),
    Column("idle_ns", Unit.NS, "Idle"),
    Column("share", Unit.SHARE, "Of idle"),
    Column("median_ns", Unit.NS, "Median"),
    Column("max_ns", Unit.NS, "Max"),
)
SQL = """
    SELECT rank, stream, cause, gaps, idle_ns, idle_ns / sum(idle_ns) OVER (PARTITION BY process, place), median_ns,
        gap_sums.max_ns
    FROM gap_sums JOIN ranks USING (process) WHERE {condition} ORDER BY rank, place, list_position({causes}, cause)"""


def gpu_idle(tables: Tables, selection: Selection = ALL) -> Table:
    """Idle time of each stream by cause: launched too late by the host, just starting the next kernel, or else."""
    tables.derive(trace_tables)
    found = tables.query(SQL.format(condition=selection.condition, causes=list(CAUSES)))
    table = Table("gpu_idle", "GPU idle time", COLUMNS, list(found))
    say_what_is_lost(tables, selection, table)
    return arranged(table, selection)
