"""Who is speaking in an nvprof log: processes, their results, and the ranges they are told by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rankscope.formats.block_file import BlockFile, Waiting
from rankscope.formats.event_columns import OtherLines
from rankscope.formats.source import Source
from rankscope.formats.summary_table import ProfileSection, check, each_tally, shares_of, unlisted
from rankscope.formats.sums import TraceColumns
from rankscope.model.records import Figure, Group, Layer, Note, RangeTally, RankFacts, Reading, Role, Severity, Tally

TAG = re.compile(r"={2,8}(\d{0,10})={2,8} (.*)")
STARTED = re.compile(r"NVPROF is profiling process (\d{1,10})(?:, command: (.*))?")
PLACE = re.compile(r'\s+(Thread|Domain|Range) "(.*)"(?: \(id = (\d{1,18})\))?\s*')
LOSS = re.compile(r"not recorded|not collected|invalid|insufficient|dropped|lost|overflow|out of memory", re.I)
WARM_UP = re.compile(r"\bwarm[- ]?up\b.{0,40}\b(?:done|finish|finished|complete|completed|over|end|ended)\b", re.I)
LAYERS = {"GPU activities": Layer.GPU, "API calls": Layer.CUDA_API, "Range": Layer.NVTX}
OWN_WORDS = re.compile(
    r"\s*(?:No (?:kernels|API activities|CUDA activities) were profiled|(?:Regs|[SD]SMem|(?:Src|Dst)MemType): )"
)
UNREAD = (
    "Unified Memory profiling result",
    "Metric result:",
    "Event result:",
    "Source-Level Analysis result:",
    "OpenACC",
    "CPU profiling result",
)
MOST_NOTES = 50
OPEN_SECTIONS = 4  # of one process, whose rows may still come in turns
READING_BLOCKS = 5  # of records: so many go into one reading


class OpenTable(Protocol):
    """A table whose rows are being read."""

    def take(self, number: int, line: str) -> bool: ...


class Summary:
    """What the summaries of one process say; a section becomes records as soon as no row of it can follow."""

    __slots__ = ("_file", "_open", "_records", "_source", "layers")

    def __init__(self, file: BlockFile, source: Source) -> None:
        self.layers: set[str] = set()
        self._file, self._source = file, source
        self._open: list[ProfileSection] = []
        self._records: Waiting[Tally | RangeTally | Note | Figure] = Waiting(file)

    def section(self, title: str, layer: str, group: str, within: str, thread: int) -> ProfileSection:
        """Where the next row belongs: every NVTX range is a section of its own."""
        key = (layer, group, within, thread)
        for section in self._open:
            if (section.layer, section.group, section.within, section.thread) == key and layer != Layer.NVTX:
                return section
        if len(self._open) >= OPEN_SECTIONS:
            self._close(self._open.pop(0))
        self.layers.add(layer)
        self._open.append(ProfileSection(title, *key, rows=Waiting(self._file)))
        return self._open[-1]

    def set_down(self) -> None:
        """Another process speaks: keep nothing of this one in memory."""
        for section in self._open:
            self._close(section)
        self._open = []
        self._records.set_down()

    def _close(self, section: ProfileSection) -> None:
        shares = shares_of(section.rows)
        for records in (each_tally(section), check(section, self._source, shares), unlisted(section, shares)):
            for record in records:
                self._records.append(record)

    def fill(self, reading: Reading) -> Iterator[Reading]:
        """The reading with the first of the records, and then others with the rest."""
        self.set_down()
        for at, block in enumerate(self._records.blocks(), start=1):
            _add(reading, block)
            if at % READING_BLOCKS == 0:
                yield reading
                reading = Reading(reading.facts, continues=True)
        yield reading


def _add(reading: Reading, records: list[Tally | RangeTally | Note | Figure]) -> None:
    lists: dict[type, list[Any]] = {
        Tally: reading.tallies,
        RangeTally: reading.range_tallies,
        Note: reading.notes,
        Figure: reading.figures,
    }
    for record in records:
        lists[type(record)].append(record)


@dataclass(slots=True)
class ProfiledProcess:
    """One profiled process."""

    facts: RankFacts
    first_line: int
    summary: Summary
    turn: int = 0  # which of several runs, one after the other, it belongs to
    trace: TraceColumns | None = None
    threads: dict[int, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    told_line: int = 0  # of its first result; 0: none was found

    def has_gpu(self) -> bool:
        """Whether anything ran on a device."""
        return Layer.GPU in self.summary.layers or (self.trace is not None and Layer.GPU in self.trace.layers())

    def note(self, text: str, severity: Severity, where: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(Note(text, severity, where))


class NvprofLog:
    """The state of reading one log."""

    def __init__(self, source: Source) -> None:
        self.source, self._file = source, BlockFile()
        self.other = OtherLines(source)
        self.profiles: list[ProfiledProcess] = []
        self.table: OpenTable | None = None
        self.in_summary = False
        self.kind = ""  # of the rows that follow: GPU activities, API calls, Range
        self.thread, self.domain, self.range = 0, "", ""
        self.in_ranges = False
        self._by_pid: dict[int | None, ProfiledProcess] = {}
        self._now: ProfiledProcess | None = None
        self._going: set[int | None] = set()
        self._turn = 0
        self._warmed: set[int] = set()  # turns whose program told of a warm-up

    def profile(self, number: int) -> ProfiledProcess:
        """The process whose result is being told; a log may hold nothing but a table."""
        if self._now is None:
            self._now = self._process(None, number)
        self._now.told_line = self._now.told_line or number
        return self._now

    def open_summary(self, typed: bool) -> None:
        """A summary's heading; before CUDA 8 it had no column for the kind."""
        self.table, self.in_summary = None, True
        if typed or self.kind != "API calls":
            self.kind = "" if typed else "GPU activities"

    def open_table(self, table: OpenTable) -> None:
        self.table, self.in_summary = table, False

    def tell_unreadable(self, number: int, text: str) -> None:
        """A row whose cells are none; where there are many, how many."""
        profile = self.profile(number)
        if len(profile.notes) < MOST_NOTES:
            profile.note(f"a row of the table cannot be read: {text}", Severity.WARNING, self.source.at(number))
        else:
            self.other.add(number, text)

    def section(self, number: int) -> ProfileSection:
        """Where the next row of a summary belongs."""
        layer = LAYERS.get(self.kind, _layer(self.kind))
        group = self.domain if layer == Layer.NVTX else ""
        within = f"{self.domain}/{self.range}" if self.in_ranges and layer != Layer.NVTX else ""
        return self.profile(number).summary.section(self.kind, layer, group, within, self.thread)

    def trace(self, number: int) -> TraceColumns:
        """Where the next row of a trace belongs."""
        profile = self.profile(number)
        if profile.trace is None:
            profile.trace = TraceColumns(self._file)
        return profile.trace

    def take_tag(self, number: int, line: str) -> bool:
        """A line that nvprof marks as its own by ==PID==."""
        match = TAG.match(line)
        if match is None:
            return False
        pid, text = int(match[1]) if match[1] else None, match[2]
        place = PLACE.fullmatch(text)
        if place is not None:
            self._enter(place[1], place[2], int(place[3] or 0))
        else:
            self._hear(number, pid, text)
        return True

    def _enter(self, level: str, name: str, thread: int) -> None:
        if level == "Thread":
            self.thread, self.domain, self.range = thread, "", ""
            if self._now is not None and name != "<unnamed>":
                self._now.threads[thread] = name
        elif level == "Domain":
            self.domain, self.range = name, ""
        else:
            self.range = name

    def _hear(self, number: int, pid: int | None, text: str) -> None:
        started = STARTED.match(text)
        if started is not None:
            self._start(int(started[1]), started[2] or "", number)
            return
        profile = self._by_pid.get(pid) or self._process(pid, number)
        if text.startswith("Profiling application: "):
            profile.facts.command = profile.facts.command or text.partition(": ")[2]
        elif text.rstrip().endswith("result:") or text.startswith("API calls:"):
            self._result(profile, pid, text, number)
        elif text.startswith(("Warning: ", "Error: ")):
            severity = Severity.WARNING if LOSS.search(text) or text[0] == "E" else Severity.NOTE
            profile.note(f"nvprof says: {text}", severity, self.source.at(number))
        else:
            self.other.add(number, text)

    def _result(self, profile: ProfiledProcess, pid: int | None, text: str, number: int) -> None:
        if self._now is not None and self._now is not profile:
            self._now.summary.set_down()
        self._now, self.table, self.in_summary = profile, None, False
        self._going.discard(pid)
        self.in_ranges = text.startswith("NVTX result")
        self.thread, self.domain, self.range = 0, "", ""
        self.kind = "API calls" if text.startswith("API calls") else ""
        profile.told_line = profile.told_line or number
        if text.startswith(UNREAD):
            profile.note(f"not read: {text.rstrip(':')}", Severity.NOTE, self.source.at(number))

    def _start(self, pid: int, command: str, number: int) -> None:
        if self.profiles and not self._going:
            self._turn += 1  # all that had begun has ended: another run
        self._going.add(pid)
        self._process(pid, number).facts.command = command

    def _process(self, pid: int | None, number: int) -> ProfiledProcess:
        summary = Summary(self._file, self.source)
        profile = ProfiledProcess(RankFacts(pid=pid, source=str(self.source.path)), number, summary, self._turn)
        self.profiles.append(profile)
        self._by_pid[pid] = profile
        return profile

    def take_other(self, number: int, line: str) -> None:
        """What the profiled program prints; only one thing in it matters here."""
        if not OWN_WORDS.match(line):
            self.other.add(number, line)
        if self._going and self._turn not in self._warmed and len(line) < 1000 and WARM_UP.search(line):
            self._warmed.add(self._turn)
            where = self.source.at(number)
            text = f"the program mentions a warm-up ({line.strip()[:60]!r}) while it was profiled"
            for profile in self.profiles:
                if profile.turn == self._turn:
                    profile.note(f"{text}: warm-up and measured pass are mixed in its figures", Severity.WARNING, where)

    def readings(self) -> Iterator[Reading]:
        """All processes, with the ranks they can be given."""
        if not any(profile.summary.layers or profile.trace for profile in self.profiles):
            raise self.source.bad("has no table of nvprof")
        number_ranks(self.profiles, self.source)
        in_order = sorted(self.profiles, key=lambda profile: profile.told_line or profile.first_line)
        yield from self.other.told_with_last(
            reading for profile in in_order for reading in readings(profile, self.source)
        )


