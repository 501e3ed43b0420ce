"""Profiles of XLA (`.xplane.pb`), as JAX and TensorFlow write them: kernels, calls and ranges of one host."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rankscope.formats.event_columns import EventColumns
from rankscope.formats.protobuf import Damaged, fields, signed, text, varint
from rankscope.formats.source import Source
from rankscope.formats.sums import Sums
from rankscope.model.records import Layer, Note, RankFacts, Reading, Severity

MOST_BYTES = 1 << 30
KNOWN_PLANE = re.compile(r"/(?:host|device):|Task Environment$")
DEVICE = re.compile(r"/device:([A-Za-z]+):(\d{1,5})")
STREAM = re.compile(r"Stream #(\d{1,9})")
OPERATIONS = ("XLA Ops", "Async XLA Ops", "Sparse Core Ops")
COPY = re.compile(r"(?:MemcpyH2D|MemcpyD2H|MemcpyD2D|MemcpyP2P|MemcpyH2H|MemcpyOther)")
DIRECTIONS = {"H2D": "HtoD", "D2H": "DtoH", "D2D": "DtoD", "P2P": "PtoP", "H2H": "HtoH"}
SIZE = re.compile(r"\bsize:(\d{1,18})\b")
CALL = re.compile(r"(cu(?:da)?|hip)[A-Z]\w*$")
# ranges of the program are named by it; these are XLA's and Python's own
INTERNAL = re.compile(
    r"\$|.*::|.*[()<>{}\[\]]|Pjit|PjRt|Tfrt|Thunk|ThreadpoolListener|XlaModule|BufferFromHost|end: |Wait "
)
PS_PER_NS = 1000
XLA = "xla"  # operations that run on the host


def sniff(head: bytes) -> bool:
    """A first field that holds a plane with a name as XLA gives it."""
    if head[:1] != b"\x0a":
        return False
    try:
        length, at = varint(head, 1)
        inside = head[at : at + min(length, len(head) - at)]
        for number, value in _begin(inside):
            if number == 2:
                return KNOWN_PLANE.match(text(value, 300)) is not None
    except Damaged:
        pass
    return False


def _begin(data: bytes) -> Iterator[tuple[int, Any]]:
    """The first fields, as far as they are there: the head of a file ends in the middle of one."""
    try:
        yield from fields(data)
    except Damaged:
        return


@dataclass(slots=True)
class Names:
    """What the numbers of a plane mean: events, and their properties."""

    events: dict[int, str] = field(default_factory=dict)
    shown: dict[int, str] = field(default_factory=dict)
    stats: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Line:
    """One line of a plane: a thread of the host, a stream of a device, or what XLA has made of these."""

    number: int = 0
    name: str = ""
    base_ns: int = 0
    events: list[Any] = field(default_factory=list)


class XSpace:
    """The state of reading one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.events = EventColumns()
        self.operations = Sums(source)  # XLA's on the host, which no device has
        self.facts = RankFacts(rank=source.hints.rank, source=str(source.path))
        self.started_ns: int | None = None
        self.left_out: Counter[str] = Counter()
        self.damaged = 0
        self.devices: dict[str, None] = {}
        self.problems: list[str] = []

    def take(self, data: memoryview) -> None:
        for number, value in fields(data):
            if number == 1 and isinstance(value, memoryview):
                self._plane(value)
            elif number in (2, 3):
                self.problems.append(text(value, 300))
            elif number == 4:
                self.facts.host = self.facts.host or text(value, 255)

    # ------------------------------------------------------------ planes
    def _plane(self, data: memoryview) -> None:
        name, names, lines, stats = "", Names(), [], []
        for number, value in fields(data):
            if number == 2:
                name = text(value, 300)
            elif number == 3 and isinstance(value, memoryview):
                lines.append(value)
            elif number == 4:
                self._event_name(value, names)
            elif number == 5:
                key, message = _entry(value)
                names.stats[key] = next((text(value, 300) for number, value in fields(message) if number == 2), "")
            elif number == 6:
                stats.append(value)
        if name == "Task Environment":
            self._environment(stats, names)
        match = DEVICE.match(name)
        if match is not None:
            self.devices[f"{match[1]} {match[2]}"] = None
        opened = [_line(line) for line in lines]
        has_streams = any(STREAM.match(line.name) for line in opened)
        for line in opened:
            self._line(name, match, line, names, has_streams)

    def _event_name(self, value: Any, names: Names) -> None:
        key, message = _entry(value)
        for number, item in fields(message):
            if number == 2:
                names.events[key] = text(item)
            elif number == 4:
                names.shown[key] = text(item)

    def _environment(self, stats: list[Any], names: Names) -> None:
        values = _stats(stats, names)
        start = values.get("profile_start_time")
        if isinstance(start, int) and 0 < start < 2**62:
            self.started_ns = start

    # ------------------------------------------------------------ lines and events
    def _line(self, plane: str, device: re.Match[str] | None, line: Line, names: Names, has_streams: bool) -> None:
        if device is None and not plane.startswith("/host:"):
            self.left_out[plane] += len(line.events)
            return
        for data in line.events:
            try:
                self._event(device, line, data, names, has_streams)
            except Damaged:
                self.damaged += 1

    def _event(self, device: re.Match[str] | None, line: Line, data: Any, names: Names, has_streams: bool) -> None:
        key = offset_ps = length_ps = 0
        stats: list[Any] = []
        occurrences = None
        for number, value in fields(data):
            if number == 4:
                stats.append(value)
            elif isinstance(value, int):
                if number == 1:
                    key = signed(value)
                elif number == 2:
                    offset_ps = signed(value)
                elif number == 3:
                    length_ps = signed(value)
                elif number == 5:
                    occurrences = value
        if occurrences is not None:
            self.left_out["sums of events"] += 1
            return
        name = names.events.get(key, f"event {key}")
        start_ns = line.base_ns + offset_ps // PS_PER_NS
        end_ns = line.base_ns + (offset_ps + max(length_ps, 0)) // PS_PER_NS if length_ps >= 0 else start_ns - 1
        values = _stats(stats, names)
        if device is not None:
            self._on_device(device, line, name, start_ns, end_ns, values, has_streams)
        else:
            self._on_host(line, name, start_ns, end_ns, values)

    def _on_device(
        self,
        device: re.Match[str],
        line: Line,
        name: str,
        start_ns: int,
        end_ns: int,
        values: dict[str, Any],
        has_streams: bool,
    ) -> None:
        """On GPUs kernels lie on streams, and other lines repeat them; on TPUs one line has the operations."""
        stream = STREAM.match(line.name)
        is_work = stream is not None or (not has_streams and line.name in OPERATIONS)
        group = f"{device[2]}/{stream[1] if stream else line.name}"
        size = SIZE.search(str(values.get("memcpy_details", ""))) if is_work else None
        if match := COPY.match(name):
            name = f"[CUDA memcpy {DIRECTIONS.get(match[0][-3:], match[0][6:])}]"
        elif name.startswith("Memset"):
            name = "[CUDA memset]"
        correlation = values.get("correlation_id")
        self.events.add(
            Layer.GPU if is_work else Layer.GPU_RANGE,
            name,
            start_ns,
            end_ns,
            group,
            size_bytes=int(size[1]) if size else None,
            correlation=correlation if isinstance(correlation, int) else None,
        )

    def _on_host(self, line: Line, name: str, start_ns: int, end_ns: int, values: dict[str, Any]) -> None:
        step, correlation = values.get("step_num"), values.get("correlation_id")
        call = CALL.match(name)
        layer, is_range, sequence = str(Layer.JAX), False, None
        if isinstance(step, int):
            layer, sequence = Layer.STEP, step
            name = f"{name}#{step}"
        elif call is not None:
            layer = Layer.HIP_API if call[1] == "hip" else Layer.CUDA_API
        elif name.startswith("$"):
            layer, name = Layer.PYTHON, name[1:]
        elif "hlo_op" in values:
            layer = XLA
            self.operations.add(XLA, name, max(end_ns - start_ns, 0), str(values.get("hlo_module", ""))[:200])
        else:
            is_range = INTERNAL.match(name) is None
        self.events.add(
            layer,
            name,
            start_ns,
            end_ns,
            "",
            max(line.number, 0),
            correlation=correlation if isinstance(correlation, int) else None,
            sequence=sequence,
            user_range=is_range,
        )

    # ------------------------------------------------------------ all of it
    def readings(self) -> Iterator[Reading]:
        if not len(self.events):
            raise self.source.bad("has no host or device events")
        self.facts.devices = ", ".join(self.devices)
        reading = Reading(self.facts, tallies=self.operations.tallies())
        reading.notes = [*self._notes(), *self.events.notes(self.source)]
        for block in self.events.blocks():
            reading.event_columns = self._dated(block)
            yield reading
            reading = Reading(self.facts, continues=True)

    def _dated(self, block: Any) -> Any:
        """Times of a file that says when it began and counts from there become Unix time."""
        if self.started_ns is None or int(block["start_ns"].max()) > self.started_ns // 2:
            return block
        return {**block, "start_ns": block["start_ns"] + self.started_ns, "end_ns": block["end_ns"] + self.started_ns}

    def _notes(self) -> list[Note]:
        where = str(self.source)
        notes = [Note(f"the profiler says: {problem}", Severity.WARNING, where) for problem in self.problems[:20]]
        if self.damaged:
            notes.append(Note(f"{self.damaged} damaged events left out", Severity.WARNING, where))
        for plane, number in self.left_out.items():
            if number:
                notes.append(Note(f"{number} events of {plane or 'a plane without a name'}: left out", where=where))
        if self.started_ns is None:
            notes.append(Note("times may not be Unix times: the file does not say when it began", where=where))
        return notes


