"""Do the hosts differ?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.mpi.calls import COMM_SQL
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("host", Unit.NAME, "Host"),
    Column("ranks", Unit.COUNT, "Ranks"),
    Column("elapsed_ns", Unit.NS, "Elapsed, mean"),
    Column("cpu_ns", Unit.NS, "CPU time, mean"),
    Column("cpu_share", Unit.SHARE, "Of elapsed"),
    Column("comm_ns", Unit.NS, "MPI time, mean"),
    Column("outside_ns", Unit.NS, "Outside MPI, mean"),
    Column("max_rss_bytes", Unit.BYTES, "Memory, largest"),
    Column("involuntary_switches", Unit.COUNT, "Preempted"),
    Column("major_faults", Unit.COUNT, "Major faults"),
)
SQL = f"""
    SELECT host, count(*), avg(elapsed_ns), avg(user_ns + system_ns),
        sum(user_ns + system_ns) / nullif(sum(elapsed_ns), 0), avg(comm_ns) FILTER (finalized IS NOT NULL),
        avg(greatest(0, mpi_elapsed_ns - coalesce(comm_ns, 0))), max(max_rss_bytes),
        sum(involuntary_switches)::BIGINT, sum(major_faults)::BIGINT
    FROM ranks LEFT JOIN ({COMM_SQL}) USING (process)
    WHERE {{condition}} GROUP BY host ORDER BY min(rank)"""


def hosts(tables: Tables, selection: Selection = ALL) -> Table:
    """One line per host: what its ranks have in common."""
    rows = tables.query(SQL.format(condition=selection.condition))
    return arranged(Table("hosts", "Hosts", COLUMNS, rows), selection)
