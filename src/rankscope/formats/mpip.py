"""Text reports of mpiP: the times of every task, and what each callsite took on each of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rankscope.formats.event_columns import UnreadLines
from rankscope.formats.source import Source
from rankscope.model.records import Figure, Layer, Note, RankFacts, Reading, Severity, Tally

# ---------------------------------------------------------------- the rows of mpiP's report, as printed
NUMBER = r"(\d{1,18}(?:\.\d{1,12})?(?:e[+-]\d{1,2})?)"


@dataclass(frozen=True, slots=True)
class CallSite:
    """A callsite on one task."""

    call: str
    number: int
    rank: int


@dataclass(slots=True)
class TaskTime:
    """A line of the section MPI Time."""

    line: int
    app_s: str
    mpi_s: str
    percent: str


@dataclass(slots=True)
class SiteTimes:
    """Calls and times of a callsite on one task."""

    line: int
    site: CallSite
    calls: int
    max_ms: str
    mean_ms: str
    min_ms: str


@dataclass(slots=True)
class Sent:
    """Messages of a callsite on one task."""

    line: int
    calls: int
    most: str
    mean: str
    least: str
    total: str


@dataclass(slots=True)
class SiteSum:
    """A callsite over all tasks: the mean in the statistics, the total in the section Aggregate Time."""

    line: int
    call: str
    number: int
    calls: int
    value: str


# ---------------------------------------------------------------- do the sections of an mpiP report agree?
Problem = tuple[int, str]
DIGITS = 0.011  # numbers are printed with three digits; two of them may be off by half of the last


def problems(
    tasks: Mapping[int, TaskTime],
    total: TaskTime | None,
    timed: Mapping[CallSite, SiteTimes],
    sums: Mapping[tuple[str, int], SiteSum],
    sent: Mapping[CallSite, Sent],
    sent_sums: Mapping[tuple[str, int], SiteSum],
    aggregates: Mapping[tuple[str, int], SiteSum],
) -> Iterator[Problem]:
    """Line and text of everything that contradicts something else."""
    yield from _shares(tasks)
    yield from _whole(tasks, total)
    yield from (problem for times in timed.values() for problem in _order(times))
    yield from _site_sums(timed, sums)
    yield from _task_sums(tasks, timed)
    yield from _messages(sent)
    yield from _sent_sums(sent, sent_sums)
    if timed:
        yield from _aggregates(timed, aggregates)


def _differ(one: float, other: float, least: float = 0.0) -> bool:
    return abs(one - other) > DIGITS * max(abs(one), abs(other)) + least


def _shares(tasks: Mapping[int, TaskTime]) -> Iterator[Problem]:
    for rank, task in tasks.items():
        app_s, mpi_s = float(task.app_s), float(task.mpi_s)
        if mpi_s > app_s * (1 + DIGITS):
            yield task.line, f"task {rank}: MPI took {task.mpi_s} s of {task.app_s} s"
        elif app_s and _differ(100 * mpi_s / app_s, float(task.percent), 0.01):
            yield task.line, f"task {rank}: {task.mpi_s} s of {task.app_s} s are not {task.percent} %"


def _whole(tasks: Mapping[int, TaskTime], total: TaskTime | None) -> Iterator[Problem]:
    if total is None or not tasks:
        return
    for name, summed, stated in (
        ("application", sum(float(task.app_s) for task in tasks.values()), total.app_s),
        ("MPI", sum(float(task.mpi_s) for task in tasks.values()), total.mpi_s),
    ):
        if _differ(summed, float(stated)):
            yield total.line, f"the {name} times of the tasks add up to {summed:.3g} s, the total says {stated} s"


def _order(site_times: SiteTimes) -> Iterator[Problem]:
    least, mean, most = float(site_times.min_ms), float(site_times.mean_ms), float(site_times.max_ms)
    if least > mean * (1 + DIGITS) or mean > most * (1 + DIGITS):
        text = f"the mean {site_times.mean_ms} ms is not between {site_times.min_ms} and {site_times.max_ms}"
        yield (
            site_times.line,
            f"{site_times.site.call}, site {site_times.site.number}, task {site_times.site.rank}: {text}",
        )


def _site_sums(timed: Mapping[CallSite, SiteTimes], sums: Mapping[tuple[str, int], SiteSum]) -> Iterator[Problem]:
    """The line * of a callsite counts what its tasks count."""
    calls: dict[tuple[str, int], int] = defaultdict(int)
    time_ms: dict[tuple[str, int], float] = defaultdict(float)
    for site, times in timed.items():
        calls[site.call, site.number] += times.calls
        time_ms[site.call, site.number] += times.calls * float(times.mean_ms)
    for key, stated in sums.items():
        if calls[key] != stated.calls:
            text = f"the tasks count {calls[key]} calls, but the line * has {stated.calls}"
            yield stated.line, f"{key[0]}, site {key[1]}: {text}"
        elif _differ(time_ms[key], stated.calls * float(stated.value)):
            text = f"the tasks add up to {time_ms[key]:.3g} ms, but {stated.calls} calls × {stated.value} ms is"
            yield stated.line, f"{key[0]}, site {key[1]}: {text} {stated.calls * float(stated.value):.3g} ms"


def _task_sums(tasks: Mapping[int, TaskTime], timed: Mapping[CallSite, SiteTimes]) -> Iterator[Problem]:
    """The callsites of a task add up to its MPI time."""
    summed_s: dict[int, float] = defaultdict(float)
    for site, times in timed.items():
        summed_s[site.rank] += times.calls * float(times.mean_ms) / 1e3
    for rank, total_s in summed_s.items():
        if rank not in tasks:
            continue
        if _differ(total_s, float(tasks[rank].mpi_s), 0.001):
            text = f"task {rank}: its callsites add up to {total_s:.3g} s, its MPI time is {tasks[rank].mpi_s} s"
            yield tasks[rank].line, text


def _messages(sent: Mapping[CallSite, Sent]) -> Iterator[Problem]:
    for site, messages in sent.items():
        name = f"{site.call}, site {site.number}, task {site.rank}"
        if _differ(messages.calls * float(messages.mean), float(messages.total), 0.5):
            yield (
                messages.line,
                f"{name}: {messages.calls} messages × {messages.mean} bytes is not {messages.total}",
            )
        if float(messages.least) > float(messages.mean) * (1 + DIGITS) or float(messages.mean) > float(
            messages.most
        ) * (1 + DIGITS):
            yield (
                messages.line,
                f"{name}: the mean {messages.mean} bytes is not between {messages.least} and {messages.most}",
            )


def _sent_sums(sent: Mapping[CallSite, Sent], sums: Mapping[tuple[str, int], SiteSum]) -> Iterator[Problem]:
    """The line * of a callsite's messages counts what its tasks count."""
    calls: dict[tuple[str, int], int] = defaultdict(int)
    total: dict[tuple[str, int], float] = defaultdict(float)
    for site, messages in sent.items():
        calls[site.call, site.number] += messages.calls
        total[site.call, site.number] += float(messages.total)
    for key, stated in sums.items():
        if calls[key] != stated.calls or _differ(total[key], float(stated.value), 0.5):
            text = f"the tasks sent {total[key]:.4g} bytes in {calls[key]} messages"
            yield stated.line, f"{key[0]}, site {key[1]}: {text}, the line * says {stated.value} in {stated.calls}"


