"""How did each rank run, and how did it end?"""

from __future__ import annotations

from typing import Any

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.mpi.calls import COMM_SQL
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import ending_text

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("comm_ns", Unit.NS, "MPI time"),
    Column("mpi_elapsed_ns", Unit.NS, "Elapsed"),
    Column("elapsed_ns", Unit.NS, "Process"),
    Column("user_ns", Unit.NS, "User"),
    Column("system_ns", Unit.NS, "System"),
    Column("max_rss_bytes", Unit.BYTES, "Memory"),
    Column("switches", Unit.COUNT, "Switches"),
    Column("faults", Unit.COUNT, "Faults"),
    Column("threads", Unit.COUNT, "Threads"),
    Column("ending", Unit.NAME, "Ended"),
    Column("pid", Unit.NAME, "Pid"),
)
SQL = f"""
    SELECT rank, host, CASE WHEN finalized IS NULL THEN NULL ELSE coalesce(comm_ns, 0) END, mpi_elapsed_ns, elapsed_ns,
        user_ns, system_ns, max_rss_bytes, coalesce(voluntary_switches + involuntary_switches, switches),
        minor_faults + major_faults, threads,
        CASE WHEN ending = 'unknown' AND tool <> '' THEN NULL ELSE ending END, exit_code, end_signal, pid
    FROM ranks LEFT JOIN ({COMM_SQL}) USING (process)
    WHERE {{condition}} ORDER BY rank"""


def ranks(tables: Tables, selection: Selection = ALL) -> Table:
    """One line per rank: times, memory, switches, faults, threads and its end, if it is known."""
    rows = [_row(found) for found in tables.query(SQL.format(condition=selection.condition))]
    notes = ["Elapsed: from MPI_Init to MPI_Finalize (or the end). Process: from its start to its end."]
    return arranged(Table("ranks", "Ranks", COLUMNS, rows, notes), selection)


def _row(found: tuple[Any, ...]) -> tuple[Any, ...]:
    *numbers, ending, exit_code, end_signal, pid = found
    return (*numbers, ending and ending_text(ending, exit_code, end_signal), pid)
