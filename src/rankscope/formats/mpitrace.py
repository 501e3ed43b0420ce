"""Profiles of libmpitrace, in its old and its new layout: what one rank counted, and what it was told of the others."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.formats.event_columns import UnreadLines
from rankscope.formats.mpitrace_text import Count, RankProfile, TaskLine, Told, profiles
from rankscope.formats.printed import NOTHING, Span, added, printed, settled
from rankscope.formats.source import Source
from rankscope.model.records import Figure, Layer, Note, RankFacts, Reading, Severity, Tally
from rankscope.rank_file import size_class

# ---------------------------------------------------------------------------------------------------------------------
# Do the summary lines of a libmpitrace profile agree with its table of all ranks?
Problem = tuple[int, str]
UNIT = 10**9  # of whatever is printed: only the digits count here
COMM, ELAPSED, MEMORY = 0, 1, 4
COLUMNS = {"memory utilization": MEMORY, "elapsed time": ELAPSED}


def summary_problems(profile: RankProfile) -> Iterator[Problem]:
    """Line and text of everything that contradicts the table of all ranks."""
    if not profile.tasks:
        return
    yield from _missing(profile)
    by_rank = {task.rank: task for task in profile.tasks}
    for which, stated in profile.extremes.items():
        yield from _contradiction(f"{which} communication time", stated, by_rank.get(stated.rank), COMM)
        yield from _wrong_order(which, stated, profile.tasks)
    for what, stated in profile.largest.items():
        yield from _contradiction(f"largest {what}", stated, by_rank.get(stated.rank), COLUMNS[what])
        yield from _not_largest(what, stated, profile.tasks)
    for which, line in profile.own.items():
        if which in profile.extremes and profile.extremes[which].rank != profile.rank:
            text = f"rank {profile.rank} says it had the {which} communication time, the summary"
            yield line, f"{text} names rank {profile.extremes[which].rank}"


def _missing(profile: RankProfile) -> Iterator[Problem]:
    ranks = [task.rank for task in profile.tasks]
    if len(set(ranks)) != len(ranks):
        yield profile.tasks[0].line, "the table of all ranks has a rank twice"
    absent = profile.world_size - len(set(ranks))
    if absent:
        yield profile.tasks[0].line, f"the table of all ranks has {len(set(ranks))} of {profile.world_size} ranks"


def _contradiction(what: str, stated: Told, task: TaskLine | None, column: int) -> Iterator[Problem]:
    if task is None:
        yield stated.line, f"{what} is given for rank {stated.rank}, which the table of all ranks lacks"
    elif not _of(task, column).meets(printed(stated.value, UNIT)):
        text = f"{what} of rank {stated.rank} is {stated.value}, but the table of all ranks (line {task.line})"
        yield stated.line, f"{text} says {task.numbers[column]}"


def _of(task: TaskLine, column: int) -> Span:
    return printed(task.numbers[column], UNIT)


def _wrong_order(which: str, stated: Told, tasks: list[TaskLine]) -> Iterator[Problem]:
    value = printed(stated.value, UNIT)
    others = [_of(task, COMM) for task in tasks if task.rank != stated.rank]
    surely_less = sum(1 for other in others if other.high < value.low)
    surely_more = sum(1 for other in others if other.low > value.high)
    # the lower of the two middle ones, or the upper: both are called the median
    middle = len(tasks) // 2
    most_less = {"minimum": 0, "median": middle, "maximum": len(tasks)}[which]
    most_more = {"minimum": len(tasks), "median": middle, "maximum": 0}[which]
    if surely_less > most_less or surely_more > most_more:
        text = f"rank {stated.rank} is said to have the {which} communication time, {stated.value} s, but"
        yield stated.line, f"{text} {surely_less} ranks have less and {surely_more} more"


def _not_largest(what: str, stated: Told, tasks: list[TaskLine]) -> Iterator[Problem]:
    value = printed(stated.value, UNIT)
    larger = [task.rank for task in tasks if _of(task, COLUMNS[what]).low > value.high]
    if larger:
        yield stated.line, f"rank {stated.rank} is listed with the largest {what}, but rank {larger[0]} has more"


# ---------------------------------------------------------------- mpitrace
SECOND, MIB = 10**9, 2**20
UNSPLIT = "(all MPI)"  # a rank whose communication is known, but not by routine
STATISTICS = {"minimum": "min", "median": "median", "maximum": "max"}
LARGEST = {"memory utilization": ("largest memory", "bytes", MIB), "elapsed time": ("largest elapsed", "ns", SECOND)}


def sniff(head: bytes) -> bool:
    return b"Data for MPI rank " in head and (
        b"Times and statistics from MPI_Init()" in head or b"Times from MPI_Init()" in head
    )


def read(source: Source) -> Iterator[Reading]:
    """A reading for each profile, and one for each rank that a profile's table of all ranks tells of."""
    seen: set[int] = set()
    world_size, job = 0, 1
    for profile in profiles(source.lines()):
        if profile.rank in seen or (seen and profile.world_size != world_size):
            seen, job = set(), job + 1
        seen.add(profile.rank)
        world_size = profile.world_size
        for reading in _readings(profile, source):
            reading.facts.job = "" if job == 1 else str(job)
            yield reading
    if not world_size:
        raise source.bad("no line `Data for MPI rank N of M:`")


