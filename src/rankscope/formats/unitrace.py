"""Text of Intel's unitrace: host calls (-h), kernels and copies (-d, -s), kernels' properties, the timeline (-t)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from rankscope.formats.event_columns import EventColumns, UnreadLines
from rankscope.formats.printed import Printed, count, number
from rankscope.formats.source import Source
from rankscope.formats.summary_table import ProfileSection, Row, check, tallies
from rankscope.model.records import Figure, Layer, Note, RankFacts, Reading, Severity

TITLE = re.compile(r"=== (API Timing|Device Timing|Kernel Submission) Summary ===|=== (Kernel Properties) ===")
BACKEND = re.compile(r"== (L0|CL CPU|CL GPU) Backend ==")
TOTAL = re.compile(r"\s*Total (Execution|API|Device) Time(?: for (L0|CL CPU|CL GPU) backend)? \(ns\):\s+(\d{1,18})\s*$")
TIMELINE = re.compile(
    r"Thread (\d{1,18}) Device (\d{1,20}) : (.{1,100000}) \[ns\] "
    r"(\d{1,19}) \(append\) (\d{1,19}) \(submit\) (\d{1,19}) \(start\) (\d{1,19}) \(end\)\s*$"
)
SNIFFED = re.compile(
    rb"^=== (?:API Timing|Device Timing|Kernel Submission) Summary ===\r?$"
    rb"|^Thread \d{1,18} Device \d{1,20} : .{1,100000} \[ns\] \d{1,19} \(append\)",
    re.M,
)
SHAPE = re.compile(r"\[(?:SIMD\w{1,5} )?\{[^\]]{1,80}\]$")  # of a kernel: SIMD width, groups, their size
SIZE = re.compile(r"\[(\d{1,18})\]$")  # of a copy, in bytes
LAYERS = {"L0": Layer.ZE, "CL CPU": Layer.OPENCL, "CL GPU": Layer.OPENCL}
TIMING = ("Calls", "Time (ns)", "Time (%)", "Average (ns)", "Min (ns)", "Max (ns)")
SUBMISSION = ("Calls", "Append (ns)", "Append (%)", "Submit (ns)", "Submit (%)", "Execute (ns)", "Execute (%)")
PROPERTIES = (
    "Compiled",
    "SIMD",
    "Number of Arguments",
    "SLM Per Work Group",
    "Private Memory Per Thread",
    "Spill Memory Per Thread",
    "Register File Size Per Thread",
)
BYTES_OF = ("SLM Per Work Group", "Private Memory Per Thread", "Spill Memory Per Thread")
MOST_ROWS = 500_000


def sniff(head: bytes) -> bool:
    """One of its titles, or a line of its timeline."""
    return SNIFFED.search(head) is not None


@dataclass(slots=True)
class Table:
    """The table whose rows are being read."""

    title: str
    columns: tuple[str, ...]
    section: ProfileSection


@dataclass(slots=True)
class UnitraceText:
    """What the file has told so far."""

    source: Source
    title: str = ""
    backend: str = ""
    table: Table | None = None
    sections: list[ProfileSection] = field(default_factory=list)
    submissions: list[ProfileSection] = field(default_factory=list)
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)  # by section and line: bytes of a copy
    totals: list[tuple[int, str, str, int]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    events: EventColumns = field(default_factory=EventColumns)
    devices: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    bad: UnreadLines = field(default_factory=lambda: UnreadLines("of tables cannot be read", Severity.WARNING))
    other: UnreadLines = field(default_factory=UnreadLines)

    def take(self, line: int, text: str) -> None:
        """One line: every one is in a table, or counted as not understood."""
        bare = text.strip()
        if not bare:
            return
        if match := TIMELINE.match(text):
            self._activity(match)
        elif match := TITLE.fullmatch(bare):
            self.title, self.backend, self.table = match[1] or match[2], "", None
        elif match := BACKEND.fullmatch(bare):
            self.backend, self.table = match[1], None
        elif match := TOTAL.match(text):
            self.totals.append((line, match[1], match[2] or "", int(match[3])))
        elif self.title and (opened := self._head(bare)):
            self.table = opened
        elif self.table is not None and self._row(line, text):
            self.rows += 1
            if self.rows > MOST_ROWS:
                raise self.source.bad(f"more than {MOST_ROWS} rows: not a summary of unitrace", line)
        elif self.table is not None and text.count(",") >= len(self.table.columns):
            self.bad.add(line)
        else:
            self.other.add(line)

    # ------------------------------------------------------------ tables
    def _head(self, text: str) -> Table | None:
        cells = tuple(cell.strip() for cell in text.split(","))
        if cells[0] not in ("Function", "Kernel") or cells[1:] not in (TIMING, SUBMISSION, PROPERTIES):
            return None
        layer = LAYERS.get(self.backend, Layer.HOST) if cells[0] == "Function" else Layer.GPU
        group = self.backend if layer == Layer.OPENCL else ""
        section = ProfileSection(f"{self.title} of {self.backend or 'unitrace'}", layer, group)
        if cells[1:] == TIMING:
            self.sections.append(section)
        elif cells[1:] == SUBMISSION:
            self.submissions.append(section)
        return Table(self.title, cells[1:], section)

    def _row(self, line: int, text: str) -> bool:
        """Names may hold commas, so the cells are counted from the right."""
        assert self.table is not None
        columns = self.table.columns
        name, *cells = (cell.strip() for cell in text.rsplit(",", len(columns)))
        if len(cells) != len(columns) or not name:
            return False
        name = name[1:-1] if len(name) > 1 and name[0] == name[-1] == '"' else name
        if columns == PROPERTIES:
            return self._properties(name, cells)
        calls = count(cells[0])
        values = [number(cell) for cell in cells[1:]]
        if calls is None or any(value is None or value.value < 0 for value in values):
            return False
        row = self._timing(name, line, calls, [value for value in values if value is not None], columns)
        self.table.section.rows.append(row)
        return True

    def _timing(self, name: str, line: int, calls: int, values: list[Printed], columns: tuple[str, ...]) -> Row:
        assert self.table is not None
        if self.table.section.layer == Layer.GPU:
            name, size = _bare(name)
            if size is not None:
                self.sizes[id(self.table.section), line] = size
        if columns == TIMING:
            total, share, mean, least, most = values
            return Row(name, line, share, total, calls, mean, least, most)
        append, _, submit, _, execute, share = values
        for what, value in (("append", append), ("submit", submit)):
            self.figures.append(Figure(name, f"{what} time", float(value.value), "ns", statistic="total"))
        return Row(name, line, share, execute, calls, None, None, None)

    def _properties(self, name: str, cells: list[str]) -> bool:
        if cells[0] not in ("JIT", "AOT"):
            return False
        for column, cell in zip(PROPERTIES[1:], cells[1:], strict=True):
            value = number(cell)
            if value is None and cell not in ("ANY", "unknown"):
                return False
            if value is not None:
                unit = "bytes" if column in BYTES_OF else "count"
                self.figures.append(Figure(_bare(name)[0], column, float(value.value), unit))
        return True

    # ------------------------------------------------------------ the timeline
    def _activity(self, match: re.Match[str]) -> None:
        thread, device, name, _append, _submit, start, end = match.groups()
        name = name.strip()
        name = name[1:-1] if len(name) > 1 and name[0] == name[-1] == '"' else name
        name, size = _bare(name)
        place = self.devices.setdefault(device, len(self.devices))
        self.events.add(Layer.GPU, name, int(start), int(end), f"{place}/?", int(thread), size)

    # ------------------------------------------------------------ all of it
    def readings(self) -> Iterator[Reading]:
        if not self.sections and not self.submissions and not len(self.events):
            raise self.source.bad("has no table or timeline of unitrace")
        facts = RankFacts(rank=self.source.hints.rank, source=str(self.source.path))
        facts.devices = ", ".join(f"GPU {place} ({device})" for device, place in self.devices.items())
        reading = Reading(facts, figures=self.figures)
        timed = {section.layer for section in self.sections}
        for section in (
            *self.sections,
            *(submission for submission in self.submissions if submission.layer not in timed),
        ):
            section_tallies = tallies(section)
            for tally, row in zip(section_tallies, section.rows, strict=True):
                size = self.sizes.get((id(section), row.line))
                tally.bytes = None if size is None else min(size * (tally.calls or 0), 2**63 - 1)
            reading.tallies += section_tallies
            reading.notes += check(section, self.source)
        reading.notes += self._check_totals()
        if len(self.events):
            text = "times of the timeline count from the start of the machine, not from 1970"
            reading.notes.append(Note(text, where=str(self.source)))
        reading.notes += [*self.events.notes(self.source), *self.bad.notes(self.source), *self.other.notes(self.source)]
        blocks = self.events.blocks()
        reading.event_columns = next(blocks, {})
        yield reading
        for block in blocks:
            yield Reading(facts, continues=True, event_columns=block)

    def _check_totals(self) -> Iterator[Note]:
        """The printed sums of a backend against its rows; the time of the whole run is a figure."""
        for line, what, backend, total_ns in self.totals:
            if what == "Execution":
                self.figures.append(Figure("unitrace", "execution time", float(total_ns), "ns", statistic="total"))
                continue
            wanted = f"{what} Timing of {backend}"
            sections = [section for section in self.sections if section.title == wanted]
            summed = sum((row.total.value for section in sections for row in section.rows if row.total), Decimal(0))
            if sections and summed != total_ns:
                text = f"{what} time of {backend}: {total_ns} ns is printed, but the rows add up to {summed} ns"
                yield Note(text, Severity.WARNING, self.source.at(line))


def _bare(name: str) -> tuple[str, int | None]:
    """The name of a kernel without its shape, that of a copy without its size, and that size."""
    if match := SIZE.search(name):
        return name[: match.start()], int(match[1])
    return SHAPE.sub("", name), None


def read(source: Source) -> Iterator[Reading]:
    """One reading: unitrace writes a file for each process."""
    trace = UnitraceText(source)
    for line, text in source.lines():
        trace.take(line, text)
    yield from trace.readings()
