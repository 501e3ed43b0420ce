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


def _missing(profile: RankProfile) -> Iterator[Problem]:
    ranks = [task.rank for task in profile.tasks]
    if len(set(ranks)) != len(ranks):
        yield profile.tasks[0].line, "the table of all ranks has a rank twice"
    absent = profile.world_size - len(set(ranks))
    if absent:
        yield profile.tasks[0].line, f"the table of all ranks has {len(set(ranks))} of {profile.world_size} ranks"


def _contradiction(what: str, told: Told, task: TaskLine | None, column: int) -> Iterator[Problem]:
    if task is None:
        yield told.line, f"{what} is given for rank {told.rank}, which the table of all ranks lacks"
    elif not _of(task, column).meets(printed(told.value, UNIT)):
        text = f"{what} of rank {told.rank} is {told.value}, but the table of all ranks (line {task.line})"
        yield told.line, f"{text} says {task.numbers[column]}"


def _of(task: TaskLine, column: int) -> Span:
    return printed(task.numbers[column], UNIT)


def _wrong_order(which: str, told: Told, tasks: list[TaskLine]) -> Iterator[Problem]:
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


def _not_largest(what: str, told: Told, tasks: list[TaskLine]) -> Iterator[Problem]:
    value = printed(told.value, UNIT)
    larger = [task.rank for task in tasks if _of(task, COLUMNS[what]).low > value.high]
    if larger:
        yield told.line, f"rank {told.rank} is said to have the largest {what}, but rank {larger[0]} has more"


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
        told = f"the profile of rank {profile.rank} breaks off: no {', '.join(missing)}"
        reading.notes.append(_warning(told, profile.last_line, source))
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
    own = printed(total.value, unit)
    both = own.narrowed(printed(row.numbers[at], unit)) if row else own
    if both is None and row:
        text = f"{name} is {total.value}, but the table of all ranks (line {row.line}) says {row.numbers[at]}"
        reading.notes.append(_warning(f"rank {profile.rank}: {text}", total.line, source))
    return both or own


def _add_tallies(profile: RankProfile, total: Span | None, reading: Reading, source: Source) -> None:
    """Times that add up to the total, and inside each routine sizes that add up to the routine, if that can be."""
    rows = [_rows(name, profile, reading, source) for name in profile.routines]
    bounds = [_bound(routine, parts) for routine, parts in zip(profile.routines.values(), rows, strict=True)]
    for name in sorted(profile.sizes.keys() - profile.routines.keys()):
        rows.append([(_sized(name, one, _bytes(one).at), _time(one)) for one in profile.sizes[name]])
        bounds.append(added(span for _, span in rows[-1]))
        line = next((one.line for one in profile.sizes[name]), profile.last_line)
        reading.notes.append(_warning(f"{name} has message sizes, but no line in the table of routines", line, source))
    times = settled(bounds, total) if total else None
    if total and times is None:
        told = profile.totals[TOTALS[0][0]]
        text = f"total communication time is {told.value} s, but the routines add up to"
        reading.notes.append(_warning(f"{text} {sum(span.at for span in bounds) / SECOND:.3f} s", told.line, source))
    for at, parts in enumerate(rows):
        time = times[at] if times else bounds[at].at
        spans = [span for _, span in parts]
        chosen = settled(spans, Span(time, time, time)) or [span.at for span in spans]
        for (tally, _), time_ns in zip(parts, chosen, strict=True):
            tally.total_ns = float(time_ns)
            reading.tallies.append(tally)


def _bound(whole: Count, parts: list[tuple[Tally, Span]]) -> Span:
    """What a routine's time can be: within its own rounding and that of its parts."""
    return _time(whole).narrowed(added(span for _, span in parts)) or _time(whole)


def _rows(name: str, profile: RankProfile, reading: Reading, source: Source) -> list[tuple[Tally, Span]]:
    """The tallies of a routine with what their times can be: by size, and the rest without one."""
    whole, sizes = profile.routines[name], profile.sizes.get(name, [])
    if not sizes:
        if profile.sizes and _bytes(whole).low > 0:
            text = f"{name} has {whole.mean_bytes} bytes a call, but no line of message sizes"
            reading.notes.append(_warning(text, whole.line, source))
        return [(Tally(Layer.MPI, name, whole.calls, 0.0, bytes=_bytes(whole).at), _time(whole))]
    byte_counts = settled([_bytes(one) for one in sizes], _bytes(whole)) or [_bytes(one).at for one in sizes]
    rows = [(_sized(name, one, size), _time(one)) for one, size in zip(sizes, byte_counts, strict=True)]
    rest_calls = whole.calls - sum(one.calls for one in sizes)
    if rest_calls > 0:  # libmpitrace keeps no sizes of calls that carry no bytes
        rest = max(0, _bytes(whole).at - sum(byte_counts))
        high = max(0, _time(whole).high - added(span for _, span in rows).low)
        at = min(high, max(0, _time(whole).at - added(span for _, span in rows).at))
        rows.append((Tally(Layer.MPI, name, rest_calls, 0.0, bytes=rest), Span(0, at, high)))
    reading.notes += [_warning(text, whole.line, source) for text in _disagreements(name, whole, sizes, rest_calls)]
    return rows


def _disagreements(name: str, whole: Count, sizes: list[Count], rest_calls: int) -> Iterator[str]:
    if rest_calls < 0:
        yield f"{name} has {whole.calls} calls, but {whole.calls - rest_calls} by message size"
    time, size = added(_time(one) for one in sizes), added(_bytes(one) for one in sizes)
    exact = rest_calls == 0
    if time.low > _time(whole).high or (exact and not time.meets(_time(whole))):
        yield f"{name} takes {whole.time_s} s, but {time.at / SECOND:.3f} s by message size"
    if rest_calls >= 0 and not size.meets(_bytes(whole)):  # calls without a size carry no bytes
        missing = f"; {rest_calls} of {whole.calls} calls have no size" if rest_calls else ""
        text = f"{name} has {whole.mean_bytes} bytes a call, but {size.at / max(1, whole.calls):.1f} by message size"
        yield text + missing


def _sized(name: str, one: Count, size_bytes: int) -> Tally:
    return Tally(Layer.MPI, name, one.calls, 0.0, size_class=size_class(round(float(one.mean_bytes))), bytes=size_bytes)


def _time(one: Count) -> Span:
    return printed(one.time_s, SECOND)


def _bytes(one: Count) -> Span:
    return printed(one.mean_bytes, 1, one.calls) if one.calls else NOTHING


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
        Figure("all tasks", "communication", printed(told.value, SECOND).at, "ns", told.rank, "rank", STATISTICS[which])
        for which, told in profile.extremes.items()
    ]
    for which, told in profile.largest.items():
        name, kind, unit = LARGEST[which]
        figures.append(Figure("all tasks", name, printed(told.value, unit).at, kind, told.rank, "rank", "max"))
    own = profile.totals.get("total communication time")
    for which in profile.own if own else ():
        value = printed(own.value, SECOND).at if own else 0
        figures.append(Figure("this task", "communication", value, "ns", profile.rank, "rank", STATISTICS[which]))
    return figures


def _warning(text: str, line: int, source: Source) -> Note:
    return Note(text, Severity.WARNING, source.at(line))