def _readings(profile: RankProfile, source: Source) -> Iterator[Reading]:
    yield _own(profile, source)
    for task in profile.tasks:
        if task.rank != profile.rank:
            yield _told(task, profile, source)


def _own(profile: RankProfile, source: Source) -> Reading:
    row = next((task for task in profile.tasks if task.rank == profile.rank), None)
    facts = _facts(profile, profile.rank, source)
    if row:
        facts.host, facts.cpu, facts.switches = row.host, row.cpu, row.switches
    reading = Reading(facts, figures=_figures(profile))
    times = [_settled_total(profile, at, row, reading, source) for at in range(5)]
    facts.mpi_elapsed_ns, facts.user_ns, facts.system_ns, facts.max_rss_bytes = (
        None if time is None else time.at for time in times[1:]
    )
    _add_tallies(profile, times[0], reading, source)
    reading.notes += [_warning(text, line, source) for line, text in summary_problems(profile)]
    reading.notes += UnreadLines("cannot be read", Severity.WARNING).added(profile.damaged).notes(source)
    reading.notes += UnreadLines().added(profile.unread).notes(source)
    if missing := [name for name, _ in TOTALS if name not in profile.totals]:
        sentence = f"the profile of rank {profile.rank} breaks off: no {', '.join(missing)}"
        reading.notes.append(_warning(sentence, profile.last_line, source))
    return reading


def _facts(profile: RankProfile, rank: int, source: Source) -> RankFacts:
    return RankFacts(
        rank=rank,
        world_size=profile.world_size,
        rank_source="libmpitrace",
        finalized=True,
        versions=f"libmpitrace ({profile.layout} layout)",
        source=str(source),
    )


# The lines of a profile, in the order of the numbers in the table of all ranks.
TOTALS = (
    ("total communication time", SECOND),
    ("total elapsed time", SECOND),
    ("user cpu time", SECOND),
    ("system time", SECOND),
    ("max resident set size", MIB),
)


def _settled_total(
    profile: RankProfile, at: int, row: TaskLine | None, reading: Reading, source: Source
) -> Span | None:
    """What the rank says of itself, narrowed by its line in the table: together they tell more than each."""
    name, unit = TOTALS[at]
    if name not in profile.totals:
        return None
    total = profile.totals[name]
    total_span = printed(total.value, unit)
    both = total_span.narrowed(printed(row.numbers[at], unit)) if row else total_span
    if both is None and row:
        text = f"{name} is {total.value}, but the table of all ranks (line {row.line}) says {row.numbers[at]}"
        reading.notes.append(_warning(f"rank {profile.rank}: {text}", total.line, source))
    return both or total_span


def _add_tallies(profile: RankProfile, total: Span | None, reading: Reading, source: Source) -> None:
    """Times that add up to the total, and inside each routine sizes that add up to the routine, if that can be."""
    rows = [_rows(name, profile, reading, source) for name in profile.routines]
    bounds = [_bound(routine, parts) for routine, parts in zip(profile.routines.values(), rows, strict=True)]
    for name in sorted(profile.sizes.keys() - profile.routines.keys()):
        rows.append(
            [(_sized(name, size_line, _bytes(size_line).at), _time(size_line)) for size_line in profile.sizes[name]]
        )
        bounds.append(added(span for _, span in rows[-1]))
        line = next((size_line.line for size_line in profile.sizes[name]), profile.last_line)
        reading.notes.append(_warning(f"{name} has message sizes, but no line in the table of routines", line, source))
    times = settled(bounds, total) if total else None
    if total and times is None:
        stated = profile.totals[TOTALS[0][0]]
        text = f"total communication time is {stated.value} s, but the routines add up to"
        reading.notes.append(_warning(f"{text} {sum(span.at for span in bounds) / SECOND:.3f} s", stated.line, source))
    for at, parts in enumerate(rows):
        time = times[at] if times else bounds[at].at
        spans = [span for _, span in parts]
        chosen = settled(spans, Span(time, time, time)) or [span.at for span in spans]
        for (tally, _), time_ns in zip(parts, chosen, strict=True):
            tally.total_ns = float(time_ns)
            reading.tallies.append(tally)


def _bound(total: Count, parts: list[tuple[Tally, Span]]) -> Span:
    """What a routine's time can be: within its own rounding and that of its parts."""
    return _time(total).narrowed(added(span for _, span in parts)) or _time(total)


