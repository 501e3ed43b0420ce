"""Reads DeepSpeed's communication logger: the lines of single operations and the summary tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from rankscope.formats.event_columns import OtherLines
from rankscope.formats.printed import FLOATING, ZERO, Ends, Printed, count, number, ratio, rounded
from rankscope.formats.source import Source
from rankscope.formats.sums import Sums
from rankscope.model.records import Figure, Layer, Note, RankFacts, Reading, Severity, Tally
from rankscope.rank_file import size_class

SUMMARY = ("Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)", "tput_avg (Gbps)", "busbw_avg (Gbps)")
STRAGGLER = (
    "Message Size",
    "Count",
    "Total comm lat(ms)",
    "Total straggler(ms)",
    "Avg comm lat(ms)",
    "Avg straggler(ms)",
)
HEADERS = {" ".join(("Comm. Op", *names)).replace(" ", ""): names for names in (SUMMARY, STRAGGLER)}
SNIFFED = re.compile(
    rb"(?m)^Comm\. Op +Message Size +Count +Total (?:Latency|comm lat)\(ms\)"
    rb"|comm op: [^|\n]{1,200} \| time \(ms\): [\d.]+ \| msg size: "
)
ROW = re.compile(r"\s+(?P<size>[\d.]{1,30} ?[KMGTPEZY]?B)\s+(?P<count>\d{1,18})" + 4 * r"\s+(-?[\d.]{1,30})" + r"\s*")
OPERATION = re.compile(
    r"(?:rank=(?P<rank>\d{1,7}) \| )?comm op: (?P<name>[^|]{1,200}?) \| "
    r"(?:\[Caller Func: (?P<caller>[^\]]{0,200})\] \| )?"
    r"time \(ms\): (?P<time>[\d.]{1,30}) \| msg size: (?P<size>[\d.]{1,30} ?[KMGTPEZY]?B)"
    r" \| algbw \(Gbps\): (?P<algbw>[\d.]{1,30}) +\| busbw \(Gbps\): (?P<busbw>[\d.]{1,30})"
)
NAME = re.compile(r"[A-Za-z_][\w.-]{0,100}(?: \| \[Caller Func: [^\]]{0,200}\])?\s{0,100}")  # of an operation
SIZE = re.compile(r"(?P<number>[\d.]+) ?(?P<unit>[KMGTPEZY]?)B")
WORLD = re.compile(r"\bworld_size=(\d{1,7})\b")
BACKEND = re.compile(r"Initializing TorchBackend in DeepSpeed with backend (\w{1,20})")
UNITS = " KMGTPEZY"
MS = Decimal(10**6)
GBPS = Decimal(10**9) / 8
MAX_ROWS = 100_000


@dataclass(slots=True)
class Row:
    """One size of one operation, as a table has it."""

    line: int
    name: str
    size: Printed
    calls: int
    cells: tuple[Printed, Printed, Printed, Printed]


@dataclass(slots=True)
class CommsLog:
    """What has been met; a later summary holds all of an earlier one, so only the last is kept."""

    source: Source
    singles: Sums
    other: OtherLines
    named: tuple[int, str] | None = None  # line of an operation whose rows are still to come
    summary: list[Row] = field(default_factory=list)
    straggler: list[Row] = field(default_factory=list)
    world: int | None = None
    backend: str = ""
    tables: int = 0
    notes: list[tuple[int, str]] = field(default_factory=list)


def sniff(head: bytes) -> bool:
    """A header of the summary, a line of a single operation, or DeepSpeed's settings with the logger on."""
    if SNIFFED.search(head):
        return True
    return b"DeepSpeed" in head and re.search(rb'"comms_logger": \{\s*"enabled": true', head) is not None


def read(source: Source) -> Iterator[Reading]:
    """The last summary of the log as tallies; without one, the single operations."""
    log = CommsLog(source, Sums(source), OtherLines(source))
    yield from log.other.told_with_last(_whole(log))


