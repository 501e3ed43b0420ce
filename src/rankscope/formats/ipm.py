"""Banners of IPM, short and full, of version 2 and the older ones: a job in sums over its tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rankscope.formats.event_columns import OtherLines
from rankscope.formats.source import Source
from rankscope.model.records import Figure, Layer, Note, RangeTally, RankFacts, Reading, Severity, Tally

SECOND, GIB = 1e9, 2**30
NUMBER = r"(\d{1,18}(?:\.\d{1,6})?)"
START = re.compile(r"##IPM ?v?([\w.\-]{1,20}?)#{4,}\s*$")
REGION = re.compile(r"# region +: ?'?([^'\[]{1,200}?)'?\s*(?:\[.*)?$")
TASKS = re.compile(r"mpi_tasks +: +(\d{1,9}) on (\d{1,9}) nodes?")
COMM = re.compile(rf"%comm +: +{NUMBER}")
WALL = re.compile(rf"wallclock +: +{NUMBER}\s*(?:sec)?\s*$")
COMMAND_LETTERS = 4000
MEMORY = re.compile(rf"mem \[GB\] +: +{NUMBER}(?: +gflop/sec +: +{NUMBER})?\s*$")
RULES = re.compile(r"#+ *$|# *: *\[total\]|# *\[time\]|# (?:start|stop) [^:]*:(?!.* (?:wallclock|host) )")
HOST = re.compile(r" host +: (\S{1,255})")
FOUR = re.compile(rf"# {{1,4}}([%#A-Za-z][\w/ \[\]]{{0,24}}?) *:? +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER}\s*$")
CALL = re.compile(rf"# (\w{{2,60}}) +{NUMBER} +(\d{{1,18}}) +{NUMBER}(?: +{NUMBER})?\s*$")
LAYERS = (("MPI_", Layer.MPI), ("cuda", Layer.CUDA_API), ("cu", Layer.CUDA_API))


def sniff(head: bytes) -> bool:
    return re.search(rb"^##IPM ?v?[\w.\-]{1,20}#{4,}", head, re.M) is not None and b"# command" in head


@dataclass(slots=True)
class Four:
    """Total, average, least and most over the tasks."""

    line: int
    total: float
    mean: float
    least: float
    most: float
    step: float  # of the last digit


@dataclass(slots=True)
class Call:
    line: int
    name: str
    time_s: float
    calls: int


@dataclass(slots=True)
class IpmRegion:
    """The numbers of one region, or of the whole job."""

    name: str = ""
    fours: dict[str, Four] = field(default_factory=dict)
    counts: dict[str, Four] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)


@dataclass(slots=True)
class Banner:
    line: int
    version: str
    command: str = ""
    host: str = ""
    tasks: int = 0
    nodes: int = 0
    comm_percent: tuple[int, float] | None = None
    wall_s: float | None = None
    memory_gib: float | None = None
    gflop_rate: float | None = None
    parts: list[IpmRegion] = field(default_factory=lambda: [IpmRegion()])
    counting: bool = False  # below the line "#calls"
    listing: bool = False  # below the line "[time]"


def read(source: Source) -> Iterator[Reading]:
    """One reading for each banner: sums over its tasks, regions as attributed ranges."""
    other = OtherLines(source)
    yield from other.told_with_last(_jobs(source, other))


def _jobs(source: Source, other: OtherLines) -> Iterator[Reading]:
    banners = 0
    for banner in _banners(source, other):
        banners += 1
        yield _reading(banner, source, "" if banners == 1 else str(banners))
    if not banners:
        raise source.bad("no banner `##IPMv…####`")


def _banners(source: Source, other: OtherLines) -> Iterator[Banner]:
    now: Banner | None = None
    for number, text in source.lines():
        if begun := START.match(text):
            if now:
                yield now
            now = Banner(number, begun[1])
        elif now and text.startswith("# command"):
            now.command = _command(text)
        # long runs of spaces would take the patterns long
        elif not (now and text.startswith("#") and _take(now, number, " ".join(text.split()))):
            other.add(number, text)
    if now:
        yield now


def _command(text: str) -> str:
    said = text.partition(":")[2].strip()
    return said.removesuffix("(completed)").rstrip()[:COMMAND_LETTERS]


def _take(banner: Banner, number: int, text: str) -> bool:
    """Whether the line says something that is known."""
    if region := REGION.match(text):
        if region[1] != "*":  # in older banners the whole job
            banner.parts.append(IpmRegion(region[1]))
        banner.counting = banner.listing = False
        return True
    is_fact = _take_facts(banner, number, text)
    part = banner.parts[-1]
    if re.match(r"# #?calls +:\s*$", text) or re.match(r"# %wall +:\s*$", text):
        banner.counting = "calls" in text
    elif "[time]" in text or "[total]" in text:
        banner.listing = "[time]" in text
    elif not banner.listing and (four := FOUR.match(text)):
        _take_four(banner, number, four)
    elif call := CALL.match(text):
        part.calls.append(Call(number, call[1], float(call[2]), int(call[3])))
    else:
        return is_fact or RULES.match(text) is not None
    return True


def _take_four(banner: Banner, number: int, four: re.Match[str]) -> None:
    name = "MPI" if four[1].strip() == "mpi" else four[1].strip()
    total, mean, least, most = (float(four[at]) for at in (2, 3, 4, 5))
    step = 10.0 ** -len(four[3].partition(".")[2])
    part = banner.parts[-1]
    (part.counts if step == 1.0 else part.fours)[name] = Four(number, total, mean, least, most, step)


def _take_facts(banner: Banner, number: int, text: str) -> bool:
    matches = [pattern.search(text[:2000]) for pattern in (HOST, TASKS, COMM, WALL, MEMORY)]
    host, tasks, comm, wall, memory = matches
    if host:
        banner.host = host[1]
    if tasks:
        banner.tasks, banner.nodes = int(tasks[1]), int(tasks[2])
    if comm:
        banner.comm_percent = number, float(comm[1])
    if wall:
        banner.wall_s = float(wall[1])
    if memory:
        banner.memory_gib, banner.gflop_rate = float(memory[1]), float(memory[2]) if memory[2] else None
    return any(matches)


def _reading(banner: Banner, source: Source, job: str) -> Reading:
    facts = RankFacts(host=banner.host, command=banner.command, versions=f"IPM {banner.version}", source=str(source))
    facts.job = job
    if banner.wall_s is not None:
        facts.elapsed_ns = round(banner.wall_s * SECOND)
    reading = Reading(facts, figures=_figures(banner))
    for part in banner.parts:
        for call in part.calls:
            layer = next((layer for start, layer in LAYERS if call.name.startswith(start)), Layer.IO)
            figures = (layer, call.name, call.calls, call.time_s * SECOND)
            if part.name:
                reading.range_tallies.append(RangeTally(*figures, within=part.name))
            else:
                reading.tallies.append(Tally(*figures))
    reading.notes = [Note(text, Severity.WARNING, source.at(line)) for line, text in _problems(banner)]
    if banner.tasks > 1:
        reading.notes.append(Note(f"these are sums over {banner.tasks} tasks, not the values of one rank"))
    return reading


def _figures(banner: Banner) -> list[Figure]:
    figures = [
        Figure("job", name, float(value), "count") for name, value in (("tasks", banner.tasks), ("nodes", banner.nodes))
    ]
    if banner.memory_gib is not None:
        figures.append(Figure("job", "memory of all tasks", banner.memory_gib * GIB, "bytes"))
    if banner.gflop_rate is not None:
        figures.append(Figure("job", "floating-point rate", banner.gflop_rate, "Gflop/s"))
    for part in banner.parts:
        for name, four in part.fours.items():
            unit, factor = ("bytes", GIB) if "[GB]" in name else ("ns", SECOND)
            figures += _four_figures(part.name or "job", name.removesuffix(" [GB]"), four, unit, factor)
        for name, four in part.counts.items():
            figures += _four_figures(part.name or "job", f"{name} calls", four, "count", 1.0)
    return figures


def _four_figures(series: str, name: str, four: Four, unit: str, factor: float) -> list[Figure]:
    numbers = {"total": four.total, "mean": four.mean, "min": four.least, "max": four.most}
    return [Figure(series, name, value * factor, unit, statistic=which) for which, value in numbers.items()]


def _problems(banner: Banner) -> Iterator[tuple[int, str]]:
    if not banner.tasks:
        yield banner.line, "the banner does not say how many tasks there were"
    for part in banner.parts:
        for name, four in (*part.fours.items(), *part.counts.items()):
            yield from _four_problems(name, four, banner.tasks)
        yield from _sum_problems(part)
    totals = banner.parts[0].fours
    if banner.comm_percent and "MPI" in totals and totals.get("wallclock", NONE).total:
        line, percent = banner.comm_percent
        share = 100 * totals["MPI"].total / totals["wallclock"].total
        if abs(share - percent) > 0.01 + 0.02 * percent:
            yield line, f"%comm is {percent}, but MPI is {share:.2f} % of the wallclock"


NONE = Four(0, 0.0, 0.0, 0.0, 0.0, 1.0)


def _four_problems(name: str, four: Four, tasks: int) -> Iterator[tuple[int, str]]:
    slack = 1.01 * four.step * (tasks + 1) * (1.0 if four.step == 1.0 else 0.5)  # counts lose their remainder
    if tasks and abs(four.mean * tasks - four.total) > slack:
        yield four.line, f"{name}: {tasks} tasks × {four.mean:g} on average is not {four.total:g}"
    if four.least > four.mean + 1.01 * four.step or four.mean > four.most + 1.01 * four.step:
        yield four.line, f"{name}: the average {four.mean:g} is not between {four.least:g} and {four.most:g}"


def _sum_problems(part: IpmRegion) -> Iterator[tuple[int, str]]:
    """The calls of a full banner add up to its sums; calls that are not shown can only make them more."""
    calls = [call for call in part.calls if call.name.startswith("MPI_")]
    if not calls:
        return
    time_s, total = sum(call.time_s for call in calls), part.fours.get("MPI")
    if total and time_s > total.total + 0.006 * (len(calls) + 1):
        yield total.line, f"MPI: the calls add up to {time_s:.2f} s, the total says {total.total:.2f} s"
    count, counted = sum(call.calls for call in calls), part.counts.get("MPI")
    if counted and count != counted.total:
        yield counted.line, f"MPI: the calls add up to {count}, the total says {counted.total:.0f}"
