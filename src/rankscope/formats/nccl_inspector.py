"""Reads what the NCCL Inspector plugin writes: one JSON object for each collective of a process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rankscope.formats.bus_bandwidth import bus_factor, plain_name
from rankscope.formats.json_stream import Object, Objects, real_number, whole_number, word
from rankscope.formats.source import Source
from rankscope.formats.sums import Sums
from rankscope.model.records import Event, Group, Layer, Note, RankFacts, Reading, Severity
from rankscope.rank_file import size_class

SNIFFED = re.compile(rb'"coll_perf"\s*:')
HEADER = re.compile(rb'"inspector_output_format_version"\s*:')
FLUSH = 50_000  # events kept before they are handed on
MAX_GROUPS = 100_000
MAX_NOTES = 1_000
CLOSE = 2e-3  # bandwidths are worked out from a finer time than the printed microseconds
PER_RANK = ("all_gather", "reduce_scatter", "alltoall")  # their size is told for one rank, or for all


@dataclass(slots=True)
class InspectedProcess:
    """One process: a file is normally of one only."""

    facts: RankFacts
    sums: Sums
    groups: dict[str, Group] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    continues: bool = False


def sniff(head: bytes) -> bool:
    """An object with the plugin's own keys."""
    return head.lstrip()[:1] == b"{" and SNIFFED.search(head) is not None and HEADER.search(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """A reading for each process, in several parts when it has many events."""
    objects = Objects(source)
    current: InspectedProcess | None = None
    for record in objects:
        header, about, performance = (_part(record, key) for key in ("header", "metadata", "coll_perf"))
        if current is None or _key(about) != (current.facts.host, current.facts.pid):
            if current is not None:
                yield _reading(current)
            current = InspectedProcess(_facts(source, about), Sums(source))
        if performance:
            _take(source, current, header, performance, objects.line)
        if len(current.events) >= FLUSH:
            yield _part_reading(current)
    if current is None:
        raise source.bad("contains no collectives of NCCL Inspector")
    if objects.cut_off:
        current.notes.append(Note("the file ends in the middle of an object: was the job killed?", where=str(source)))
    yield _reading(current)


def _part(record: Object, key: str) -> Object:
    part = record.get(key)
    return part if isinstance(part, dict) else {}


def _key(about: Object) -> tuple[str, int | None]:
    return word(about.get("hostname")), whole_number(about.get("pid"))


def _facts(source: Source, about: Object) -> RankFacts:
    host, pid = _key(about)
    version = word(about.get("inspector_output_format_version"), 40)
    return RankFacts(
        host=host, pid=pid, rank=source.hints.rank, versions=f"NCCL Inspector {version}", source=str(source)
    )


def _take(source: Source, process: InspectedProcess, header: Object, performance: Object, line: int) -> None:
    name, size = word(performance.get("coll"), 100), whole_number(performance.get("coll_msg_size_bytes"))
    time_us = real_number(performance.get("coll_exec_time_us"))
    if not name or size is None or time_us is None or time_us < 0:
        raise source.bad("a collective without its name, size or time", line)
    group = _group(source, process, header, line)
    group.collectives += 1
    process.sums.add(Layer.NCCL, name, time_us * 1000, group.name, size_class(size), kind="progress", size_bytes=size)
    span = _span(performance.get("event_trace_ts"))
    if span is not None:
        sequence = whole_number(performance.get("coll_sn"))
        process.events.append(Event(Layer.NCCL, name, *span, group.name, sequence, size))
    for text in _problems(name, size, time_us, performance, group.size or 0):
        if len(process.notes) < MAX_NOTES:
            process.notes.append(Note(f"{name} of {size} bytes: {text}", Severity.WARNING, source.at(line)))


def _group(source: Source, process: InspectedProcess, header: Object, line: int) -> Group:
    identity, rank, ranks = (
        word(header.get("id"), 100),
        whole_number(header.get("rank")),
        whole_number(header.get("n_ranks")),
    )
    if identity not in process.groups:
        if len(process.groups) >= MAX_GROUPS:
            raise source.bad(f"more than {MAX_GROUPS} communicators", line)
        process.groups[identity] = Group(f"communicator {identity}", identity, size=ranks, my_rank=rank)
        if ranks is not None and ranks > (process.facts.world_size or 0):  # the largest is taken for the whole job
            process.facts.world_size = ranks
            process.facts.rank = source.hints.rank if source.hints.rank is not None else rank
    return process.groups[identity]


def _span(trace: Any) -> tuple[int, int] | None:
    """From the first kernel's start to the last one's stop; without kernels, of the host's call."""
    if not isinstance(trace, dict):
        return None
    kernels = [kernel for kernel in trace.get("kernel_events") or [] if isinstance(kernel, dict)]
    starts = [us for kernel in kernels if (us := whole_number(kernel.get("kernel_start_ts")))]
    stops = [us for kernel in kernels if (us := whole_number(kernel.get("kernel_stop_ts")))]
    start = min(starts) if starts else whole_number(trace.get("coll_start_ts"))
    stop = max(stops) if stops else whole_number(trace.get("coll_stop_ts"))
    if not start or not stop or max(start, stop) > 2**52:
        return None
    return start * 1000, stop * 1000


def _problems(name: str, size: int, time_us: float, performance: Object, ranks: int) -> Iterator[str]:
    algbw, busbw = real_number(performance.get("coll_algobw_gbs")), real_number(performance.get("coll_busbw_gbs"))
    if algbw is None or busbw is None:
        return
    shares = (1, ranks) if plain_name(name) in PER_RANK else (1,)
    bounds = [(size * share / (time_us + 1) / 1e3, size * share / max(time_us - 1, 1e-3) / 1e3) for share in shares]
    if not any(low * (1 - CLOSE) - 1e-6 <= algbw <= high * (1 + CLOSE) + 1e-6 for low, high in bounds):
        yield f"an algorithm bandwidth of {algbw:g} GB/s does not match its size in {time_us:g} us"
    expected = bus_factor(name, ranks)
    if expected is not None and abs(busbw - algbw * expected) > CLOSE * busbw + 2e-6:
        yield f"a bus bandwidth of {busbw:g} GB/s does not fit {algbw:g} GB/s on {ranks} ranks"


def _part_reading(process: InspectedProcess) -> Reading:
    reading = Reading(process.facts, process.continues, events=process.events)
    process.events, process.continues = [], True
    return reading


def _reading(process: InspectedProcess) -> Reading:
    reading = _part_reading(process)
    reading.tallies, reading.groups, reading.notes = (
        process.sums.tallies(),
        list(process.groups.values()),
        process.notes,
    )
    return reading
