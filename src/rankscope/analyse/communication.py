"""Which ranks communicate least, most, and in between?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.mpi.calls import by_communication, shares
from rankscope.questions.selection import ALL, Selection

COLUMNS = (
    Column("which", Unit.NAME, "Communication"),
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("comm_ns", Unit.NS, "MPI time"),
    Column("mpi_elapsed_ns", Unit.NS, "Elapsed"),
    Column("share", Unit.SHARE, "Of elapsed"),
)


def communication(tables: Tables, selection: Selection = ALL) -> Table:
    """The ranks with the minimum, the median and the maximum time in MPI."""
    found = by_communication(shares(tables, selection))
    rows = [(which, one.rank, one.host, one.comm_ns, one.span_ns, one.share) for which, one in found]
    return Table("communication", "Communication: minimum, median, maximum", COLUMNS, list(rows))
