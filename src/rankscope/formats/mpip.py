"""Text reports of mpiP: the times of every task, and what each callsite took on each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rankscope.formats.source import Source
from rankscope.model import Figure, Note, RankFacts, Reading, Severity, Tally
from rankscope.readers.mpip_checks import problems
from rankscope.readers.mpip_rows import NUMBER, Sent, Site, Sum, TaskTime, Timed

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
STATISTIC = re.compile(rf"(Max|Mean|Min|Stddev|Aggregate) +{NUMBER} +{NUMBER}(?:\s|$)")


def sniff(head: bytes) -> bool:
    return head.lstrip().startswith(b"@ mpiP") and b"\n@ " in head


@dataclass(slots=True)
class Report:
    """What was read so far."""

    header: dict[str, str] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    tasks: dict[int, TaskTime] = field(default_factory=dict)
    all_tasks: TaskTime | None = None
    timed: dict[Site, Timed] = field(default_factory=dict)
    timed_sums: dict[tuple[str, int], Sum] = field(default_factory=dict)
    sent: dict[Site, Sent] = field(default_factory=dict)
    aggregates: list[Sum] = field(default_factory=list)
    statistics: list[Figure] = field(default_factory=list)
    section: str = ""
    rows: int = 0


def read(source: Source) -> Iterator[Reading]:
    """The readings of each report: one for each task."""
    found = 0
    for report in _reports(source):
        found += 1
        for reading in _readings(report, source):
            reading.facts.job = "" if found == 1 else str(found)
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
        raise source.bad("no task is told of: neither an assignment nor a section MPI Time")
    by_rank: dict[int, list[Timed]] = {rank: [] for rank in ranks}
    for timed in report.timed.values():
        by_rank[timed.site.rank].append(timed)
    found = problems(report.tasks, report.all_tasks, report.timed, report.timed_sums, report.sent)
    for rank in ranks:
        reading = Reading(_facts(report, rank, len(ranks), source), tallies=_tallies(report, rank, by_rank[rank]))
        if rank == ranks[0]:
            reading.figures = [*report.statistics, *(_figure(one) for one in report.aggregates if not report.timed)]
            reading.notes = [Note(text, Severity.WARNING, source.at(line)) for line, text in found]
            reading.notes += _silence(report)
        yield reading


def _take(report: Report, number: int, text: str, source: Source) -> None:
    if found := SECTION.match(text):
        report.section = found[1]
    elif found := HEADER.match(text):
        _header(report, found)
    else:
        for start, take in SECTIONS.items():
            if report.section.startswith(start):
                take(report, number, text)
    report.rows = len(report.timed) + len(report.sent) + len(report.tasks)
    if report.rows > MOST_ROWS:
        raise source.bad(f"more than {MOST_ROWS} rows", number)


def _header(report: Report, found: re.Match[str]) -> None:
    if found[1] == "MPI Task Assignment":
        rank, _, host = found[2].strip().partition(" ")
        if rank.isdecimal() and len(rank) < 10:
            report.hosts[int(rank)] = host.strip()
    else:
        report.header[found[1]] = found[2].strip()


def _task_row(report: Report, number: int, text: str) -> None:
    if found := TASK.match(text):
        row = TaskTime(number, found[2], found[3], found[4])
        if found[1] == "*":
            report.all_tasks = row
        else:
            report.tasks[int(found[1])] = row


def _timed_row(report: Report, number: int, text: str) -> None:
    if found := TIMED.match(text):
        if found[3] == "*":
            report.timed_sums[found[1], int(found[2])] = Sum(number, found[1], int(found[2]), int(found[4]), found[6])
        else:
            site = Site(found[1], int(found[2]), int(found[3]))
            report.timed[site] = Timed(number, site, int(found[4]), found[5], found[6], found[7])


def _sent_row(report: Report, number: int, text: str) -> None:
    found = SENT.match(text)
    if found and found[3] != "*":
        site = Site(found[1], int(found[2]), int(found[3]))
        report.sent[site] = Sent(number, int(found[4]), found[5], found[6], found[7], found[8])


def _aggregate_row(report: Report, number: int, text: str) -> None:
    if found := AGGREGATE.match(text):
        report.aggregates.append(Sum(number, found[1], int(found[2]), int(found[6]), found[3]))


def _statistic_row(report: Report, number: int, text: str) -> None:
    if found := STATISTIC.match(text):
        which = {"Stddev": "stdev", "Aggregate": "total"}.get(found[1], found[1].lower())
        for name, value in (("elapsed", found[2]), ("MPI time", found[3])):
            report.statistics.append(Figure("all tasks", name, float(value) * SECOND, "ns", statistic=which))


SECTIONS: dict[str, Callable[[Report, int, str], None]] = {
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


def _tallies(report: Report, rank: int, timed: list[Timed]) -> list[Tally]:
    """What each callsite took here; the whole MPI time where the report does not split it."""
    if not timed and rank in report.tasks:
        return [Tally("mpi", UNSPLIT, 0, float(report.tasks[rank].mpi_s) * SECOND)]
    tallies = []
    for one in timed:
        sent = report.sent.get(one.site)
        tally = Tally("mpi", f"MPI_{one.site.call}", one.calls, one.calls * float(one.mean_ms) * MILLI)
        tally.group, tally.bytes = f"site {one.site.number}", min(round(float(sent.total)), 2**63 - 1) if sent else None
        tally.min_ns, tally.max_ns = float(one.min_ms) * MILLI, float(one.max_ms) * MILLI
        tallies.append(tally)
    return tallies


def _figure(one: Sum) -> Figure:
    return Figure(
        f"MPI_{one.call}, site {one.number}", "time over all tasks", float(one.value) * MILLI, "ns", statistic="total"
    )


def _silence(report: Report) -> Iterator[Note]:
    if report.all_tasks and not float(report.all_tasks.mpi_s):
        told = "no MPI time was seen at all: mpiP does not see the large-count functions that newer programs call"
        yield Note(told, Severity.WARNING)