def _aggregates(timed: Mapping[CallSite, SiteTimes], sums: Mapping[tuple[str, int], SiteSum]) -> Iterator[Problem]:
    """The section Aggregate Time says of a callsite what its tasks add up to."""
    time_ms: dict[tuple[str, int], float] = defaultdict(float)
    for site, times in timed.items():
        time_ms[site.call, site.number] += times.calls * float(times.mean_ms)
    for key, stated in sums.items():
        if _differ(time_ms[key], float(stated.value), 0.01):
            text = f"the tasks add up to {time_ms[key]:.3g} ms, the aggregate time is {stated.value} ms"
            yield stated.line, f"{key[0]}, site {key[1]}: {text}"


# ---------------------------------------------------------------- mpip
MILLI, SECOND = 10**6, 10**9
MOST_ROWS = 5_000_000
UNSPLIT = "(all MPI)"  # a task whose MPI time is known, but not by callsite
HEADER = re.compile(r"@ ([A-Za-z ]{3,40}?) {0,30}: (.{0,4000})$")
SECTION = re.compile(r"@--- (.{1,200}?) -{2,}\s*$")
TASK = re.compile(rf" *(\d{{1,9}}|\*) +{NUMBER} +{NUMBER} +{NUMBER}\s*$")
AGGREGATE = re.compile(rf"(\w{{1,60}}) +(\d{{1,9}}) +{NUMBER} +{NUMBER} +{NUMBER} +(\d{{1,18}})(?: +{NUMBER})?\s*$")
TIMED = re.compile(
    rf"(\w{{1,60}}) +(\d{{1,9}}) +(\d{{1,9}}|\*) +(\d{{1,18}}) +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER}\s*$"
)
SENT = re.compile(
    rf"(\w{{1,60}}) +(\d{{1,9}}) +(\d{{1,9}}|\*) +(\d{{1,18}}) +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER}\s*$"
)
# Rules, and the headings of tables: they say nothing that has to be kept.
HEADING = re.compile(
    r"-{5,200}\s*$|@ mpiP\s*$|Task +AppTime +MPITime +MPI%|Call +Site +(?:Time|Count) "
    r"|Name +Site +(?:Rank|Tasks) +Count |ID +Lev +File"
)
STATISTIC = re.compile(rf"(Max|Mean|Min|Stddev|Aggregate) +{NUMBER} +{NUMBER}(?:\s|$)")


