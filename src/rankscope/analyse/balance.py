"""Do the ranks share the work evenly, and whom do the others wait for?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.mpi.calls import Share, shares
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("comm_ns", Unit.NS, "MPI time"),
    Column("share", Unit.SHARE, "Of elapsed"),
    Column("outside_ns", Unit.NS, "Outside MPI"),
    Column("outside_ratio", Unit.NUMBER, "Outside/mean"),
)
NOTICEABLE = 0.05  # of the elapsed time: smaller differences are not worth a name


def balance(tables: Tables, selection: Selection = ALL) -> Table:
    """Time in MPI and outside it per rank, least time in MPI first."""
    found = sorted(shares(tables, selection), key=lambda one: (one.comm_ns, one.rank))
    outside = [one.outside_ns for one in found if one.outside_ns is not None]
    mean_ns = sum(outside) / len(outside) if outside else 0.0
    table = Table("balance", "Balance", COLUMNS, [])
    for one in found:
        ratio = one.outside_ns / mean_ns if mean_ns and one.outside_ns is not None else None
        table.rows.append((one.rank, one.host, one.comm_ns, one.share, one.outside_ns, ratio))
    if len(found) > 1:
        table.notes += _comments(found, outside, mean_ns)
    return arranged(table, selection)


def _comments(found: list[Share], outside: list[float], mean_ns: float) -> list[str]:
    mean_comm_ns = sum(one.comm_ns for one in found) / len(found)
    comments = []
    if mean_comm_ns:
        comments.append(f"MPI time, largest / mean: {found[-1].comm_ns / mean_comm_ns:.2f}.")
    if mean_ns:
        comments.append(f"Time outside MPI, largest / mean: {max(outside) / mean_ns:.2f}.")
    return comments + _waited_for(found)


def _waited_for(found: list[Share]) -> list[str]:
    """Named with care: a short time in MPI is a sign, the arrival times in the log are the proof."""
    first, middle = found[0], found[(len(found) - 1) // 2]
    if not first.span_ns or middle.comm_ns - first.comm_ns < NOTICEABLE * first.span_ns:
        return ["No rank spends noticeably less time in MPI than the others: no sign of one that the others wait for."]
    told = f"Rank {first.rank} ({first.host}) spends the least time in MPI"
    return [f"{told}: where ranks wait for each other inside MPI, it is probably the one the others wait for."]