def _rows(name: str, profile: RankProfile, reading: Reading, source: Source) -> list[tuple[Tally, Span]]:
    """The tallies of a routine with what their times can be: by size, and the rest without one."""
    routine, sizes = profile.routines[name], profile.sizes.get(name, [])
    if not sizes:
        if profile.sizes and _bytes(routine).low > 0:
            text = f"{name} has {routine.mean_bytes} bytes a call, but no line of message sizes"
            reading.notes.append(_warning(text, routine.line, source))
        return [(Tally(Layer.MPI, name, routine.calls, 0.0, bytes=_bytes(routine).at), _time(routine))]
    byte_counts = settled([_bytes(size_line) for size_line in sizes], _bytes(routine)) or [
        _bytes(size_line).at for size_line in sizes
    ]
    rows = [
        (_sized(name, size_line, size), _time(size_line)) for size_line, size in zip(sizes, byte_counts, strict=True)
    ]
    rest_calls = routine.calls - sum(size_line.calls for size_line in sizes)
    if rest_calls > 0:  # libmpitrace keeps no sizes of calls that carry no bytes
        rest = max(0, _bytes(routine).at - sum(byte_counts))
        high = max(0, _time(routine).high - added(span for _, span in rows).low)
        at = min(high, max(0, _time(routine).at - added(span for _, span in rows).at))
        rows.append((Tally(Layer.MPI, name, rest_calls, 0.0, bytes=rest), Span(0, at, high)))
    reading.notes += [_warning(text, routine.line, source) for text in _disagreements(name, routine, sizes, rest_calls)]
    return rows


def _disagreements(name: str, routine: Count, sizes: list[Count], rest_calls: int) -> Iterator[str]:
    if rest_calls < 0:
        yield f"{name} has {routine.calls} calls, but {routine.calls - rest_calls} by message size"
    time, size = added(_time(size_line) for size_line in sizes), added(_bytes(size_line) for size_line in sizes)
    exact = rest_calls == 0
    if time.low > _time(routine).high or (exact and not time.meets(_time(routine))):
        yield f"{name} takes {routine.time_s} s, but {time.at / SECOND:.3f} s by message size"
    if rest_calls >= 0 and not size.meets(_bytes(routine)):  # calls without a size carry no bytes
        missing = f"; {rest_calls} of {routine.calls} calls have no size" if rest_calls else ""
        text = (
            f"{name} has {routine.mean_bytes} bytes a call, but {size.at / max(1, routine.calls):.1f} by message size"
        )
        yield text + missing


def _sized(name: str, size_line: Count, size_bytes: int) -> Tally:
    return Tally(
        Layer.MPI,
        name,
        size_line.calls,
        0.0,
        size_class=size_class(round(float(size_line.mean_bytes))),
        bytes=size_bytes,
    )


def _time(count: Count) -> Span:
    return printed(count.time_s, SECOND)


def _bytes(count: Count) -> Span:
    return printed(count.mean_bytes, 1, count.calls) if count.calls else NOTHING


def _told(task: TaskLine, profile: RankProfile, source: Source) -> Reading:
    """A rank as the table of all ranks tells of it."""
    facts = _facts(profile, task.rank, source)
    facts.host, facts.cpu, facts.switches, facts.second_hand = task.host, task.cpu, task.switches, True
    comm, elapsed, user, system, memory = (
        printed(text, unit) for text, (_, unit) in zip(task.numbers, TOTALS, strict=True)
    )
    facts.mpi_elapsed_ns, facts.user_ns, facts.system_ns = elapsed.at, user.at, system.at
    facts.max_rss_bytes = memory.at
    for extreme in profile.extremes.values():
        if extreme.rank == task.rank:
            comm = printed(extreme.value, SECOND).narrowed(comm) or comm
    return Reading(facts, tallies=[Tally(Layer.MPI, UNSPLIT, 0, float(comm.at))])


def _figures(profile: RankProfile) -> list[Figure]:
    """What is told of all tasks: kept, because ranks whose printed times are equal have an order only there."""
    figures = [
        Figure(
            "all tasks", "communication", printed(stated.value, SECOND).at, "ns", stated.rank, "rank", STATISTICS[which]
        )
        for which, stated in profile.extremes.items()
    ]
    for which, largest in profile.largest.items():
        name, kind, unit = LARGEST[which]
        figures.append(Figure("all tasks", name, printed(largest.value, unit).at, kind, largest.rank, "rank", "max"))
    total = profile.totals.get("total communication time")
    for which in profile.own if total else ():
        value = printed(total.value, SECOND).at if total else 0
        figures.append(Figure("this task", "communication", value, "ns", profile.rank, "rank", STATISTICS[which]))
    return figures


def _warning(text: str, line: int, source: Source) -> Note:
    return Note(text, Severity.WARNING, source.at(line))
