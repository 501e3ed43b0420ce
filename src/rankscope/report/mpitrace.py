"""The layout of libmpitrace's per-rank profiles, column by column, so that scripts written for them keep working."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rankscope.model import Table
from rankscope.report.cells import printable

LONG, SHORT = "-" * 71, "-" * 65
MIB = 1024.0 * 1024.0
# The order of routines people are used to; others follow by name.
ORDER = (
    "MPI_Comm_rank MPI_Comm_size MPI_Send MPI_Ssend MPI_Rsend MPI_Bsend MPI_Isend MPI_Issend MPI_Irsend MPI_Ibsend "
    "MPI_Send_init MPI_Recv_init MPI_Recv MPI_Irecv MPI_Sendrecv MPI_Sendrecv_replace MPI_Probe MPI_Iprobe MPI_Test "
    "MPI_Testany MPI_Testall MPI_Testsome MPI_Wait MPI_Waitany MPI_Waitall MPI_Waitsome MPI_Start MPI_Startall "
    "MPI_Bcast MPI_Barrier MPI_Reduce MPI_Allreduce MPI_Reduce_scatter MPI_Scan MPI_Gather MPI_Gatherv MPI_Scatter "
    "MPI_Scatterv MPI_Allgather MPI_Allgatherv MPI_Alltoall MPI_Alltoallv"
).split()
PLACE = {name: place for place, name in enumerate(ORDER)}


@dataclass(frozen=True, slots=True)
class Task:
    """One line of the summary."""

    rank: int
    world_size: int
    host: str
    comm_ns: float
    elapsed_ns: int
    user_ns: int
    system_ns: int
    max_rss_bytes: int
    switches: int


def to_mpitrace(tasks: Table, routines: Table, sizes: Table, ranks: Sequence[int]) -> str:
    """The profile of each given rank; the first carries the summary of all."""
    everyone = {row[0]: Task(*row) for row in tasks.rows}  # type: ignore[arg-type]
    extremes, largest = _extremes(list(everyone.values())), list(_largest(list(everyone.values())))
    called, sized = _by_rank(routines), _by_rank(sizes)
    parts: list[str] = []
    for rank in ranks:
        lines = [*_profile(everyone[rank], extremes, called.get(rank, [])), *largest]
        lines += [*_distributions(sized.get(rank, [])), *([] if parts else _summary(list(everyone.values()), extremes))]
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def _by_rank(table: Table) -> dict[int, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for row in table.rows:
        found.setdefault(row[0], []).append(row[1:])
    for rows in found.values():
        rows.sort(key=lambda row: (PLACE.get(row[0], len(ORDER)), row[0]))  # stable: sizes stay in order
    return found


def _extremes(everyone: Sequence[Task]) -> dict[str, Task]:
    ordered = sorted(everyone, key=lambda task: (task.comm_ns, task.rank))
    return {"minimum": ordered[0], "median": ordered[(len(ordered) - 1) // 2], "maximum": ordered[-1]}


def _profile(task: Task, extremes: dict[str, Task], routines: list[Any]) -> Iterator[str]:
    yield f"Data for MPI rank {task.rank} of {task.world_size}:"
    yield "Times and statistics from MPI_Init() to MPI_Finalize()."
    yield from (LONG, "MPI Routine                        #calls     avg. bytes      time(sec)", LONG)
    for name, calls, size, total_ns in routines:
        text = printable(name)
        yield f"{text} {calls:>{max(0, 40 - len(text))}}{_mean(size, calls):15.1f}{total_ns / 1e9:15.3f}"
    yield SHORT
    for which, holder in extremes.items():
        if holder is task:
            yield f"MPI task {task.rank} of {task.world_size} had the {which} communication time."
    yield from _totals(task)


def _totals(task: Task) -> Iterator[str]:
    yield f"total communication time = {task.comm_ns / 1e9:.3f} seconds."
    yield f"total elapsed time       = {task.elapsed_ns / 1e9:.3f} seconds."
    yield f"user cpu time            = {task.user_ns / 1e9:.3f} seconds."
    yield f"system time              = {task.system_ns / 1e9:.3f} seconds."
    yield f"max resident set size    = {task.max_rss_bytes / MIB:.3f} MBytes."
    yield ""


def _largest(everyone: Sequence[Task]) -> Iterator[str]:
    largest = max(everyone, key=lambda task: task.max_rss_bytes)
    longest = max(everyone, key=lambda task: task.elapsed_ns)
    yield f"Rank {largest.rank} reported the largest memory utilization : {largest.max_rss_bytes / MIB:.2f} MBytes"
    yield f"Rank {longest.rank} reported the largest elapsed time : {longest.elapsed_ns / 1e9:.2f} sec"
    yield ""


def _distributions(sizes: list[Any]) -> Iterator[str]:
    yield from (SHORT, "Message size distributions:", "")
    for name, rows in groupby(sizes, key=lambda row: row[0]):
        yield f"{printable(name):<25} #calls    avg. bytes      time(sec)"
        for _, _, calls, size, total_ns in rows:
            yield f"{calls:>32}{_mean(size, calls):14.1f}{total_ns / 1e9:15.3f}"
        yield ""


def _mean(size: int, calls: int) -> float:
    return size / calls if calls else 0.0


def _summary(everyone: Sequence[Task], extremes: dict[str, Task]) -> Iterator[str]:
    yield from (SHORT, "", "Communication summary for all tasks:", "")
    for which, task in extremes.items():
        yield f"  {which:<7} communication time = {task.comm_ns / 1e9:.3f} sec for task {task.rank}"
    yield from ("", "", "MPI timing summary for all ranks:")
    yield "taskid       hostname     comm(s)  elapsed(s)     user(s)   system(s)    size(MB)    switches"
    yield from (_task_line(task) for task in everyone)


def _task_line(task: Task) -> str:
    times = (
        f"{task.comm_ns / 1e9:11.2f}{task.elapsed_ns / 1e9:12.2f}{task.user_ns / 1e9:12.2f}{task.system_ns / 1e9:12.2f}"
    )
    return f"{task.rank:6}{printable(task.host):>15}{times}{task.max_rss_bytes / MIB:12.2f}{task.switches:12}"