def _entry(value: Any) -> tuple[int, Any]:
    """Key and message of an entry of a map."""
    key, message = 0, memoryview(b"")
    for number, item in fields(value):
        if number == 1 and isinstance(item, int):
            key = signed(item)
        elif number == 2 and not isinstance(item, int):
            message = item
    return key, message


def _line(data: memoryview) -> Line:
    line = Line()
    shown = ""
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            line.number = signed(value)
        elif number == 2:
            line.name = text(value, 300)
        elif number == 3 and isinstance(value, int):
            line.base_ns = signed(value)
        elif number == 4 and not isinstance(value, int):
            line.events.append(value)
        elif number == 11:
            shown = text(value, 300)
    line.name = line.name or shown
    return line


def _stats(stats: list[Any], names: Names) -> dict[str, Any]:
    """Properties by name: whole numbers and texts."""
    values: dict[str, Any] = {}
    for data in stats:
        key = 0
        stat: Any = None
        for number, value in fields(data):
            if number == 1 and isinstance(value, int):
                key = signed(value)
            elif number in (3, 4) and isinstance(value, int):
                stat = signed(value) if number == 4 else value
            elif number in (5, 6):
                stat = text(value, 4096)
            elif number == 7 and isinstance(value, int):
                stat = names.stats.get(value, "")
        values[names.stats.get(key, "")] = stat
    return values


def read(source: Source) -> Iterator[Reading]:
    """One process: a file holds what one host has profiled."""
    content = bytearray()
    for block in source.blocks():
        content += block
        if len(content) > MOST_BYTES:
            raise source.bad(f"is larger than {MOST_BYTES >> 30} GiB")
    space = XSpace(source)
    try:
        space.take(memoryview(bytes(content)))
    except (Damaged, RecursionError) as problem:
        if not len(space.events):
            raise source.bad(f"is not an XLA profile, or is truncated ({problem})") from None
        space.problems.append(f"the file is damaged ({problem}): the rest is missing")
    yield from space.readings()
