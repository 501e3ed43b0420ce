"""How did each rank run, and how did it end?"""

from __future__ import annotations

from typing import Any

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.mpi.calls import COMM_SQL, Share, shares
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import ending_text

# ---------------------------------------------------------------- do the hosts differ?
HOSTS_COLUMNS = (
    Column("host", Unit.NAME, "Host", "host, in the order of its lowest rank"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks on it"),
    Column("elapsed_ns", Unit.NS, "Elapsed, mean", "mean over its ranks of the time from process start to end"),
    Column("cpu_ns", Unit.NS, "CPU time, mean", "mean over its ranks of user + system time"),
    Column(
        "cpu_share",
        Unit.SHARE,
        "% of elapsed",
        "sum of user + system time ÷ sum of `elapsed_ns`; above 1 where ranks have several busy threads",
    ),
    Column("comm_ns", Unit.NS, "MPI time, mean", "mean MPI time of its ranks that used MPI"),
    Column(
        "outside_ns", Unit.NS, "Outside MPI, mean", "mean over its ranks of `mpi_elapsed_ns` − MPI time, at least 0"
    ),
    Column("max_rss_bytes", Unit.BYTES, "Memory, largest", "largest resident set of its ranks"),
    Column(
        "involuntary_switches", Unit.COUNT, "Preempted", "sum over its ranks: how often the kernel took the CPU away"
    ),
    Column("major_faults", Unit.COUNT, "Major faults", "sum over its ranks: pages that had to be read from a disk"),
)
HOSTS_SQL = f"""
    SELECT host, count(*), avg(elapsed_ns), avg(user_ns + system_ns),
        sum(user_ns + system_ns) / nullif(sum(elapsed_ns), 0), avg(comm_ns) FILTER (finalized IS NOT NULL),
        avg(greatest(0, mpi_elapsed_ns - coalesce(comm_ns, 0))), max(max_rss_bytes),
        sum(involuntary_switches)::BIGINT, sum(major_faults)::BIGINT
    FROM ranks LEFT JOIN ({COMM_SQL}) USING (process)
    WHERE {{condition}} GROUP BY host ORDER BY min(rank)"""


def hosts(tables: Tables, selection: Selection = ALL) -> Table:
    """One line per host: what its ranks have in common."""
    rows = tables.query(HOSTS_SQL.format(condition=selection.condition))
    return arranged(Table("hosts", "Hosts", HOSTS_COLUMNS, rows), selection)


# ---------------------------------------------------------------------------------------------------------------------
# Do the ranks share the work evenly, and whom do the others wait for?
BALANCE_COLUMNS = (
    Column("rank", Unit.NAME, "Rank", "least MPI time first"),
    Column("host", Unit.NAME, "Host"),
    Column("comm_ns", Unit.NS, "MPI time", "MPI time of the rank"),
    Column("share", Unit.SHARE, "% of elapsed", "`comm_ns` ÷ `mpi_elapsed_ns`"),
    Column("outside_ns", Unit.NS, "Outside MPI", "`mpi_elapsed_ns` − `comm_ns`, at least 0"),
    Column("outside_ratio", Unit.NUMBER, "Outside ÷ mean", "`outside_ns` ÷ its mean over the ranks"),
)
NOTICEABLE = 0.05  # of the elapsed time: smaller differences are not worth a name


def balance(tables: Tables, selection: Selection = ALL) -> Table:
    """Time in MPI and outside it per rank, least time in MPI first."""
    by_time = sorted(shares(tables, selection), key=lambda share: (share.comm_ns, share.rank))
    outside = [share.outside_ns for share in by_time if share.outside_ns is not None]
    mean_ns = sum(outside) / len(outside) if outside else 0.0
    table = Table("balance", "Balance", BALANCE_COLUMNS, [])
    for share in by_time:
        ratio = share.outside_ns / mean_ns if mean_ns and share.outside_ns is not None else None
        table.rows.append((share.rank, share.host, share.comm_ns, share.share, share.outside_ns, ratio))
    if len(by_time) > 1:
        table.notes += _comments(by_time, outside, mean_ns)
    return arranged(table, selection)


def _comments(by_time: list[Share], outside: list[float], mean_ns: float) -> list[str]:
    mean_comm_ns = sum(share.comm_ns for share in by_time) / len(by_time)
    comments = []
    if mean_comm_ns:
        comments.append(f"MPI time, largest / mean: {by_time[-1].comm_ns / mean_comm_ns:.2f}.")
    if mean_ns:
        comments.append(f"Time outside MPI, largest / mean: {max(outside) / mean_ns:.2f}.")
    return comments + _waited_for(by_time)


def _waited_for(by_time: list[Share]) -> list[str]:
    """Named with care: a short time in MPI is a sign, the arrival times in the log are the proof."""
    first, middle = by_time[0], by_time[(len(by_time) - 1) // 2]
    if not first.span_ns or middle.comm_ns - first.comm_ns < NOTICEABLE * first.span_ns:
        return ["No rank spends noticeably less time in MPI than the others: no sign of one that the others wait for."]
    text = f"Rank {first.rank} ({first.host}) spends the least time in MPI"
    return [f"{text}: where ranks wait for each other inside MPI, it is probably the one the others wait for."]


# ---------------------------------------------------------------- ranks
RANKS_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("comm_ns", Unit.NS, "MPI time", "MPI time of the rank; empty for one that did not use MPI"),
    Column(
        "mpi_elapsed_ns",
        Unit.NS,
        "Elapsed",
        "from the return of MPI_Init to the entry of MPI_Finalize, or to the end of the process",
    ),
    Column("elapsed_ns", Unit.NS, "Process", "from process start to end, or the last sign of life"),
    Column("user_ns", Unit.NS, "User", "user time of the process, all threads"),
    Column("system_ns", Unit.NS, "System", "system time of the process, all threads"),
    Column("max_rss_bytes", Unit.BYTES, "Memory", "largest resident set of the process"),
    Column("switches", Unit.COUNT, "Switches", "voluntary + involuntary context switches"),
    Column("faults", Unit.COUNT, "Faults", "minor + major page faults"),
    Column("threads", Unit.COUNT, "Threads", "number of threads at the last reading"),
    Column(
        "ending",
        Unit.NAME,
        "Ended",
        "exit code, signal, MPI_Abort(code), still running, vanished (its end was not recorded), stopped by Ray (as "
        "its workers are when the program ends) or unknown; empty where a loaded file does not say",
    ),
    Column("pid", Unit.NAME, "Pid"),
)
RANKS_SQL = f"""
    SELECT rank, host, CASE WHEN finalized IS NULL THEN NULL ELSE coalesce(comm_ns, 0) END, mpi_elapsed_ns, elapsed_ns,
        user_ns, system_ns, max_rss_bytes, coalesce(voluntary_switches + involuntary_switches, switches),
        minor_faults + major_faults, threads,
        CASE WHEN ending = 'unknown' AND tool <> '' THEN NULL ELSE ending END, exit_code, end_signal, pid
    FROM ranks LEFT JOIN ({COMM_SQL}) USING (process)
    WHERE {{condition}} ORDER BY rank"""


def ranks(tables: Tables, selection: Selection = ALL) -> Table:
    """One line per rank: times, memory, switches, faults, threads and its end, if it is known."""
    rows = [_row(row) for row in tables.query(RANKS_SQL.format(condition=selection.condition))]
    notes = ["Elapsed: from MPI_Init to MPI_Finalize (or the end). Process: from its start to its end."]
    return arranged(Table("ranks", "Ranks", RANKS_COLUMNS, rows, notes), selection)


def _row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    *numbers, ending, exit_code, end_signal, pid = row
    return (*numbers, ending and ending_text(ending, exit_code, end_signal), pid)