def _whole(log: CommsLog) -> Iterator[Reading]:
    source = log.source
    section: tuple[str, ...] | None = None
    operation = ""
    for line, text in source.lines():
        header = HEADERS.get(text.replace(" ", "")) if len(text) < 400 else None
        if header is not None:
            section, operation = header, ""
            _begin(log, header)
        elif section is not None and (match := ROW.fullmatch(text)):
            log.named = None
            _take(log, section, line, operation, match)
        elif section is not None and NAME.fullmatch(text):
            operation = text.strip()
            _name(log, (line, text))
        elif not _look(log, line, text):
            log.other.add(line, text)
    _name(log, None)
    yield _reading(log)


def _name(log: CommsLog, named: tuple[int, str] | None) -> None:
    """A word that no row follows was no operation."""
    if log.named is not None:
        log.other.add(*log.named)
    log.named = named


def _begin(log: CommsLog, header: tuple[str, ...]) -> None:
    if header is SUMMARY:
        log.tables += 1
        log.summary, log.straggler = [], []


def _look(log: CommsLog, line: int, text: str) -> bool:
    """Whether a line of the log has a single operation or a fact of the job."""
    single = OPERATION.search(text) if "comm op:" in text else None
    if single is not None:
        _take_single(log, line, single)
    if log.world is None and "world_size=" in text and (world := WORLD.search(text)):
        log.world = int(world[1])
        return True
    if not log.backend and "TorchBackend" in text and (backend := BACKEND.search(text)):
        log.backend = backend[1]
        return True
    return single is not None


def _size(text: str) -> Printed | None:
    parts = SIZE.fullmatch(text)
    value = number(parts["number"]) if parts else None
    return value.times(1024 ** UNITS.index(parts["unit"] or " ")) if parts and value else None


def _take(log: CommsLog, section: tuple[str, ...], line: int, operation: str, match: re.Match[str]) -> None:
    cells = [number(cell) for cell in match.groups()[2:]]
    size, calls = _size(match["size"]), count(match["count"])
    first, second, third, fourth = cells
    if size is None or calls is None or first is None or second is None or third is None or fourth is None:
        raise log.source.bad(f"{operation or 'row'}: a cell is not a number", line)
    if not operation:
        raise log.source.bad("sizes before the operation they belong to", line)
    rows = log.summary if section is SUMMARY else log.straggler
    if len(rows) >= MAX_ROWS:
        raise log.source.bad(f"more than {MAX_ROWS} rows in one table", line)
    rows.append(Row(line, operation, size, calls, (first, second, third, fourth)))


def _take_single(log: CommsLog, line: int, match: re.Match[str]) -> None:
    size, time = _size(match["size"]), number(match["time"])
    algbw, busbw = number(match["algbw"]), number(match["busbw"])
    if size is None or time is None or algbw is None or busbw is None:
        raise log.source.bad("an operation with unreadable numbers", line)
    size_bytes = rounded(size.value)
    name = match["name"] if not match["caller"] else f"{match['name']} | [Caller Func: {match['caller']}]"
    log.singles.add(Layer.NCCL, name, float(time.value * MS), "", size_class(size_bytes), size_bytes=size_bytes)
    row = Row(line, name, size, 1, (time, time, algbw, busbw))
    log.notes += [(line, text) for text in _problems(row, log.world)]


def _reading(log: CommsLog) -> Reading:
    source, layer = log.source, log.backend or Layer.NCCL
    facts = RankFacts(rank=source.hints.rank, world_size=log.world, source=str(source))
    if facts.rank is None:
        facts.rank, facts.rank_source = 0, "DeepSpeed logs on rank 0"
    reading = Reading(facts)
    for row in log.summary:
        reading.tallies.append(_tally(layer, row))
        reading.figures += _figures(row)
        log.notes += [(row.line, text) for text in _problems(row, log.world)]
    if not log.summary:
        reading.tallies = log.singles.tallies()
        for tally in reading.tallies:
            tally.layer = layer
    if not reading.tallies:
        raise source.bad("no communication operation in it")
    _compare_stragglers(log, reading)
    reading.notes += [Note(text, Severity.WARNING, source.at(line)) for line, text in log.notes]
    if log.tables > 1:
        reading.notes.append(
            Note(f"{log.tables} summaries: only the last is read, which includes the others", where=str(source))
        )
    return reading