def sniff(head: bytes) -> bool:
    return head.lstrip().startswith(b"@ mpiP") and b"\n@ " in head


Key = TypeVar("Key")
Row = TypeVar("Row")


@dataclass(slots=True)
class Report:
    """What was read so far."""

    header: dict[str, str] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    tasks: dict[int, TaskTime] = field(default_factory=dict)
    all_tasks: TaskTime | None = None
    timed: dict[CallSite, SiteTimes] = field(default_factory=dict)
    timed_sums: dict[tuple[str, int], SiteSum] = field(default_factory=dict)
    sent: dict[CallSite, Sent] = field(default_factory=dict)
    sent_sums: dict[tuple[str, int], SiteSum] = field(default_factory=dict)
    aggregates: dict[tuple[str, int], SiteSum] = field(default_factory=dict)
    statistics: dict[str, list[Figure]] = field(default_factory=dict)
    unread: UnreadLines = field(default_factory=UnreadLines)
    other: UnreadLines = field(default_factory=lambda: UnreadLines("of other sections (not in any table)"))
    damaged: UnreadLines = field(default_factory=lambda: UnreadLines("cannot be read", Severity.WARNING))
    section: str = ""
    rows: int = 0


def read(source: Source) -> Iterator[Reading]:
    """The readings of each report: one for each task."""
    reports = 0
    for report in _reports(source):
        reports += 1
        for reading in _readings(report, source):
            reading.facts.job = "" if reports == 1 else str(reports)
            yield reading


def _reports(source: Source) -> Iterator[Report]:
    report = Report()
    for number, text in source.lines():
        if text.startswith("@ mpiP") and (report.header or report.hosts):
            yield report
            report = Report()
        _take(report, number, text, source)
    yield report


def _readings(report: Report, source: Source) -> Iterator[Reading]:
    """One reading for each task; the first carries what is told of all, and what is off."""
    ranks = sorted({*report.tasks, *report.hosts, *(site.rank for site in report.timed)})
    if not ranks:
        raise source.bad("describes no task: it has neither a task assignment nor an MPI Time section")
    by_rank: dict[int, list[SiteTimes]] = {rank: [] for rank in ranks}
    for timed in report.timed.values():
        by_rank[timed.site.rank].append(timed)
    sums = (report.timed_sums, report.sent, report.sent_sums, report.aggregates)
    warnings = problems(report.tasks, report.all_tasks, report.timed, *sums)
    for rank in ranks:
        reading = Reading(_facts(report, rank, len(ranks), source), tallies=_tallies(report, rank, by_rank[rank]))
        if rank == ranks[0]:
            reading.figures = [
                *(figure for figures in report.statistics.values() for figure in figures),
                *(_figure(aggregate) for aggregate in report.aggregates.values() if not report.timed),
            ]
            reading.notes = [Note(text, Severity.WARNING, source.at(line)) for line, text in warnings]
            reading.notes += _silence(report)
            for lines in (report.damaged, report.other, report.unread):
                reading.notes += lines.notes(source)
        yield reading


def _take(report: Report, number: int, text: str, source: Source) -> None:
    if match := SECTION.match(text):
        report.section = match[1]
    elif match := HEADER.match(text):
        if not _header(report, match):
            report.damaged.add(number)
    elif text.strip() and not HEADING.match(text.lstrip()):
        _take_row(report, number, text)
    report.rows = len(report.timed) + len(report.sent) + len(report.tasks)
    if report.rows > MOST_ROWS:
        raise source.bad(f"more than {MOST_ROWS} rows", number)


def _take_row(report: Report, number: int, text: str) -> None:
    take = next((take for start, take in SECTIONS.items() if report.section.startswith(start)), None)
    if take and not take(report, number, text):
        report.damaged.add(number)
    elif not take:
        (report.other if report.section else report.unread).add(number)


# Each of these answers whether a line could be used.
def _header(report: Report, match: re.Match[str]) -> bool:
    if match[1] != "MPI Task Assignment":
        return _once(report.header, match[1], match[2].strip())
    rank, _, host = match[2].strip().partition(" ")
    return rank.isdecimal() and len(rank) < 10 and _once(report.hosts, int(rank), host.strip())


