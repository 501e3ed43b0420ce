"""Which MPI routines take the time?"""

from __future__ import annotations

import math
from typing import Any

from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.mpi.calls import BYTES_SQL, OUTSIDE, span_ns
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("name", Unit.NAME, "Routine"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("total_ns", Unit.NS, "Time"),
    Column("share", Unit.SHARE, "Of elapsed"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("min_ns", Unit.NS, "Min"),
    Column("max_ns", Unit.NS, "Max"),
    Column("stdev_ns", Unit.NS, "Std dev"),
    Column("bytes", Unit.BYTES, "Bytes"),
    Column("mean_bytes", Unit.BYTES, "Bytes/call"),
    Column("progress_ns", Unit.NS, "In progress"),
    Column("errors", Unit.COUNT, "Errors"),
)
# fsum: compensated, because the order in which threads and ranks come must not show in the last digit
SQL = f"""
    SELECT name, (sum(calls) FILTER (kind = 'call'))::BIGINT, fsum(total_ns) FILTER (kind = 'call'),
        min(min_ns) FILTER (kind = 'call'), max(max_ns) FILTER (kind = 'call'),
        fsum(sum_squares_ns2) FILTER (kind = 'call'), {BYTES_SQL},
        fsum(total_ns) FILTER (kind = 'progress'), (sum(errors) FILTER (kind = 'call'))::BIGINT
    FROM tallies JOIN ranks USING (process) WHERE layer = 'mpi' AND {{condition}}
    GROUP BY name ORDER BY 3 DESC NULLS LAST, name"""


def routines(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls, time and bytes of every MPI routine, over the selected ranks."""
    elapsed_ns = span_ns(tables, selection)
    rows = [_row(found, elapsed_ns) for found in tables.query(SQL.format(condition=selection.condition))]
    table = Table("routines", "MPI routines", COLUMNS, rows)
    if any(row[10] is not None for row in rows):
        table.notes.append("In progress: from the start of a nonblocking operation to its completion, not time lost.")
    return arranged(table, selection)


def _row(found: tuple[Any, ...], elapsed_ns: int) -> tuple[Cell, ...]:
    name, calls, total_ns, min_ns, max_ns, squares, size, progress_ns, errors = found
    calls, total_ns = calls or 0, total_ns or 0.0
    share = total_ns / elapsed_ns if elapsed_ns and name not in OUTSIDE else None
    mean_ns = total_ns / calls if calls else None
    mean_bytes = size / calls if calls and size else None
    stdev_ns = None
    if calls and mean_ns is not None and squares is not None:
        stdev_ns = math.sqrt(max(0.0, squares / calls - mean_ns**2))
    return name, calls, total_ns, share, mean_ns, min_ns, max_ns, stdev_ns, size, mean_bytes, progress_ns, errors or 0
