"""Who is speaking in an nvprof log: processes, their results, and the ranges they are told by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from rankscope.formats.source import Source
from rankscope.formats.summary_table import ProfileSection, check, range_tallies, tallies, unlisted
from rankscope.formats.sums import TraceColumns
from rankscope.model.records import Group, Layer, Note, RankFacts, Reading, Role, Severity

TAG = re.compile(r"={2,8}(\d{0,10})={2,8} (.*)")
STARTED = re.compile(r"NVPROF is profiling process (\d{1,10})(?:, command: (.*))?")
PLACE = re.compile(r'\s+(Thread|Domain|Range) "(.*)"(?: \(id = (\d{1,18})\))?\s*')
LOSS = re.compile(r"not recorded|not collected|invalid|insufficient|dropped|lost|overflow|out of memory", re.I)
WARM_UP = re.compile(r"\bwarm[- ]?up\b.{0,40}\b(?:done|finish|finished|complete|completed|over|end|ended)\b", re.I)
LAYERS = {"GPU activities": Layer.GPU, "API calls": Layer.CUDA_API, "Range": Layer.NVTX}
UNREAD = (
    "Unified Memory profiling result",
    "Metric result:",
    "Event result:",
    "Source-Level Analysis result:",
    "OpenACC",
    "CPU profiling result",
)
MOST_NOTES = 50


class OpenTable(Protocol):
    """A table whose rows are being read."""

    def take(self, number: int, line: str) -> bool: ...


@dataclass(slots=True)
class ProfiledProcess:
    """One profiled process."""

    facts: RankFacts
    first_line: int
    turn: int = 0  # which of several runs, one after the other, it belongs to
    sections: list[ProfileSection] = field(default_factory=list)
    trace: TraceColumns = field(default_factory=TraceColumns)
    threads: dict[int, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    told_line: int = 0  # of its first result; 0: none was found

    def has_gpu(self) -> bool:
        """Whether anything ran on a device."""
        return any(section.layer == Layer.GPU for section in self.sections) or Layer.GPU in self.trace.layers()

    def note(self, text: str, severity: Severity, where: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(Note(text, severity, where))


class NvprofLog:
    """The state of reading one log."""

    def __init__(self, source: Source) -> None:
        self.source = source
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

    def section(self, number: int) -> ProfileSection:
        """Where the next row belongs."""
        profile, layer = self.profile(number), LAYERS.get(self.kind, _layer(self.kind))
        group = self.domain if layer == Layer.NVTX else ""
        within = f"{self.domain}/{self.range}" if self.in_ranges and layer != Layer.NVTX else ""
        key = (layer, group, within, self.thread)
        for section in profile.sections[-4:]:
            if (section.layer, section.group, section.within, section.thread) == key and layer != Layer.NVTX:
                return section
        profile.sections.append(ProfileSection(self.kind, *key))
        return profile.sections[-1]

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

    def _result(self, profile: ProfiledProcess, pid: int | None, text: str, number: int) -> None:
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
        profile = ProfiledProcess(RankFacts(pid=pid, source=str(self.source.path)), number, self._turn)
        self.profiles.append(profile)
        self._by_pid[pid] = profile
        return profile

    def take_other(self, number: int, line: str) -> None:
        """What the profiled program prints; only one thing in it matters here."""
        if self._going and self._turn not in self._warmed and len(line) < 1000 and WARM_UP.search(line):
            self._warmed.add(self._turn)
            where = self.source.at(number)
            text = f"the program mentions a warm-up ({line.strip()[:60]!r}) while it was profiled"
            for profile in self.profiles:
                if profile.turn == self._turn:
                    profile.note(f"{text}: warm-up and measured pass are mixed in its figures", Severity.WARNING, where)

    def readings(self) -> Iterator[Reading]:
        """All processes, with the ranks they can be given."""
        if not any(profile.sections or len(profile.trace) for profile in self.profiles):
            raise self.source.bad("holds no table of nvprof")
        number_ranks(self.profiles, self.source)
        for profile in sorted(self.profiles, key=lambda profile: profile.told_line or profile.first_line):
            yield from readings(profile, self.source)


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
    """What one process gives: all but the events of a long trace at once."""
    blocks = profile.trace.blocks()
    reading = Reading(profile.facts, notes=list(profile.notes))
    for section in profile.sections:
        if section.within:
            reading.range_tallies += range_tallies(section)
        else:
            reading.tallies += tallies(section)
        reading.notes += check(section, source)
        reading.figures += unlisted(section)
    summed = {section.layer for section in profile.sections}
    reading.tallies += [tally for tally in profile.trace.tallies() if tally.layer not in summed]
    reading.event_columns = next(blocks, {})
    reading.notes += profile.trace.notes(source)
    reading.groups = [Group(name, str(thread), "thread") for thread, name in sorted(profile.threads.items())]
    if not profile.told_line:
        text = "its profile begins here, but no result of it is in this file"
        reading.notes.append(Note(text, Severity.WARNING, source.at(profile.first_line)))
    yield reading
    for block in blocks:
        yield Reading(profile.facts, continues=True, event_columns=block)
