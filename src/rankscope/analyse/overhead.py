"""What did the recording itself cost?"""

from __future__ import annotations

from typing import Any

from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection

COLUMNS = (
    Column("which", Unit.NAME, "Rank with"),
    Column("rank", Unit.NAME, "Rank"),
    Column("cost_ns", Unit.NS, "Recording"),
    Column("share", Unit.SHARE, "Of elapsed"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("collectives", Unit.COUNT, "Collectives"),
    Column("call_cost_ns", Unit.NS, "Per call"),
    Column("collective_cost_ns", Unit.NS, "Per collective"),
    Column("setup_ns", Unit.NS, "Set-up"),
)
SQL = """
    WITH counted AS (SELECT process, sum(calls)::BIGINT AS calls FROM tallies
        WHERE coalesce(within, '') = '' GROUP BY process),
    logged AS (SELECT process, sum(collectives)::BIGINT AS collectives FROM groups GROUP BY process),
    costs AS (
        SELECT rank, coalesce(calls, 0) AS calls, least(coalesce(collectives, 0), coalesce(calls, 0)) AS collectives,
            call_cost_ns, collective_cost_ns, setup_ns, elapsed_ns
        FROM ranks LEFT JOIN counted USING (process) LEFT JOIN logged USING (process)
        WHERE {condition} AND call_cost_ns IS NOT NULL)
    SELECT rank,
        (calls - collectives) * call_cost_ns + collectives * greatest(call_cost_ns, collective_cost_ns) AS cost_ns,
        elapsed_ns, calls, collectives, call_cost_ns, collective_cost_ns, setup_ns
    FROM costs ORDER BY (cost_ns + setup_ns) / nullif(elapsed_ns, 0), rank"""


def overhead(tables: Tables, selection: Selection = ALL) -> Table:
    """Calibrated cost of a call times the calls, and the set-up, for the least, median and most burdened rank."""
    found = tables.query(SQL.format(condition=selection.condition))
    table = Table("overhead", "Cost of recording", COLUMNS, [])
    places = {"minimum": 0, "median": (len(found) - 1) // 2, "maximum": len(found) - 1} if found else {}
    table.rows = [_row(which, found[at]) for which, at in places.items()]
    table.notes.append("Calibrated when each process started. Of elapsed: recording and set-up, of the whole process.")
    return table


def _row(which: str, found: tuple[Any, ...]) -> tuple[Cell, ...]:
    rank, cost_ns, elapsed_ns, calls, collectives, per_call, per_collective, setup_ns = found
    share = (cost_ns + setup_ns) / elapsed_ns if elapsed_ns else None
    return which, rank, cost_ns, share, calls, collectives, per_call, per_collective, setup_ns
