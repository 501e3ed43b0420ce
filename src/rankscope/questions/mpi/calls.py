"""What the questions about MPI have in common: which calls count, in SQL."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.model.tables import Tables
from rankscope.questions.selection import Selection

# Init and finalize lie outside the span "from MPI_Init to MPI_Finalize" that communication is compared with.
OUTSIDE = ("MPI_Init", "MPI_Init_thread", "MPI_Finalize", "MPI_Session_init", "MPI_Session_finalize")
OUTSIDE_SQL = ", ".join(f"'{name}'" for name in OUTSIDE)
IS_COMMUNICATION = f"layer = 'mpi' AND name NOT IN ({OUTSIDE_SQL})"
# The communication of each process.
COMM_SQL = f"""SELECT process, sum(total_ns) AS comm_ns FROM tallies
    WHERE {IS_COMMUNICATION} AND kind = 'call' GROUP BY process"""

# Bytes of nonblocking receives are known at completion only: they are in the progress rows, and nowhere else.
BYTES_SQL = (
    """coalesce(nullif(sum(bytes) FILTER (kind = 'call'), 0), sum(bytes) FILTER (kind = 'progress'), 0)::BIGINT"""
)


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's communication."""

    rank: int
    host: str
    comm_ns: float
    span_ns: int | None  # from MPI_Init to MPI_Finalize

    @property
    def share(self) -> float | None:
        return self.comm_ns / self.span_ns if self.span_ns else None

    @property
    def outside_ns(self) -> float | None:
        return max(0.0, self.span_ns - self.comm_ns) if self.span_ns is not None else None


def shares(tables: Tables, selection: Selection) -> list[Share]:
    """Communication of every rank that used MPI, by rank."""
    sql = f"""
        SELECT rank, host, coalesce(comm_ns, 0), mpi_elapsed_ns FROM ranks
        LEFT JOIN ({COMM_SQL}) USING (process)
        WHERE {selection.condition} AND finalized IS NOT NULL ORDER BY rank"""
    return [Share(*row) for row in tables.query(sql)]


def span_ns(tables: Tables, selection: Selection) -> int:
    """The sum over the ranks of the time from MPI_Init to MPI_Finalize."""
    rows = tables.query(f"SELECT coalesce(sum(mpi_elapsed_ns), 0)::BIGINT FROM ranks WHERE {selection.condition}")
    return int(rows[0][0])


def by_communication(rank_shares: list[Share]) -> list[tuple[str, Share]]:
    """The ranks with the least, the median (the lower of two) and the most communication."""
    ordered = sorted(rank_shares, key=lambda share: (share.comm_ns, share.rank))
    if not ordered:
        return []
    middle = ordered[(len(ordered) - 1) // 2]
    return [("minimum", ordered[0]), ("median", middle), ("maximum", ordered[-1])]
