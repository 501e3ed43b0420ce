"""Which MPI routines take the time?"""

from __future__ import annotations

import math
from typing import Any

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.mpi.calls import (
    BYTES_SQL,
    COMM_SQL,
    IS_COMMUNICATION,
    OUTSIDE,
    by_communication,
    shares,
    span_ns,
)
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import ranges

# ---------------------------------------------------------------- which ranks communicate least, most, and in between?
COMMUNICATION_COLUMNS = (
    Column(
        "which",
        Unit.NAME,
        "Communication",
        "minimum, median (of an even number of ranks the lower of the two) and maximum of MPI time",
    ),
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("comm_ns", Unit.NS, "MPI time", "MPI time of the rank"),
    Column(
        "mpi_elapsed_ns",
        Unit.NS,
        "Elapsed",
        "from the return of MPI_Init to the entry of MPI_Finalize, or to the end of the process",
    ),
    Column("share", Unit.SHARE, "% of elapsed", "`comm_ns` ÷ `mpi_elapsed_ns`"),
)


def communication(tables: Tables, selection: Selection = ALL) -> Table:
    """The ranks with the minimum, the median and the maximum time in MPI."""
    extremes = by_communication(shares(tables, selection))
    rows = [(which, share.rank, share.host, share.comm_ns, share.span_ns, share.share) for which, share in extremes]
    return Table("communication", "Communication: minimum, median, maximum", COMMUNICATION_COLUMNS, list(rows))