def _layer(kind: str) -> str:
    return re.sub(r"\W+", "_", kind.lower()).strip("_") or Layer.GPU


def number_ranks(profiles: list[ProfiledProcess], source: Source) -> None:
    """nvprof does not know ranks: the processes that used a device are counted, run by run, by pid."""
    counted = [profile for profile in profiles if profile.has_gpu()] or list(profiles)
    for profile in profiles:
        profile.facts.role = Role.HELPER
    for profile in counted:
        profile.facts.role = Role.RANK
    if len(counted) == 1:
        counted[0].facts.rank = source.hints.rank
        return
    counted.sort(key=lambda profile: (profile.turn, profile.facts.pid or 0))
    sizes = Counter(profile.turn for profile in counted)
    for rank, profile in enumerate(counted):
        profile.facts.rank, profile.facts.rank_source = rank, "order of pids"
        profile.facts.world_size = sizes[profile.turn]


def readings(profile: ProfiledProcess, source: Source) -> Iterator[Reading]:
    """What one process gives: a long summary or trace in several readings."""
    reading = Reading(profile.facts, notes=list(profile.notes))
    reading.groups = [Group(name, str(thread), "thread") for thread, name in sorted(profile.threads.items())]
    if not profile.told_line:
        text = "its profile begins here, but this file has no result for it"
        reading.notes.append(Note(text, Severity.WARNING, source.at(profile.first_line)))
    blocks: Iterator[Mapping[str, Any]] = iter(())
    if profile.trace is not None:
        blocks = profile.trace.blocks()
        reading.tallies = [tally for tally in profile.trace.tallies() if tally.layer not in profile.summary.layers]
        reading.event_columns = next(blocks, {})
        reading.notes += profile.trace.notes(source)
    yield from profile.summary.fill(reading)
    for block in blocks:
        yield Reading(profile.facts, continues=True, event_columns=block)
