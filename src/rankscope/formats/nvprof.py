"""nvprof's output, text or csv: summaries, traces and NVTX results of one or many processes, among other output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from rankscope.formats.nvprof_log import NvprofLog
from rankscope.formats.printed import Printed, count, percent, rate_bytes, size_bytes, time_ns
from rankscope.formats.source import Source
from rankscope.formats.summary_table import Row, cells_of
from rankscope.formats.sums import Activity, TraceColumns
from rankscope.model.records import Layer, Reading

# ---------------------------------------------------------------------------------------------------------------------
# nvprof's text traces: one line per kernel, copy or call, in columns as wide as their headings say.
HEAD = re.compile(r"\s*Start\s+Duration\s+(?:Grid Size\s|Name\s*$)")
TITLE = re.compile(r"\S+(?: \S+)*")
CORRELATED = re.compile(r"(.*\S)\s\[(\d{1,18})\]\s*", re.DOTALL)
NOTHING = ("", "-")
TOLERANCE = Decimal("0.02")  # between size ÷ duration and the printed throughput
BASES = (1024, 1000)  # of KB: nvprof counted by thousands before CUDA 8
SECOND_NS = Decimal(10**9)


def is_trace_head(line: str) -> bool:
    return HEAD.match(line) is not None


@dataclass(slots=True)
class TextTrace:
    """An open trace table."""

    log: NvprofLog
    spans: dict[str, tuple[int, int]]
    name_at: int

    def take(self, number: int, line: str) -> bool:
        """Take the line if it begins with two times."""
        cells = self._cells(line)
        if cells is None:
            return False
        trace = self.log.trace(number)
        activity = activity_of(cells, {}, trace, number)
        if activity is not None:
            trace.add(activity, number)
        return activity is not None

    def _cells(self, line: str) -> dict[str, str] | None:
        cells = {title: line[first:last].strip() for title, (first, last) in self.spans.items()}
        cells["Name"] = line[self.name_at :].strip()
        straight = all(line[last : last + 1] in (" ", "") for _, last in self.spans.values())
        are_whole = not any("  " in cells[title] for title in self.spans)
        if straight and are_whole and time_ns(cells["Start"]) and time_ns(cells["Duration"]):
            return cells
        return self._cells_by_gaps(line)

    def _cells_by_gaps(self, line: str) -> dict[str, str] | None:
        """A cell wider than its column moves all that follow: then only the gaps tell the columns."""
        parts = re.split(r" {2,}|\t+", line.strip(), maxsplit=len(self.spans))
        if len(parts) != len(self.spans) + 1 or not (time_ns(parts[0]) and time_ns(parts[1])):
            return None
        return dict(zip([*self.spans, "Name"], parts, strict=True))


def trace_table(line: str, log: NvprofLog) -> TextTrace:
    """The columns from their headings: numbers stand under the heading's right end."""
    spans: dict[str, tuple[int, int]] = {}
    begin, name_at = 0, 0
    for title in TITLE.finditer(line):
        if title[0] == "Name":
            name_at = title.start()
            break
        spans[title[0].rstrip("*")] = (begin, title.end())
        begin = title.end()
    return TextTrace(log, spans, name_at)


def activity_of(cells: dict[str, str], units: dict[str, str], trace: TraceColumns, line: int) -> Activity | None:
    """One row of a trace, text or csv; None where the times are none."""
    start = time_ns(cells.get("Start", ""), units.get("Start", ""))
    duration = time_ns(cells.get("Duration", ""), units.get("Duration", ""))
    if start is None or duration is None:
        return None
    name, correlation = _name(cells)
    device = cells.get("Device", "")
    layer, group = (Layer.CUDA_API, "") if device in NOTHING else (Layer.GPU, _group(cells))
    size, odd = _bytes(cells, units, duration)
    if odd:
        trace.odd(line, f"{name[:60]}: {odd}")
    return Activity(layer, name, group, int(start.value), int(duration.value), size, correlation)


def _name(cells: dict[str, str]) -> tuple[str, int | None]:
    """The name, and the call it belongs to, which a text trace writes behind a kernel's name."""
    name = cells.get("Name", "")
    correlation = count(cells.get("Correlation_ID", ""))
    match = CORRELATED.fullmatch(name) if correlation is None and not name.startswith("[") else None
    return (match[1], int(match[2])) if match else (name, correlation)


def _group(cells: dict[str, str]) -> str:
    stream = cells.get("Stream", "")
    return cells["Device"] if stream in NOTHING else f"{cells['Device']}/{stream}"


def _bytes(cells: dict[str, str], units: dict[str, str], duration: Printed) -> tuple[int | None, str]:
    """The bytes moved, in the base (1000 or 1024) that agrees with the throughput."""
    texts, rates = (
        (cells.get("Size", ""), units.get("Size", "")),
        (cells.get("Throughput", ""), units.get("Throughput", "")),
    )
    if texts[0] in NOTHING:
        return None, ""
    for base in BASES:
        size, rate = size_bytes(*texts, base), rate_bytes(*rates, base)
        if size is not None and (rate is None or _agree(size, rate, duration)):
            return int(size.value.to_integral_value()), ""
    size = size_bytes(*texts)
    if size is None:
        return None, f"{texts[0]!r} is not a size"
    return int(size.value), f"{texts[0]}{texts[1]} in {int(duration.value)} ns is not {rates[0]}{rates[1]}"


def _agree(size: Printed, rate: Printed, duration: Printed) -> bool:
    if not duration.value:
        return True
    computed = size.value * SECOND_NS / duration.value
    slack = TOLERANCE + size.step / max(size.value, size.step) + duration.step / duration.value
    return abs(computed - rate.value) <= slack * computed + rate.step


