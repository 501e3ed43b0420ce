"""Objects are pickled where buffers could be sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rankscope.model import Tables
from rankscope.questions.findings.finding import Finding, seconds

FEWEST = 50  # of a rank
NOTICEABLE = 0.01  # of the elapsed time
# mpi4py's lower-case calls send a length first, then the pickle
PAIRS = {
    "bcast": ("MPI_Bcast", "MPI_Bcast"),
    "gather": ("MPI_Gather", "MPI_Gatherv"),
    "allgather": ("MPI_Allgather", "MPI_Allgatherv"),
    "scatter": ("MPI_Scatter", "MPI_Scatterv"),
    "alltoall": ("MPI_Alltoall", "MPI_Alltoallv"),
}
LENGTH_BYTES = (4, 8)
SQL = """
    SELECT process, rank, thread, regexp_replace(name, '_c$', ''), "group", coalesce(bytes, 0), start_ns,
        coalesce(end_ns, start_ns), coalesce(root, -1), elapsed_ns
    FROM untraced_events JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'mpi' AND call_ns IS NULL AND process IN ({processes})
        AND (contains(lower(executable), 'python') OR contains(lower(command), 'python'))
    ORDER BY process, thread, start_ns"""

MOST_RANKS = 128  # whose logs are looked at record by record: those that send most lengths
FIRST = tuple(sorted(name + ending for name, _ in PAIRS.values() for ending in ("", "_c")))
CANDIDATES = f"""
    SELECT process FROM untraced_events
    WHERE name IN {FIRST} AND layer = 'mpi' AND bytes IN (4, 8) AND call_ns IS NULL
    GROUP BY process ORDER BY count(*) DESC, process LIMIT {MOST_RANKS}"""


def pickled_objects(tables: Tables) -> list[Finding]:
    """Pairs of a length and what has it, one right after the other, over and over: of the rank that has most."""
    best: tuple[float, int, int, str, int] | None = None
    processes = ", ".join(str(row[0]) for row in tables.query(CANDIDATES))
    for rank, elapsed_ns, found in _by_rank(tables.query(SQL.format(processes=processes)) if processes else []):
        for call, (count, total_ns) in found.items():
            if count >= FEWEST and total_ns >= NOTICEABLE * elapsed_ns and (best is None or total_ns > best[0]):
                best = (total_ns, count, rank, call, elapsed_ns)
    received = _received(tables)
    if best is None:
        return received
    total_ns, count, rank, call, _ = best
    return [
        Finding(
            "pickled_objects",
            f"{count} pickled objects are sent by mpi4py's {call}(), {seconds(total_ns)} of rank {rank}",
            f"send arrays as buffers: comm.{call.capitalize()}(array) needs no pickle and no length beforehand",
            [f"routines: {count} pairs of {PAIRS[call][0]} of 4 or 8 bytes and {PAIRS[call][1]} right after it"],
            total_ns,
        )
    ]


def _by_rank(rows: list[tuple[Any, ...]]) -> Iterator[tuple[int, int, dict[str, tuple[int, float]]]]:
    """Of each rank: pairs and their time, by the call that makes them."""
    made: dict[int, tuple[int, dict[str, tuple[int, float]]]] = {}
    at = 0
    while at + 1 < len(rows):
        one, two = rows[at], rows[at + 1]
        call = _pair(one, two)
        _, sums = made.setdefault(one[1], (one[9] or 0, {}))
        if call:
            count, total = sums.get(call, (0, 0.0))
            sums[call] = (count + 1, total + (one[7] - one[6]) + (two[7] - two[6]))
        at += 2 if call else 1
    for rank, (elapsed, sums) in made.items():
        yield rank, elapsed, sums


def _pair(one: tuple[Any, ...], two: tuple[Any, ...]) -> str:
    same = one[:3] == two[:3] and one[4] == two[4] and one[8] == two[8]
    if not same or one[5] not in LENGTH_BYTES or two[5] == one[5]:
        return ""
    return next((call for call, names in PAIRS.items() if (one[3], two[3]) == names), "")


def _received(tables: Tables) -> list[Finding]:
    """recv() of mpi4py is a matched probe and a matched receive, as often as each other: nothing else does that."""
    sql = """
        SELECT rank, sum(calls) FILTER (contains(name, 'MPI_Mprobe')), sum(calls) FILTER (contains(name, 'MPI_Mrecv')),
            sum(total_ns) FILTER (contains(name, 'MPI_Mrecv')), any_value(elapsed_ns)
        FROM tallies JOIN ranks USING (process)
        WHERE role = 'rank' AND layer = 'mpi' AND kind = 'call' AND ranks.tool = ''
            AND (contains(lower(executable), 'python') OR contains(lower(command), 'python'))
        GROUP BY rank ORDER BY 4 DESC NULLS LAST LIMIT 1"""
    for rank, probes, receives, total_ns, elapsed_ns in tables.query(sql):
        if probes and probes == receives and probes >= FEWEST and total_ns >= NOTICEABLE * (elapsed_ns or 0):
            told = f"{receives} pickled objects are received by mpi4py's recv(), {seconds(total_ns)} of rank {rank}"
            action = "send and receive arrays as buffers: comm.Send(array) and comm.Recv(array)"
            evidence = [f"routines: as many MPI_Mprobe as MPI_Mrecv ({receives})"]
            return [Finding("pickled_objects", told, action, evidence, float(total_ns))]
    return []
