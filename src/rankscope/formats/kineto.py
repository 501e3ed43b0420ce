"""Traces of the PyTorch profiler (Kineto): Chrome JSON, streamed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.formats.json_stream import TraceStream
from rankscope.formats.kineto_columns import UNNAMED, KinetoColumns, columns_of, rows_in
from rankscope.formats.kineto_events import (
    MEMORY,
    NO_TIME,
    Ints,
    TraceEvent,
    add_memory,
    decode,
    groups_of,
    nanoseconds,
    take_facts,
    text,
    unnamed_group,
    whole_number,
)
from rankscope.formats.source import Source
from rankscope.model.gpu import DeviceTotals
from rankscope.model.records import API_LAYERS, Layer, Note, RankFacts, Reading, Severity

# ---------------------------------------------------------------------------------------------------------------------
# Which GPU activities have their launching call in the trace?
RANGE = 1 << 24  # of correlation ids: a longer trace than anybody can load into a viewer
BEFORE_FIRST = 1 << 20  # ids may come in any order


def _none() -> NDArray[np.bool_]:
    return np.zeros(RANGE, np.bool_)  # takes memory only where it is written


@dataclass(slots=True)
class LaunchCalls:
    """Correlation ids seen on the device and on the host, those near the first one."""

    offset: int | None = None
    on_device: NDArray[np.bool_] = field(default_factory=_none)
    on_host: NDArray[np.bool_] = field(default_factory=_none)

    def add(self, device_ids: Ints, host_ids: Ints) -> None:
        for ids, seen in ((device_ids, self.on_device), (host_ids, self.on_host)):
            ids = ids[ids > 0]
            if self.offset is None and len(ids):
                self.offset = int(ids[0]) - BEFORE_FIRST
            places = ids - (self.offset or 0)
            seen[places[(places >= 0) & (places < RANGE)]] = True

    def missing(self) -> tuple[int, int]:
        """How many ids of the device have no call, and how many there are; none where no calls were recorded at all."""
        if not self.on_host.any():
            return 0, 0
        return int((self.on_device & ~self.on_host).sum()), int(self.on_device.sum())


# ---------------------------------------------------------------- kineto
OURS = re.compile(
    rb'"(deviceProperties|distributedInfo|cpu_op|cuda_runtime|user_annotation|Ev Idx|baseTimeNanoseconds)"'
    rb'|"cat"\s*:\s*"(Operator|Runtime|Kernel)"'
)
IN_A_LIST = re.compile(rb'"ph"\s*:\s*"[A-Za-z]"')
BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
END_BYTES = 256 << 10  # at the end of a file, where some versions write the base time
LARGEST_BASE_NS = 2**61  # 73 years, so that added to the largest time it still fits
UNIX_FROM_US = 10**14  # 1973: smaller times count from the base time


def sniff(head: bytes) -> bool:
    """An object with Kineto's members, or trace events in its categories, with or without an object around them."""
    start = head.lstrip()[:4096]
    if start.startswith(b"["):
        return IN_A_LIST.search(start) is not None and OURS.search(head) is not None
    if not start.startswith(b"{") or (b'"traceEvents"' not in head and b'"schemaVersion"' not in start):
        return False
    return OURS.search(head) is not None


def read(source: Source, python_functions: bool = False) -> Iterator[Reading]:
    """One process, in blocks; all blocks share its facts, which are complete with the last one."""
    stream = TraceStream(source, decode)
    trace = KinetoTrace(source, python_functions)
    for events in stream.blocks():
        if trace.base_ns is None:
            trace.begin(stream.before, events)
        yield trace.reading(events)
    if trace.events == 0 and stream.broken:
        raise source.bad(stream.broken)
    yield trace.end(stream)


