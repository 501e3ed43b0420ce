"""Do the sections of an mpiP report agree?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from rankscope.readers.mpip_rows import Sent, Site, Sum, TaskTime, Timed

Problem = tuple[int, str]
DIGITS = 0.011  # numbers are printed with three digits; two of them may be off by half of the last


def problems(
    tasks: Mapping[int, TaskTime],
    whole: TaskTime | None,
    timed: Mapping[Site, Timed],
    sums: Mapping[tuple[str, int], Sum],
    sent: Mapping[Site, Sent],
) -> Iterator[Problem]:
    """Line and text of everything that contradicts something else."""
    yield from _shares(tasks)
    yield from _whole(tasks, whole)
    yield from (problem for one in timed.values() for problem in _order(one))
    yield from _site_sums(timed, sums)
    yield from _task_sums(tasks, timed)
    yield from _messages(sent)


def _differ(one: float, other: float, least: float = 0.0) -> bool:
    return abs(one - other) > DIGITS * max(abs(one), abs(other)) + least


def _shares(tasks: Mapping[int, TaskTime]) -> Iterator[Problem]:
    for rank, task in tasks.items():
        app_s, mpi_s = float(task.app_s), float(task.mpi_s)
        if mpi_s > app_s * (1 + DIGITS):
            yield task.line, f"task {rank}: MPI took {task.mpi_s} s of {task.app_s} s"
        elif app_s and _differ(100 * mpi_s / app_s, float(task.percent), 0.01):
            yield task.line, f"task {rank}: {task.mpi_s} s of {task.app_s} s are not {task.percent} %"


def _whole(tasks: Mapping[int, TaskTime], whole: TaskTime | None) -> Iterator[Problem]:
    if whole is None or not tasks:
        return
    for name, summed, told in (
        ("application", sum(float(task.app_s) for task in tasks.values()), whole.app_s),
        ("MPI", sum(float(task.mpi_s) for task in tasks.values()), whole.mpi_s),
    ):
        if _differ(summed, float(told)):
            yield whole.line, f"the {name} times of the tasks add up to {summed:.3g} s, the total says {told} s"


def _order(one: Timed) -> Iterator[Problem]:
    least, mean, most = float(one.min_ms), float(one.mean_ms), float(one.max_ms)
    if least > mean * (1 + DIGITS) or mean > most * (1 + DIGITS):
        told = f"the mean {one.mean_ms} ms is not between {one.min_ms} and {one.max_ms}"
        yield one.line, f"{one.site.call}, site {one.site.number}, task {one.site.rank}: {told}"


def _site_sums(timed: Mapping[Site, Timed], sums: Mapping[tuple[str, int], Sum]) -> Iterator[Problem]:
    """The line * of a callsite counts what its tasks count."""
    calls: dict[tuple[str, int], int] = defaultdict(int)
    time_ms: dict[tuple[str, int], float] = defaultdict(float)
    for site, one in timed.items():
        calls[site.call, site.number] += one.calls
        time_ms[site.call, site.number] += one.calls * float(one.mean_ms)
    for key, told in sums.items():
        if calls[key] != told.calls:
            yield told.line, f"{key[0]}, site {key[1]}: the tasks count {calls[key]} calls, the line * {told.calls}"
        elif _differ(time_ms[key], told.calls * float(told.value)):
            text = f"the tasks add up to {time_ms[key]:.3g} ms, {told.calls} calls of {told.value} ms to"
            yield told.line, f"{key[0]}, site {key[1]}: {text} {told.calls * float(told.value):.3g} ms"


def _task_sums(tasks: Mapping[int, TaskTime], timed: Mapping[Site, Timed]) -> Iterator[Problem]:
    """The callsites of a task add up to its MPI time."""
    summed_s: dict[int, float] = defaultdict(float)
    for site, one in timed.items():
        summed_s[site.rank] += one.calls * float(one.mean_ms) / 1e3
    for rank, total_s in summed_s.items():
        if rank not in tasks:
            continue
        if _differ(total_s, float(tasks[rank].mpi_s), 0.001):
            text = f"task {rank}: its callsites add up to {total_s:.3g} s, its MPI time is {tasks[rank].mpi_s} s"
            yield tasks[rank].line, text


def _messages(sent: Mapping[Site, Sent]) -> Iterator[Problem]:
    for site, one in sent.items():
        name = f"{site.call}, site {site.number}, task {site.rank}"
        if _differ(one.calls * float(one.mean), float(one.total), 0.5):
            yield one.line, f"{name}: {one.calls} messages of {one.mean} bytes do not make {one.total}"
        if float(one.least) > float(one.mean) * (1 + DIGITS) or float(one.mean) > float(one.most) * (1 + DIGITS):
            yield one.line, f"{name}: the mean {one.mean} bytes is not between {one.least} and {one.most}"
