"""On which communicators, windows and files is the time spent?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.mpi.calls import BYTES_SQL, IS_COMMUNICATION
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("group", Unit.NAME, "Communicator"),
    Column("kind", Unit.NAME, "Kind"),
    Column("size", Unit.COUNT, "Size"),
    Column("ranks", Unit.COUNT, "Ranks seen"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("total_ns", Unit.NS, "Time"),
    Column("share", Unit.SHARE, "Of MPI time"),
    Column("bytes", Unit.BYTES, "Bytes"),
)
SQL = f"""
    WITH used AS (
        SELECT "group", name, process, sum(calls) FILTER (kind = 'call') AS calls,
            sum(total_ns) FILTER (kind = 'call') AS total_ns, {BYTES_SQL} AS bytes
        FROM tallies JOIN ranks USING (process) WHERE {IS_COMMUNICATION} AND {{condition}} GROUP BY ALL),
    known AS (SELECT name AS "group", min(kind) AS kind, max(size) AS size, bool_or(guessed) AS guessed
              FROM groups GROUP BY name)
    SELECT "group", kind, size, count(DISTINCT process), sum(calls)::BIGINT, sum(total_ns), sum(bytes)::BIGINT,
        coalesce(guessed, false)
    FROM used LEFT JOIN known USING ("group") GROUP BY "group", kind, size, guessed ORDER BY 6 DESC NULLS LAST, 1"""


def communicators(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls, time and bytes by communicator; calls that belong to none are in the last line's group."""
    found = tables.query(SQL.format(condition=selection.condition))
    total_ns = sum(row[5] or 0 for row in found)
    table = Table("communicators", "Communicators", COLUMNS, [])
    for group, kind, size, ranks, calls, spent_ns, sent, guessed in found:
        label = (group or "(none)") + (" ?" if guessed else "")
        share = (spent_ns or 0) / total_ns if total_ns else None
        table.rows.append((label, kind or "", size, ranks, calls or 0, spent_ns or 0.0, share, sent))
    if any(row[7] for row in found):
        table.notes.append("?: first seen in use, its creation was not; equal ones on other ranks may be listed apart.")
    return arranged(table, selection)