@dataclass(slots=True)
class KinetoTrace:
    """What is known of a trace while it is read."""

    source: Source
    python_functions: bool
    facts: RankFacts = field(default_factory=RankFacts)
    base_ns: int | None = None
    readings: int = 0
    events: int = 0
    left_out: int = 0  # Python functions
    bad_times: int = 0
    first_ns: int = 2**63 - 1
    last_ns: int = -(2**63)
    window_ns: tuple[int, int] | None = None  # what the profiler says it recorded
    host_pids: set[int] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    launches: LaunchCalls = field(default_factory=LaunchCalls)
    memory: dict[int, DeviceTotals] = field(default_factory=dict)
    unnamed: set[str] = field(default_factory=set)  # groups of collectives of which the trace does not tell the group

    def begin(self, members: dict[str, object], events: Sequence[TraceEvent]) -> None:
        self.facts.source = str(self.source)
        self.facts.rank = self.source.hints.rank
        self.facts.rank_source = "" if self.facts.rank is None else "--rank"
        take_facts(self.facts, members)
        told_ns = whole_number(members.get("baseTimeNanoseconds"))
        self.base_ns = self._base_at_end(events) if told_ns is None else min(max(told_ns, 0), LARGEST_BASE_NS)

    def _base_at_end(self, events: Sequence[TraceEvent]) -> int:
        """Only times that do not count from 1970 need it: then the file is read to its end first."""
        times = nanoseconds([event.ts for event in events[:100] if event.dur is not None])
        if not len(times) or int(times.max()) >= UNIX_FROM_US * 1000:
            return 0
        bases = BASE.findall(_end_of(self.source))
        if not bases:
            self.notes.append(
                Note("times are not Unix times, and the file does not give their origin", where=str(self.source))
            )
        return min(int(bases[-1]), LARGEST_BASE_NS) if bases else 0

    def reading(self, events: Sequence[TraceEvent]) -> Reading:
        spans = self._spans(events)
        columns = columns_of(spans, self.base_ns or 0)
        good = np.flatnonzero((columns.start_ns != NO_TIME) & (columns.end_ns >= columns.start_ns))
        self._count(columns, good)
        self.unnamed.update(name for name in UNNAMED.values() if name in columns.group.values)
        reading = Reading(self.facts, continues=self.readings > 0)
        reading.event_columns = columns.event_columns(good) if len(good) else {}
        self.readings += 1
        return reading

    def _spans(self, events: Sequence[TraceEvent]) -> list[TraceEvent]:
        for event in events:
            if event.dur is None and event.args is not None:
                self._take_undated(event)
            elif event.cat == "Trace" and event.dur is not None:
                self._take_window(event)
        spans = [event for event in events if event.dur is not None and event.cat != "Trace"]
        if self.python_functions:
            return spans
        wanted = [span for span in spans if span.cat != "python_function"]
        self.left_out += len(spans) - len(wanted)
        return wanted

    def _take_undated(self, event: TraceEvent) -> None:
        if event.name == MEMORY and event.args is not None:
            add_memory(self.memory, event.args)
        elif not event.cat:
            self._take_metadata(event)

    def _take_metadata(self, event: TraceEvent) -> None:
        pid = whole_number(event.pid)
        if event.args is None or pid is None:
            return
        if event.name == "process_labels" and event.args.labels == "CPU":
            self.host_pids.add(pid)
            self.facts.pid = pid
        if event.name == "process_name" and not self.facts.executable:
            self.facts.executable = text(event.args.name)

    def _take_window(self, event: TraceEvent) -> None:
        start_ns, length_ns = nanoseconds([event.ts, event.dur]).tolist()
        if start_ns != NO_TIME and length_ns >= 0:
            self.window_ns = start_ns + (self.base_ns or 0), length_ns

    def _count(self, columns: KinetoColumns, good: Ints) -> None:
        self.events += len(good)
        self.bad_times += len(columns.start_ns) - len(good)
        if len(good):
            self.first_ns = min(self.first_ns, int(columns.start_ns[good].min()))
            self.last_ns = max(self.last_ns, int(columns.end_ns[good].max()))
        self.launches.add(*(columns.correlation[rows_in(columns, *layers)] for layers in ((Layer.GPU,), API_LAYERS)))

    def end(self, stream: TraceStream[TraceEvent]) -> Reading:
        """The last block: no events, but what only the whole file tells."""
        if self.base_ns is None:
            self.begin(stream.before, [])
        take_facts(self.facts, stream.after)
        self._complain(stream)
        reading = Reading(self.facts, continues=self.readings > 0, notes=self.notes)
        reading.devices = list(self.memory.values())
        groups = groups_of(stream.before, self.facts.rank) + groups_of(stream.after, self.facts.rank)
        reading.groups = groups + [unnamed_group(name, groups, self.facts) for name in sorted(self.unnamed)]
        return reading

    def _complain(self, stream: TraceStream[TraceEvent]) -> None:
        if stream.broken:
            self._warn(f"{stream.broken}; {self.events} events before that are kept")
        if stream.bad_events:
            self._warn(f"{stream.bad_events} damaged events left out, the first at byte {stream.first_bad_byte}")
        if self.bad_times:
            self._warn(f"{self.bad_times} events left out: they end before they start, or their times are not numbers")
        if self.left_out:
            self._tell(f"{self.left_out} calls of Python functions left out")
        if len(self.host_pids) > 1:
            self._warn(f"events of {len(self.host_pids)} processes in one trace, shown as one")
        self._check_window()
        missing, seen = self.launches.missing()
        if missing:
            self._tell(f"{missing} of {seen} launches of GPU activities have no call in the trace")

    def _check_window(self) -> None:
        """Devices finish a little after the profiler stops; a whole length outside is another clock."""
        if self.window_ns is None or not self.events:
            return
        start_ns, length_ns = self.window_ns
        early_ns, late_ns = start_ns - self.first_ns, self.last_ns - start_ns - length_ns
        if max(early_ns, late_ns) > max(length_ns, 10**9):
            outside = f"{max(early_ns, 0) / 1e9:.3f} s before and {max(late_ns, 0) / 1e9:.3f} s after"
            self._warn(f"events lie up to {outside} what the profiler recorded ({length_ns / 1e9:.3f} s)")

    def _warn(self, message: str) -> None:
        self.notes.append(Note(message, Severity.WARNING, str(self.source)))

    def _tell(self, message: str) -> None:
        self.notes.append(Note(message, where=str(self.source)))


def _end_of(source: Source) -> bytes:
    end = b""
    for block in source.blocks():
        end = (end + block)[-END_BYTES:]
    return end