def _once(rows: dict[Key, Row], key: Key, row: Row) -> bool:
    is_new = key not in rows
    rows.setdefault(key, row)
    return is_new


def _task_row(report: Report, number: int, text: str) -> bool:
    match = TASK.match(text)
    if not match:
        return False
    row = TaskTime(number, match[2], match[3], match[4])
    if match[1] != "*":
        return _once(report.tasks, int(match[1]), row)
    report.all_tasks = report.all_tasks or row
    return report.all_tasks is row


def _timed_row(report: Report, number: int, text: str) -> bool:
    match = TIMED.match(text)
    if match and match[3] == "*":
        site_sum = SiteSum(number, match[1], int(match[2]), int(match[4]), match[6])
        return _once(report.timed_sums, (site_sum.call, site_sum.number), site_sum)
    site = CallSite(match[1], int(match[2]), int(match[3])) if match else None
    if not match or not site:
        return False
    return _once(report.timed, site, SiteTimes(number, site, int(match[4]), match[5], match[6], match[7]))


def _sent_row(report: Report, number: int, text: str) -> bool:
    match = SENT.match(text)
    if match and match[3] == "*":
        site_sum = SiteSum(number, match[1], int(match[2]), int(match[4]), match[8])
        return _once(report.sent_sums, (site_sum.call, site_sum.number), site_sum)
    if not match:
        return False
    site = CallSite(match[1], int(match[2]), int(match[3]))
    return _once(report.sent, site, Sent(number, int(match[4]), match[5], match[6], match[7], match[8]))


def _aggregate_row(report: Report, number: int, text: str) -> bool:
    match = AGGREGATE.match(text)
    if not match:
        return False
    site_sum = SiteSum(number, match[1], int(match[2]), int(match[6]), match[3])
    return _once(report.aggregates, (site_sum.call, site_sum.number), site_sum)


def _statistic_row(report: Report, number: int, text: str) -> bool:
    match = STATISTIC.match(text)
    if not match:
        return False
    which = {"Stddev": "stdev", "Aggregate": "total"}.get(match[1], match[1].lower())
    values = (("elapsed", match[2]), ("MPI time", match[3]))
    return _once(
        report.statistics,
        which,
        [Figure("all tasks", name, float(value) * SECOND, "ns", statistic=which) for name, value in values],
    )


SECTIONS: dict[str, Callable[[Report, int, str], bool]] = {
    "MPI Time": _task_row,
    "Task Time Statistics": _statistic_row,
    "Aggregate Time": _aggregate_row,
    "Callsite Time statistics (all,": _timed_row,
    "Callsite Message Sent statistics (all,": _sent_row,
}


def _facts(report: Report, rank: int, world_size: int, source: Source) -> RankFacts:
    task = report.tasks.get(rank)
    return RankFacts(
        host=report.hosts.get(rank, ""),
        rank=rank,
        world_size=world_size,
        rank_source="mpiP",
        command=report.header.get("Command", ""),
        finalized=True,
        mpi_elapsed_ns=round(float(task.app_s) * SECOND) if task else None,
        versions=f"mpiP {report.header.get('Version', '')}".strip(),
        source=str(source),
    )


def _tallies(report: Report, rank: int, timed: list[SiteTimes]) -> list[Tally]:
    """What each callsite took here; the whole MPI time where the report does not split it."""
    if not timed and rank in report.tasks:
        return [Tally(Layer.MPI, UNSPLIT, 0, float(report.tasks[rank].mpi_s) * SECOND)]
    tallies = []
    for site_times in timed:
        sent = report.sent.get(site_times.site)
        tally = Tally(
            Layer.MPI,
            f"MPI_{site_times.site.call}",
            site_times.calls,
            site_times.calls * float(site_times.mean_ms) * MILLI,
        )
        tally.group, tally.bytes = (
            f"site {site_times.site.number}",
            min(round(float(sent.total)), 2**63 - 1) if sent else None,
        )
        tally.min_ns, tally.max_ns = float(site_times.min_ms) * MILLI, float(site_times.max_ms) * MILLI
        tallies.append(tally)
    return tallies


def _figure(site_sum: SiteSum) -> Figure:
    return Figure(
        f"MPI_{site_sum.call}, site {site_sum.number}",
        "time over all tasks",
        float(site_sum.value) * MILLI,
        "ns",
        statistic="total",
    )


def _silence(report: Report) -> Iterator[Note]:
    if report.all_tasks and not float(report.all_tasks.mpi_s):
        text = "mpiP recorded no MPI time: it does not see the large-count functions that newer programs call"
        yield Note(text, Severity.WARNING)
