"""Reads Horovod's timeline: for each tensor, the phases of its negotiation and its collectives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rankscope.formats.event_columns import UnreadLines
from rankscope.formats.json_stream import Object, Objects, whole_number, word
from rankscope.formats.source import Source
from rankscope.formats.sums import Sums
from rankscope.model.records import Event, Layer, Note, RankFacts, Reading, Severity

SNIFFED = re.compile(rb'"start_time_since_epoch_in_micros"|"name": ?"NEGOTIATE_[A-Z]')
FLUSH = 50_000  # events kept before they are handed on
MAX_TENSORS = 1_000_000
MAX_DEPTH = 64
MOST_NOTES = 1000
DTYPE_BYTES = {
    "uint8": 1, "int8": 1, "bool": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "float32": 4, "int64": 8, "float64": 8,
}  # fmt: skip


@dataclass(slots=True)
class Tensor:
    """What is going on with one tensor; Horovod draws each as a process of its own."""

    name: str = ""
    open: list[tuple[str, int]] = field(default_factory=list)  # phases begun, with their start
    ready: list[tuple[int, int]] = field(default_factory=list)  # time and rank, of the negotiation going on
    last_us: int = 0


@dataclass(slots=True)
class HorovodTimeline:
    source: Source
    sums: Sums
    start_us: int | None = None
    tensors: dict[int, Tensor] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    problems: list[tuple[int, str]] = field(default_factory=list)
    unread: UnreadLines = field(default_factory=lambda: UnreadLines("with events that are not in any table"))

    def ns(self, ts_us: int) -> int:
        return ((self.start_us or 0) + ts_us) * 1000


def sniff(head: bytes) -> bool:
    """An array of events with Horovod's start time or a negotiation in it."""
    return head.lstrip()[:1] == b"[" and SNIFFED.search(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """All events of the coordinating rank, up to the last whole one where the job was killed."""
    timeline = HorovodTimeline(source, Sums(source))
    facts = RankFacts(rank=source.hints.rank, source=str(source))
    if facts.rank is None:
        facts.rank, facts.rank_source = 0, "Horovod writes its timeline on rank 0"
    objects = Objects(source)
    continues = False
    for event in objects:
        _take(timeline, event, objects.line)
        if len(timeline.events) >= FLUSH:
            yield Reading(facts, continues, events=timeline.events)
            timeline.events, continues = [], True
    yield _last(timeline, facts, continues, objects.cut_off)


def _take(timeline: HorovodTimeline, event: Object, line: int) -> None:
    phase = word(event.get("ph"))
    if phase == "M":
        _describe(timeline, event)
        return
    ts_us = whole_number(event.get("ts"))
    if ts_us is None or ts_us > 2**52:
        raise timeline.source.bad("an event without a time", line)
    if phase in ("i", "I"):
        timeline.sums.add(Layer.HOROVOD, word(event.get("name")), 0)
        return
    tensor = _tensor(timeline, event, line)
    if ts_us < tensor.last_us:
        timeline.problems.append((line, f"{tensor.name}: time runs backwards by {tensor.last_us - ts_us} us"))
    tensor.last_us = ts_us
    if phase == "B":
        _begin(timeline, tensor, word(event.get("name")), ts_us, line)
    elif phase == "E":
        _end(timeline, tensor, ts_us, _tensor_bytes(event.get("args")), line)
    elif phase != "X" or not _mark(timeline, tensor, word(event.get("name")), ts_us):
        timeline.unread.add(line)


def _describe(timeline: HorovodTimeline, event: Object) -> None:
    arguments = event.get("args")
    if event.get("name") != "process_name" or not isinstance(arguments, dict):
        return
    start_us = whole_number(arguments.get("start_time_since_epoch_in_micros"))
    if start_us is not None and start_us < 2**52:
        timeline.start_us = start_us
    elif "name" in arguments:
        _tensor(timeline, event, 0).name = word(arguments["name"])


def _tensor(timeline: HorovodTimeline, event: Object, line: int) -> Tensor:
    number = whole_number(event.get("pid"))
    if number is None or len(timeline.tensors) > MAX_TENSORS:
        raise timeline.source.bad("an event without a tensor, or too many tensors", line or None)
    return timeline.tensors.setdefault(number, Tensor())


def _begin(timeline: HorovodTimeline, tensor: Tensor, name: str, ts_us: int, line: int) -> None:
    if len(tensor.open) >= MAX_DEPTH:
        raise timeline.source.bad(f"phases nested {MAX_DEPTH} deep", line)
    tensor.open.append((name, ts_us))
    tensor.ready = []


def _end(timeline: HorovodTimeline, tensor: Tensor, ts_us: int, size_bytes: int | None, line: int) -> None:
    if not tensor.open:
        timeline.problems.append((line, f"{tensor.name}: a phase ends that never began"))
        return
    name, start_us = tensor.open.pop()
    within = tensor.open[-1][0] if tensor.open else ""
    ns = max(0, ts_us - start_us) * 1000
    timeline.sums.add(Layer.HOROVOD, name, ns, size_bytes=size_bytes, within=within)
    event = Event(Layer.HOROVOD, name, timeline.ns(start_us), timeline.ns(ts_us), tensor.name, bytes=size_bytes)
    timeline.events.append(event)
    if len(tensor.ready) > 1:
        (first_us, _), (last_us, rank) = min(tensor.ready), max(tensor.ready)
        timeline.sums.add(Layer.HOROVOD, "last ready", (last_us - first_us) * 1000, f"rank {rank}", within=name)
    tensor.ready = []


def _mark(timeline: HorovodTimeline, tensor: Tensor, name: str, ts_us: int) -> bool:
    """Within a negotiation, a mark names the rank that has just become ready."""
    rank = whole_number(name)
    if rank is None or rank >= 10**7 or not tensor.open or len(tensor.ready) >= 10**5:
        return False
    tensor.ready.append((ts_us, rank))
    if len(timeline.ranks) < 10**6:
        timeline.ranks.add(rank)
    return True


def _tensor_bytes(arguments: object) -> int | None:
    """The size of a tensor, told where its collective ends."""
    if not isinstance(arguments, dict):
        return None
    each = DTYPE_BYTES.get(word(arguments.get("dtype")))
    shape = word(arguments.get("shape"))
    if each is None or not re.fullmatch(r"\[[\d, ]*\]", shape):
        return None
    size = each
    for length in re.findall(r"\d{1,18}", shape[:1000]):
        size *= int(length)
        if size >= 2**62:
            return None
    return size


def _last(timeline: HorovodTimeline, facts: RankFacts, continues: bool, cut_off: bool) -> Reading:
    source = timeline.source
    if not timeline.sums.by_key and not timeline.tensors:
        raise source.bad("contains no timeline events")
    facts.world_size = max(timeline.ranks) + 1 if timeline.ranks else None
    facts.started_ns = timeline.ns(0) if timeline.start_us is not None else None
    reading = Reading(facts, continues, timeline.sums.tallies(), timeline.events)
    reading.range_tallies = timeline.sums.range_tallies()
    for tensor in timeline.tensors.values():
        reading.events += [Event(Layer.HOROVOD, name, timeline.ns(us), None, tensor.name) for name, us in tensor.open]
    reading.notes = [Note(text, Severity.WARNING, source.at(line)) for line, text in timeline.problems[:MOST_NOTES]]
    timeline.unread.added(line for line, _ in timeline.problems[MOST_NOTES:])
    reading.notes += timeline.unread.notes(source)
    if timeline.start_us is None:
        reading.notes.append(Note("the timeline does not say when it began: its times count from 0", where=str(source)))
    if cut_off:
        reading.notes.append(Note("the file ends in the middle of an event: was the job killed?", where=str(source)))
    return reading
