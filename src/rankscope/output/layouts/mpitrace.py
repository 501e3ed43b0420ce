"""The layouts of libmpitrace's per-rank profiles, column by column, so that scripts written for them keep working."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rankscope.model.tables import Table
from rankscope.output.cells import printable

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
MEANINGS = {"min": "minimum", "median": "median", "max": "maximum"}


@dataclass(frozen=True, slots=True)
class SummaryTask:
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
    cpu: int | None
    own_file: bool


@dataclass(frozen=True, slots=True)
class Peak:
    """A task that stands out, and its number."""

    rank: int
    value: float


@dataclass(slots=True)
class SummaryJob:
    """What a profile tells of all tasks: computed from them, or as it was told in the profiles that were loaded."""

    summary: list[SummaryTask]
    extremes: dict[str, Peak]
    memory: Peak
    elapsed: Peak
    own_words: dict[int, list[str]] | None  # "minimum", … by the rank that was told so; None: by the extremes


def to_mpitrace(
    tasks: Table,
    routines: Table,
    sizes: Table,
    ranks: Sequence[int],
    summary: Table | None = None,
    table: Table | None = None,
    new: bool = False,
) -> str:
    """The profile of each given rank that has one; the first carries the summary of all."""
    everyone = {row[0]: SummaryTask(*row) for row in tasks.rows}  # type: ignore[arg-type]
    job = _job([SummaryTask(*row) for row in (summary or tasks).rows], table)  # type: ignore[arg-type]
    called, sized = _by_rank(routines), _by_rank(sizes)
    parts: list[str] = []
    for rank in ranks:
        if everyone[rank].own_file:
            lines = [*_profile(everyone[rank], job, called.get(rank, []), new)]
            lines += [*_distributions(sized.get(rank, [])), *([] if parts else _summary(job, new))]
            parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def _by_rank(table: Table) -> dict[int, list[Any]]:
    rows_of: dict[Any, list[Any]] = {}
    for row in table.rows:
        rows_of.setdefault(row[0], []).append(row[1:])
    for rows in rows_of.values():
        rows.sort(key=lambda row: (PLACE.get(row[0], len(ORDER)), row[0]))  # stable: sizes stay in order
    return rows_of


def _job(everyone: list[SummaryTask], table: Table | None) -> SummaryJob:
    ordered = sorted(everyone, key=lambda task: (task.comm_ns, task.rank))
    places = {"minimum": ordered[0], "median": ordered[(len(ordered) - 1) // 2], "maximum": ordered[-1]}
    largest = max(everyone, key=lambda task: task.max_rss_bytes)
    longest = max(everyone, key=lambda task: task.elapsed_ns)
    job = SummaryJob(
        everyone,
        {which: Peak(task.rank, task.comm_ns) for which, task in places.items()},
        Peak(largest.rank, largest.max_rss_bytes),
        Peak(longest.rank, longest.elapsed_ns),
        None,
    )
    for row in table.rows if table else []:
        _tell(job, *row)
    return job


def _tell(job: SummaryJob, rank: Any, what: Any, statistic: Any, of_rank: Any, value: Any) -> None:
    """One thing that a loaded profile says of all tasks, or of its own place among them."""
    job.own_words = job.own_words or {}
    if what == "largest memory":
        job.memory = Peak(of_rank, value)
    elif what == "largest elapsed":
        job.elapsed = Peak(of_rank, value)
    elif what == "communication" and statistic in MEANINGS:
        which = MEANINGS[statistic]
        job.extremes[which] = Peak(of_rank, value)
        if rank == of_rank and which not in job.own_words.setdefault(rank, []):
            job.own_words[rank].append(which)


def _profile(task: SummaryTask, job: SummaryJob, routines: list[Any], new: bool) -> Iterator[str]:
    yield f"Data for MPI rank {task.rank} of {task.world_size}:"
    yield f"Times {'' if new else 'and statistics '}from MPI_Init() to MPI_Finalize()."
    yield from (LONG, "MPI Routine                        #calls     avg. bytes      time(sec)", LONG)
    for name, calls, size, total_ns in routines:
        text = printable(name)
        yield f"{text} {calls:>{max(0, 40 - len(text))}}{_mean(size, calls):15.1f}{total_ns / 1e9:15.3f}"
    yield LONG if new else SHORT
    for which in _places(task, job):
        yield f"MPI task {task.rank} of {task.world_size} had the {which} communication time."
    yield from _totals(task, "MiB" if new else "MBytes")
    if not new:
        yield from _largest(job, "MBytes", "")


def _places(task: SummaryTask, job: SummaryJob) -> list[str]:
    """What this task is told to be among all, in a fixed order."""
    if job.own_words is not None:
        return [which for which in MEANINGS.values() if which in job.own_words.get(task.rank, ())]
    return [which for which, peak in job.extremes.items() if peak.rank == task.rank]


def _totals(task: SummaryTask, mebibytes: str) -> Iterator[str]:
    yield f"total communication time = {task.comm_ns / 1e9:.3f} seconds."
    yield f"total elapsed time       = {task.elapsed_ns / 1e9:.3f} seconds."
    yield f"user cpu time            = {task.user_ns / 1e9:.3f} seconds."
    yield f"system time              = {task.system_ns / 1e9:.3f} seconds."
    yield f"max resident set size    = {task.max_rss_bytes / MIB:.3f} {mebibytes}."
    yield ""


def _largest(job: SummaryJob, mebibytes: str, indent: str) -> Iterator[str]:
    memory, elapsed = job.memory, job.elapsed
    yield f"{indent}Rank {memory.rank} reported the largest memory utilization : {memory.value / MIB:.2f} {mebibytes}"
    yield f"{indent}Rank {elapsed.rank} reported the largest elapsed time : {elapsed.value / 1e9:.2f} sec"
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


def _summary(job: SummaryJob, new: bool) -> Iterator[str]:
    yield from (SHORT, "", "Summary for all tasks:" if new else "Communication summary for all tasks:", "")
    if new:
        yield from _largest(job, "MiB", "  ")
    for which, peak in job.extremes.items():
        yield f"  {which:<7} communication time = {peak.value / 1e9:.3f} sec for task {peak.rank}"
    yield from ("", "", "MPI timing summary for all ranks:")
    head = "taskid             host    cpu    comm(s)" if new else "taskid       hostname     comm(s)"
    size = "size(MiB)" if new else " size(MB)"
    yield f"{head}  elapsed(s)     user(s)   system(s)   {size}    switches"
    yield from (_task_line(task, new) for task in job.summary)


def _task_line(task: SummaryTask, new: bool) -> str:
    times = (
        f"{task.comm_ns / 1e9:11.2f}{task.elapsed_ns / 1e9:12.2f}{task.user_ns / 1e9:12.2f}{task.system_ns / 1e9:12.2f}"
    )
    cpu = "-" if task.cpu is None else task.cpu
    place = f"{printable(task.host):>17}{cpu:>7}" if new else f"{printable(task.host):>15}"
    return f"{task.rank:6}{place}{times}{task.max_rss_bytes / MIB:12.2f}{task.switches:12}"