# ---------------------------------------------------------------------------------------------------------------------
# On which communicators, windows and files is the time spent?
COMMUNICATORS_COLUMNS = (
    Column("group", Unit.NAME, "Communicator", "communicator, window or file; (none) for calls that belong to none"),
    Column("kind", Unit.NAME, "Kind", "communicator, window or file"),
    Column("size", Unit.COUNT, "Size", "number of its members"),
    Column("ranks", Unit.COUNT, "Ranks seen", "number of selected ranks that called on it"),
    Column("calls", Unit.COUNT, "Calls", "number of calls on it"),
    Column("total_ns", Unit.NS, "Time", "sum of the time inside calls on it"),
    Column("share", Unit.SHARE, "% of MPI time", "`total_ns` ÷ the MPI time of all communicators"),
    Column("bytes", Unit.BYTES, "Bytes", "sum of the bytes of the calls on it"),
)
COMMUNICATORS_SQL = f"""
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
    rows = tables.query(COMMUNICATORS_SQL.format(condition=selection.condition))
    total_ns = sum(row[5] or 0 for row in rows)
    table = Table("communicators", "Communicators", COMMUNICATORS_COLUMNS, [])
    for group, kind, size, ranks, calls, spent_ns, sent, guessed in rows:
        label = (group or "(none)") + (" ?" if guessed else "")
        share = (spent_ns or 0) / total_ns if total_ns else None
        table.rows.append((label, kind or "", size, ranks, calls or 0, spent_ns or 0.0, share, sent))
    if any(row[7] for row in rows):
        table.notes.append("?: first seen in use, its creation was not; equal ones on other ranks may be listed apart.")
    return arranged(table, selection)


# ---------------------------------------------------------------------------------------------------------------------
# Does what one rank was told of the others agree with their own files?
SECOND_HAND_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("what", Unit.NAME, "What", "MPI time, elapsed, user, system or memory"),
    Column("own", Unit.NUMBER, "Own file", "the number by its own file"),
    Column("told", Unit.NUMBER, "Summary", "the number by the table of all ranks"),
    Column("unit", Unit.NAME, "Unit", "unit of both: s or MiB"),
)
# Tables of all ranks are printed with two decimals, the ranks' own lines with three.
SECONDS, MIB = 1e9, 2.0**20
SLACK = 0.0056
SECOND_HAND_SQL = f"""
    WITH comm AS ({COMM_SQL}),
    facts AS (SELECT *, coalesce(comm_ns, 0) AS comm FROM ranks LEFT JOIN comm USING (process))
    SELECT own.rank, own.comm, told.comm, own.mpi_elapsed_ns, told.mpi_elapsed_ns, own.user_ns, told.user_ns,
        own.system_ns, told.system_ns, own.max_rss_bytes, told.max_rss_bytes
    FROM facts own JOIN facts told USING (rank)
    WHERE own.role = 'rank' AND told.role = 'summary' ORDER BY own.rank"""
WHAT = (("MPI time", "s"), ("elapsed", "s"), ("user", "s"), ("system", "s"), ("memory", "MiB"))


def second_hand(tables: Tables, selection: Selection = ALL) -> Table:
    """Every number that differs by more than rounding; no rows where all agree."""
    table = Table("second_hand", "Summary against the ranks' own files", SECOND_HAND_COLUMNS, [])
    rows = tables.query(SECOND_HAND_SQL)
    for rank, *numbers in rows:
        for (what, unit), own_value, reported in zip(WHAT, numbers[::2], numbers[1::2], strict=True):
            scale = SECONDS if unit == "s" else MIB
            if own_value is not None and reported is not None and abs(own_value - reported) > SLACK * scale:
                table.rows.append((rank, what, own_value / scale, reported / scale, unit))
    if table.rows:
        ranks = sorted({int(row[0] or 0) for row in table.rows})
        text = f"{len(ranks)} of {len(rows)} ranks have other numbers in their own file than in the summary of all"
        table.warnings.append(f"{text} ({ranges(ranks)}): files of different runs?")
    return arranged(table, selection)


# ---------------------------------------------------------------- routines
ROUTINES_COLUMNS = (
    Column(
        "name",
        Unit.NAME,
        "Routine",
        "routine; MPI_Allreduce_c and the other functions for large counts are the same routine as MPI_Allreduce "
        "(column `large_count` of the records in `tallies` says which was called)",
    ),
    Column("calls", Unit.COUNT, "Calls", "number of calls"),
    Column("total_ns", Unit.NS, "Time", "sum of the time inside the calls"),
    Column(
        "share",
        Unit.SHARE,
        "% of elapsed",
        "`total_ns` ÷ sum of `mpi_elapsed_ns`; empty for the init and finalize families, which lie outside that span",
    ),
    Column("mean_ns", Unit.NS, "Mean", "`total_ns` ÷ `calls`"),
    Column("min_ns", Unit.NS, "Min", "shortest call"),
    Column("max_ns", Unit.NS, "Max", "longest call"),
    Column("stdev_ns", Unit.NS, "Std dev", "√(sum of squares ÷ `calls` − `mean_ns`²), over all calls of all ranks"),
    Column("bytes", Unit.BYTES, "Bytes", "sum of the bytes of its calls (what is counted: Bytes)"),
    Column("mean_bytes", Unit.BYTES, "Bytes/call", "`bytes` ÷ `calls`"),
    Column(
        "progress_ns",
        Unit.NS,
        "In progress",
        "sum of the time in progress, from start to completion of nonblocking operations; overlaps with computing, "
        "so no part of MPI time",
    ),
    Column("errors", Unit.COUNT, "Errors", "calls that returned anything but MPI_SUCCESS"),
)
# fsum: compensated, because the order in which threads and ranks come must not show in the last digit
ROUTINES_SQL = f"""
    SELECT name, (sum(calls) FILTER (kind = 'call'))::BIGINT, fsum(total_ns) FILTER (kind = 'call'),
        min(min_ns) FILTER (kind = 'call'), max(max_ns) FILTER (kind = 'call'),
        fsum(sum_squares_ns2) FILTER (kind = 'call'), {BYTES_SQL},
        fsum(total_ns) FILTER (kind = 'progress'), (sum(errors) FILTER (kind = 'call'))::BIGINT
    FROM tallies JOIN ranks USING (process) WHERE layer = 'mpi' AND {{condition}}
    GROUP BY name ORDER BY 3 DESC NULLS LAST, name"""


def routines(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls, time and bytes of every MPI routine, over the selected ranks."""
    elapsed_ns = span_ns(tables, selection)
    rows = [_row(row, elapsed_ns) for row in tables.query(ROUTINES_SQL.format(condition=selection.condition))]
    table = Table("routines", "MPI routines", ROUTINES_COLUMNS, rows)
    if any(row[10] is not None for row in rows):
        table.notes.append("In progress: from the start of a nonblocking operation to its completion, not time lost.")
    return arranged(table, selection)


def _row(row: tuple[Any, ...], elapsed_ns: int) -> tuple[Cell, ...]:
    name, calls, total_ns, min_ns, max_ns, squares, size, progress_ns, errors = row
    calls, total_ns = calls or 0, total_ns or 0.0
    share = total_ns / elapsed_ns if elapsed_ns and name not in OUTSIDE else None
    mean_ns = total_ns / calls if calls else None
    mean_bytes = size / calls if calls and size else None
    stdev_ns = None
    if calls and mean_ns is not None and squares is not None:
        stdev_ns = math.sqrt(max(0.0, squares / calls - mean_ns**2))
    return name, calls, total_ns, share, mean_ns, min_ns, max_ns, stdev_ns, size, mean_bytes, progress_ns, errors or 0