# ---------------------------------------------------------------------------------------------------------------------
# nvprof's csv tables: a line of titles, a line of units, and rows.
HEADS = ('"Type","Time(%)"', '"Time(%)","Time"', '"Start","Duration"')


def is_csv_head(line: str) -> bool:
    return line.lstrip().startswith(HEADS)


@dataclass(slots=True)
class CsvTable:
    """An open table."""

    log: NvprofLog
    titles: list[str]
    units: dict[str, str] = field(default_factory=dict)
    begun: bool = False

    def take(self, number: int, line: str) -> bool:
        """Take the line if it has as many cells as there are titles."""
        cells = cells_of(line.strip())
        if not cells or len(cells) != len(self.titles):
            return False
        named = dict(zip(self.titles, cells, strict=True))
        if not self.begun:
            self.begun = True
            if not named.get("Name"):
                self.units = named
                return True
        return self._trace(named, number) if "Start" in named else self._summary(named, number)

    def _trace(self, named: dict[str, str], number: int) -> bool:
        trace = self.log.trace(number)
        activity = activity_of(named, self.units, trace, number)
        if activity is None:
            return self._unreadable(number)
        trace.add(activity, number)
        return True

    def _summary(self, named: dict[str, str], number: int) -> bool:
        share, calls = percent(named.get("Time(%)", ""), self.units.get("Time(%)", "%")), count(named.get("Calls", ""))
        times = [time_ns(named.get(title, ""), self.units.get(title, "")) for title in ("Time", "Avg", "Min", "Max")]
        if share is None or calls is None or None in times:
            return self._unreadable(number)
        if "Type" in named:
            self.log.kind = named["Type"]
        total, mean, least, most = times
        self.log.section(number).rows.append(Row(named.get("Name", ""), number, share, total, calls, mean, least, most))
        return True

    def _unreadable(self, number: int) -> bool:
        self.log.tell_unreadable(number, "a time, share or count is missing")
        return True


def csv_table(line: str, log: NvprofLog) -> CsvTable:
    """The table that begins with these titles."""
    titles = cells_of(line.strip())
    if "Type" not in titles and log.kind != "API calls":
        log.kind = "GPU activities"
    return CsvTable(log, titles)


# ---------------------------------------------------------------------------------------------------------------------
# The lines of nvprof's text tables: summaries and what they say where there is nothing.
SUMMARY_HEAD = re.compile(r"\s*(?:Type\s+)?Time\(%\)\s+Time\s+Calls\s+Avg\s+Min\s+Max\s+Name\s*$")
KIND = re.compile(r"\s*([A-Z][A-Za-z ()]{2,30}):\s+(?=\d)")
ROW_LIKE = re.compile(r"\s*\d{1,3}\.\d{1,6}%\s")
CELLS = 7


def read_summary_line(log: NvprofLog, number: int, line: str) -> bool:
    """Take the line if it is a row of the open summary."""
    kind = KIND.match(line)
    rest = line[kind.end() :] if kind else line
    if not ROW_LIKE.match(rest):
        return False
    if kind:
        log.kind = kind[1]
    row = parsed(rest, number)
    if row is None:
        log.tell_unreadable(number, repr(line.strip()[:60]))
    else:
        log.section(number).rows.append(row)
    return True


def parsed(text: str, number: int) -> Row | None:
    """The row, if every cell is what its column holds."""
    cells = text.split(None, CELLS - 1)
    if len(cells) != CELLS:
        return None
    share, total, calls = percent(cells[0]), time_ns(cells[1]), count(cells[2])
    mean, least, most = (time_ns(cell) for cell in cells[3:6])
    if None in (share, total, calls, mean, least, most):
        return None
    return Row(cells[6].rstrip(), number, share, total, calls, mean, least, most)


# ---------------------------------------------------------------- nvprof
TAGGED = rb"={2}\d{1,10}={2} (?:NVPROF is profiling process \d|Profiling application: |Profiling result:|NVTX result:)"
KNOWN = re.compile(
    rb"^(?:" + TAGGED + rb"|={8} Profiling result:"
    rb'|[ \t]*(?:"?Type"?,)?"Time\(%\)","Time","Calls","Avg","Min","Max","Name"'
    rb"|[ ]*(?:Type +)?Time\(%\) +Time +Calls +Avg +Min +Max  Name[ \r]*$"
    rb'|"Start","Duration",'
    rb"|[ ]*Start  Duration +(?:Grid Size +Block Size|Name[ \r]*$))",
    re.MULTILINE,
)


def sniff(head: bytes) -> bool:
    """Whether a line of nvprof's own stands there."""
    return KNOWN.search(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """One reading per profiled process, in the order of their results."""
    log = NvprofLog(source)
    for number, line in source.lines():
        _take(log, number, line)
    yield from log.readings()


def _take(log: NvprofLog, number: int, line: str) -> None:
    """A line belongs to nvprof itself, to the table it has opened, or to the program that was profiled."""
    if line.startswith("==") and log.take_tag(number, line):
        return
    if SUMMARY_HEAD.match(line):
        log.open_summary(typed=line.lstrip().startswith("Type"))
    elif is_csv_head(line):
        log.open_table(csv_table(line, log))
    elif is_trace_head(line):
        log.open_table(trace_table(line, log))
    elif log.table is not None and log.table.take(number, line):
        return
    elif not (log.in_summary and read_summary_line(log, number, line)):
        log.take_other(number, line)
