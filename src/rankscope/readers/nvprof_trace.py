"""nvprof's text traces: one line per kernel, copy or call, in columns as wide as their headings say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from rankscope.formats.nvprof_log import Log
from rankscope.formats.printed import Printed, count
from rankscope.readers.gpu_trace import Activity, Trace
from rankscope.readers.units import rate_bytes, size_bytes, time_ns

HEAD = re.compile(r"\s*Start\s+Duration\s+(?:Grid Size\s|Name\s*$)")
TITLE = re.compile(r"\S+(?: \S+)*")
CORRELATED = re.compile(r"(.*\S)\s\[(\d{1,18})\]\s*", re.DOTALL)
NOTHING = ("", "-")
TOLERANCE = Decimal("0.02")  # between size ÷ duration and the printed throughput
BASES = (1024, 1000)  # of KB: nvprof counted by thousands before CUDA 8
SECOND_NS = Decimal(10**9)


def is_head(line: str) -> bool:
    return HEAD.match(line) is not None


@dataclass(slots=True)
class TextTrace:
    """An open trace table."""

    log: Log
    spans: dict[str, tuple[int, int]]
    name_at: int

    def take(self, number: int, line: str) -> bool:
        """Take the line if it begins with two times."""
        cells = self._cells(line)
        if cells is None:
            return False
        trace = self.log.profile(number).trace
        activity = activity_of(cells, {}, trace, number)
        if activity is not None:
            trace.add(activity, number)
        return activity is not None

    def _cells(self, line: str) -> dict[str, str] | None:
        cells = {title: line[first:last].strip() for title, (first, last) in self.spans.items()}
        cells["Name"] = line[self.name_at :].strip()
        straight = all(line[last : last + 1] in (" ", "") for _, last in self.spans.values())
        whole = not any("  " in cells[title] for title in self.spans)
        if straight and whole and time_ns(cells["Start"]) and time_ns(cells["Duration"]):
            return cells
        return self._cells_by_gaps(line)

    def _cells_by_gaps(self, line: str) -> dict[str, str] | None:
        """A cell wider than its column moves all that follow: then only the gaps tell the columns."""
        parts = re.split(r" {2,}|\t+", line.strip(), maxsplit=len(self.spans))
        if len(parts) != len(self.spans) + 1 or not (time_ns(parts[0]) and time_ns(parts[1])):
            return None
        return dict(zip([*self.spans, "Name"], parts, strict=True))


def table(line: str, log: Log) -> TextTrace:
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


def activity_of(cells: dict[str, str], units: dict[str, str], trace: Trace, line: int) -> Activity | None:
    """One row of a trace, text or csv; None where the times are none."""
    start = time_ns(cells.get("Start", ""), units.get("Start", ""))
    duration = time_ns(cells.get("Duration", ""), units.get("Duration", ""))
    if start is None or duration is None:
        return None
    name, correlation = _name(cells)
    device = cells.get("Device", "")
    layer, group = ("cuda_api", "") if device in NOTHING else ("gpu", _group(cells))
    size, odd = _bytes(cells, units, duration)
    if odd:
        trace.odd(line, f"{name[:60]}: {odd}")
    return Activity(layer, name, group, int(start.value), int(duration.value), size, correlation)


def _name(cells: dict[str, str]) -> tuple[str, int | None]:
    """The name, and the call it belongs to, which a text trace writes behind a kernel's name."""
    name = cells.get("Name", "")
    told = count(cells.get("Correlation_ID", ""))
    found = CORRELATED.fullmatch(name) if told is None and not name.startswith("[") else None
    return (found[1], int(found[2])) if found else (name, told)


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
        return None, f"{texts[0]!r} is no size"
    return int(size.value), f"{texts[0]}{texts[1]} in {int(duration.value)} ns is not {rates[0]}{rates[1]}"


def _agree(size: Printed, rate: Printed, duration: Printed) -> bool:
    if not duration.value:
        return True
    made = size.value * SECOND_NS / duration.value
    slack = TOLERANCE + size.step / max(size.value, size.step) + duration.step / duration.value
    return abs(made - rate.value) <= slack * made + rate.step
