"""OTF2 traces, as Score-P, TAU and rocprofv3 write them, read by OTF2's own library where that is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rankscope.formats.event_columns import EventColumns
from rankscope.formats.otf2_events import MISSING
from rankscope.formats.source import Source
from rankscope.formats.sums import Sums
from rankscope.model.records import Layer, Note, RankFacts, Reading, Severity

MAGIC = b"OTF2"  # behind a byte for its length and one for the order of bytes
LAYERS = {
    "MPI": Layer.MPI,
    "CUDA": Layer.CUDA_API,
    "HIP": Layer.HIP_API,
    "OPENCL": Layer.OPENCL,
    "OPENMP": Layer.OMP,
    "OPENMP_TARGET": Layer.OMP,
    "USER": Layer.NVTX,
    "KOKKOS": Layer.NVTX,
}
DEVICES = ("GPU", "ACCELERATOR_STREAM")
RANK = re.compile(r"(?:MPI )?[Rr]ank (\d{1,7})$")
NUMBER = re.compile(r"(\d{1,6})(?!.*\d)")
MOST_NESTED = 100_000


def sniff(head: bytes) -> bool:
    """The anchor file of a trace; the events lie in files beside it."""
    return head[:1] == b"\x03" and head[2:6] == MAGIC


@dataclass(slots=True)
class Location:
    """A thread of a process, or a stream of a device."""

    name: str
    is_device: bool
    process: int
    stack: list[tuple[int, int, int | None]] = field(default_factory=list)  # region, entered, bytes


@dataclass(slots=True)
class TracedProcess:
    facts: RankFacts
    events: EventColumns = field(default_factory=EventColumns)
    functions: Sums | None = None


class Otf2Trace:
    """The state of reading one trace."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.resolution, self.offset, self.began_ns = 10**9, 0, 0
        self.locations: dict[int, Location] = {}
        self.regions: dict[int, tuple[str, str]] = {}
        self.processes: dict[int, TracedProcess] = {}
        self.devices: dict[str, int] = {}
        self.others: dict[str, int] = {}
        self.unmatched = 0

    def take(self, line: str) -> None:
        kind, *values = json.loads(line)
        if kind in ("E", "L"):
            self._call(kind == "E", *values)
        elif kind == "B":
            self._size(*values)
        elif kind == "clock":
            self.resolution, self.offset, self.began_ns = max(int(values[0]), 1), int(values[1]), int(values[2])
        elif kind == "location":
            self._location(*values)
        elif kind == "region":
            self.regions[values[0]] = (str(values[1]), str(values[2]))
        elif kind == "others":
            self.others = dict(values[0])

    def _location(self, number: int, name: str, kind: str, process: int, process_name: str, host: str) -> None:
        self.locations[number] = Location(str(name), kind in DEVICES, process)
        if process not in self.processes:
            rank = RANK.search(str(process_name))
            facts = RankFacts(host=str(host), source=str(self.source.path), rank=int(rank[1]) if rank else None)
            facts.rank_source = "OTF2" if rank else ""
            self.processes[process] = TracedProcess(facts)

    def _ns(self, ticks: int) -> int:
        return (ticks - self.offset) * 10**9 // self.resolution + self.began_ns

    def _call(self, is_enter: bool, place: int, ticks: int, region: int) -> None:
        location = self.locations.get(place)
        if location is None or len(location.stack) > MOST_NESTED:
            self.unmatched += 1
        elif is_enter:
            location.stack.append((region, ticks, None))
        elif not location.stack or location.stack[-1][0] != region:
            self.unmatched += 1
        else:
            _, entered, size = location.stack.pop()
            self._add(place, location, region, entered, ticks, size)

    def _add(self, place: int, location: Location, region: int, entered: int, left: int, size: int | None) -> None:
        name, paradigm = self.regions.get(region, (f"region {region}", ""))
        process, start_ns, end_ns = self.processes[location.process], self._ns(entered), self._ns(left)
        layer, group = LAYERS.get(paradigm, str(Layer.HOST)), ""
        if location.is_device:
            layer, group = Layer.GPU, self._stream(location)
        elif layer == Layer.HOST:
            process.functions = process.functions or Sums(self.source)
            process.functions.add(Layer.HOST, name, max(end_ns - start_ns, 0))
        is_range = layer == Layer.NVTX
        process.events.add(layer, name, start_ns, end_ns, group, place, size, user_range=is_range)

    def _stream(self, location: Location) -> str:
        number = NUMBER.search(location.name)
        return f"{self.devices.setdefault(location.name, len(self.devices))}/{number[1] if number else '?'}"

    def _size(self, place: int, size: int) -> None:
        stack = self.locations[place].stack if place in self.locations else []
        if stack:
            region, entered, before = stack[-1]
            stack[-1] = (region, entered, (before or 0) + int(size))

    def readings(self) -> Iterator[Reading]:
        active = [process for process in self.processes.values() if len(process.events)]
        if not active:
            refused = sum(process.events.refused for process in self.processes.values())
            said = f": {refused} calls lie outside of any clock" if refused else ""
            raise self.source.bad(f"has no call, range or kernel in it{said}")
        for place, process in enumerate(active):
            reading = Reading(process.facts, tallies=process.functions.tallies() if process.functions else [])
            reading.notes = [*process.events.notes(self.source), *([] if place else self._notes())]
            for block in process.events.blocks():
                reading.event_columns = block
                yield reading
                reading = Reading(process.facts, continues=True)

    def _notes(self) -> list[Note]:
        notes, where = [], str(self.source)
        open_calls = sum(len(location.stack) for location in self.locations.values())
        if self.unmatched or open_calls:
            text = f"{self.unmatched + open_calls} calls without their other end: left out"
            notes.append(Note(text, Severity.WARNING, where))
        if self.others:
            listed = ", ".join(f"{count} {kind}" for kind, count in sorted(self.others.items())[:12])
            notes.append(Note(f"events of other kinds, in no table: {listed}", where=where))
        if not self.began_ns:
            notes.append(Note("times do not count from 1970: the trace does not say when it began", where=where))
        return notes


def read(source: Source) -> Iterator[Reading]:
    """A reading for each process of the trace; without OTF2's library none can be had."""
    if source.content is not None:
        raise source.bad("is not complete by itself: an OTF2 trace is several files")
    trace = Otf2Trace(source)
    command = [sys.executable, "-m", "rankscope.formats.otf2_events", str(source.path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as worker:
        try:
            assert worker.stdout is not None
            for line in worker.stdout:
                trace.take(line)
            worker.stdout.close()
            said = _last_line(worker)
        finally:
            worker.kill()
    if worker.returncode == MISSING:
        raise source.bad("is an OTF2 trace, which is read by OTF2's own library: pip install otf2")
    if worker.returncode != 0:
        raise source.bad(f"cannot be read by OTF2's library: {said or f'it ended with {worker.returncode}'}")
    yield from trace.readings()


def _last_line(worker: Any) -> str:
    said = worker.stderr.read(1 << 20).strip().splitlines()
    worker.wait()
    return " ".join(said[-1].split())[:200] if said else ""
