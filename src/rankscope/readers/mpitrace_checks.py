"""Do the summary lines of a libmpitrace profile agree with its table of all ranks?"""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.formats.mpitrace_text import Profile, Task, Told
from rankscope.readers.spans import Span, printed

Problem = tuple[int, str]
UNIT = 10**9  # of whatever is printed: only the digits count here
COMM, ELAPSED, MEMORY = 0, 1, 4
COLUMNS = {"memory utilization": MEMORY, "elapsed time": ELAPSED}


def summary_problems(profile: Profile) -> Iterator[Problem]:
    """Line and text of everything that contradicts the table of all ranks."""
    if not profile.tasks:
        return
    yield from _missing(profile)
    by_rank = {task.rank: task for task in profile.tasks}
    for which, told in profile.extremes.items():
        yield from _contradiction(f"{which} communication time", told, by_rank.get(told.rank), COMM)
        yield from _wrong_order(which, told, profile.tasks)
    for what, told in profile.largest.items():
        yield from _contradiction(f"largest {what}", told, by_rank.get(told.rank), COLUMNS[what])
        yield from _not_largest(what, told, profile.tasks)
    for which, line in profile.own.items():
        if which in profile.extremes and profile.extremes[which].rank != profile.rank:
            text = f"rank {profile.rank} says it had the {which} communication time, the summary"
            yield line, f"{text} names rank {profile.extremes[which].rank}"


def _missing(profile: Profile) -> Iterator[Problem]:
    ranks = [task.rank for task in profile.tasks]
    if len(set(ranks)) != len(ranks):
        yield profile.tasks[0].line, "the table of all ranks has a rank twice"
    absent = profile.world_size - len(set(ranks))
    if absent:
        yield profile.tasks[0].line, f"the table of all ranks has {len(set(ranks))} of {profile.world_size} ranks"


def _contradiction(what: str, told: Told, task: Task | None, column: int) -> Iterator[Problem]:
    if task is None:
        yield told.line, f"{what} is told of rank {told.rank}, which the table of all ranks has not"
    elif not _of(task, column).meets(printed(told.value, UNIT)):
        text = f"{what} of rank {told.rank} is {told.value}, but the table of all ranks (line {task.line})"
        yield told.line, f"{text} says {task.numbers[column]}"


def _of(task: Task, column: int) -> Span:
    return printed(task.numbers[column], UNIT)


def _wrong_order(which: str, told: Told, tasks: list[Task]) -> Iterator[Problem]:
    value = printed(told.value, UNIT)
    others = [_of(task, COMM) for task in tasks if task.rank != told.rank]
    surely_less = sum(1 for other in others if other.high < value.low)
    surely_more = sum(1 for other in others if other.low > value.high)
    # the lower of the two middle ones, or the upper: both are called the median
    middle = len(tasks) // 2
    most_less = {"minimum": 0, "median": middle, "maximum": len(tasks)}[which]
    most_more = {"minimum": len(tasks), "median": middle, "maximum": 0}[which]
    if surely_less > most_less or surely_more > most_more:
        text = f"rank {told.rank} is said to have the {which} communication time, {told.value} s, but"
        yield told.line, f"{text} {surely_less} ranks have less and {surely_more} more"


def _not_largest(what: str, told: Told, tasks: list[Task]) -> Iterator[Problem]:
    value = printed(told.value, UNIT)
    larger = [task.rank for task in tasks if _of(task, COLUMNS[what]).low > value.high]
    if larger:
        yield told.line, f"rank {told.rank} is said to have the largest {what}, but rank {larger[0]} has more"