def _tally(layer: str, row: Row) -> Tally:
    size_bytes = rounded(row.size.value)
    tally = Tally(layer, row.name, row.calls, float(row.cells[0].value * MS), size_class=size_class(size_bytes))
    tally.bytes = min(size_bytes * row.calls, 2**63 - 1)
    return tally


def _figures(row: Row) -> Iterator[Figure]:
    scale = float(rounded(row.size.value))
    latency, algbw, busbw = row.cells[1:]
    yield Figure(row.name, "latency", float(latency.value * MS), "ns", scale, "bytes", "trimmed mean")
    yield Figure(row.name, "algbw", float(algbw.value * GBPS), "bytes/s", scale, "bytes", "trimmed mean")
    yield Figure(row.name, "busbw", float(busbw.value * GBPS), "bytes/s", scale, "bytes", "trimmed mean")


def _problems(row: Row, world: int | None) -> Iterator[str]:
    total, mean, algbw, busbw = row.cells
    what = f"{row.name} of {rounded(row.size.value)} bytes"
    # the mean leaves out a tenth of the calls at either end, so of many calls it only bounds the total from below
    left_out = round(row.calls / 10) + 1 if row.calls > 4 else 0
    least = max(ZERO, mean.low) * (row.calls - left_out)
    if total.high < least or (not left_out and total.low > mean.high * row.calls * (1 + FLOATING)):
        yield f"{what}: {row.calls} calls × {mean.value} ms is not {total.value} ms"
    if busbw.low > algbw.high:
        yield f"{what}: a bus bandwidth of {busbw.value} Gbps above the throughput of {algbw.value} Gbps"
    elif world and world > 1 and not any(_fits(busbw, algbw, share) for share in (1, Decimal(world - 1) / world)):
        yield f"{what}: a bus bandwidth of {busbw.value} Gbps does not fit {algbw.value} Gbps on {world} ranks"
    if row.calls == 1 and world:
        low, high = (end * 8 / 10**6 for end in ratio(row.size, total))
        # what counts as the size has changed between versions: once, there and back, or on all ranks
        if not any(algbw.meets(low * share, high * share) for share in (1, 2, world)):
            yield f"{what}: {algbw.value} Gbps does not match its size in {total.value} ms"


def _fits(busbw: Printed, algbw: Printed, share: int | Decimal) -> bool:
    return busbw.meets(*algbw.times(share).ends)


def _compare_stragglers(log: CommsLog, reading: Reading) -> None:
    totals = {(row.name, row.size.value): row for row in log.summary}
    for row in log.straggler:
        scale = float(rounded(row.size.value))
        names = ("transfer", "wait for the slowest rank")
        for name, total, mean in zip(names, row.cells[:2], row.cells[2:], strict=True):
            for value, statistic in ((total, "total"), (mean, "trimmed mean")):
                reading.figures.append(Figure(row.name, name, float(value.value * MS), "ns", scale, "bytes", statistic))
        summed = totals.get((row.name, row.size.value))
        both = (row.cells[0].low + row.cells[1].low, row.cells[0].high + row.cells[1].high)
        if summed is not None and not summed.cells[0].meets(*both) and _apart(summed.cells[0], both):
            parts = f"{row.cells[0].value} + {row.cells[1].value} ms"
            text = f"{row.name}: {parts} is not the {summed.cells[0].value} ms above"
            log.notes.append((row.line, text))


def _apart(total: Printed, both: Ends) -> bool:
    """Whether two sums differ by more than single precision, in which this table is added up, explains."""
    return abs(total.value - sum(both, ZERO) / 2) > Decimal("0.01") + Decimal("1e-4") * abs(total.value)
