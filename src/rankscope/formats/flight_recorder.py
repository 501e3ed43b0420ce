"""Reads dumps of PyTorch's flight recorder in their JSON form: the last collectives of a process and their states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rankscope.formats.json_stream import Object, real_number, whole_number, whole_object, word
from rankscope.formats.source import Source
from rankscope.formats.sums import Sums
from rankscope.model.records import Event, Group, Note, RankFacts, Reading, Severity
from rankscope.rank_file import size_class

PICKLE = re.compile(rb"\x80[\x02-\x05]")
SNIFFED = re.compile(rb'"(?:collective_seq_id|last_enqueued_collective|time_discovered_completed_ns)"')
CONVERT = (
    "python -c 'import json, pickle, sys; json.dump(pickle.load(sys.stdin.buffer), sys.stdout)' < DUMP > DUMP.json"
)
MAX_ENTRIES = 2_000_000
DTYPE_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "UInt16": 2,
    "UInt32": 4, "UInt64": 8, "Long": 8, "Double": 8, "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip


@dataclass(slots=True)
class Dump:
    source: Source
    sums: Sums
    groups: dict[str, Group] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)  # what had not completed
    last: dict[tuple[str, bool], int] = field(default_factory=dict)  # the sequence number last met in each group


def sniff(head: bytes) -> bool:
    """JSON with the recorder's keys; any pickle, too, so that it is refused with the way out."""
    return PICKLE.match(head) is not None or (head.lstrip()[:1] == b"{" and SNIFFED.search(head) is not None)


def read(source: Source) -> Iterator[Reading]:
    """The collectives of one process."""
    if PICKLE.match(source.head(2)):
        text = "is a pickle, which can run arbitrary code when loaded: if you trust it, convert it to JSON with"
        raise source.bad(f"{text} {CONVERT}")
    content = _content(source)
    entries = content.get("entries", [])
    if not isinstance(entries, list) or len(entries) > MAX_ENTRIES:
        raise source.bad("its entries are not a list, or there are too many")
    dump = Dump(source, Sums(source), _groups(content.get("pg_config")))
    for place, entry in enumerate(entries):
        _take(dump, entry, place)
    yield _reading(dump, content, entries)


def _content(source: Source) -> Object:
    content = whole_object(source)
    if not {"entries", "pg_config", "pg_status"} & content.keys():
        raise source.bad("has no flight recorder entries")
    return content


def _groups(config: Any) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    for name, about in (config if isinstance(config, dict) else {}).items():
        about = about if isinstance(about, dict) else {}
        ranks = [int(rank) for rank in re.findall(r"\d{1,9}", str(about.get("ranks", ""))[: 10**6])]
        label = _label(name, word(about.get("desc")))
        groups[name] = Group(label, f"{name}:{ranks}"[:200], size=len(ranks) or None)
    return groups


def _label(name: str, description: str) -> str:
    known = description and description != "undefined"
    return f"{description} #{name}"[:200] if known else f"group #{name}"[:200]


def _take(dump: Dump, entry: Any, place: int) -> None:
    where = f"entry {place}"
    created = whole_number(entry.get("time_created_ns")) if isinstance(entry, dict) else None
    if created is None:
        raise dump.source.bad(f"{where}: no time_created_ns")
    layer, name = _operation(word(entry.get("profiling_name")))
    group = _group(dump, entry.get("process_group"))
    point_to_point = entry.get("is_p2p") is True
    sequence = whole_number(entry.get("p2p_seq_id" if point_to_point else "collective_seq_id"))
    sent = _bytes(entry.get("input_sizes"), entry.get("input_dtypes"))
    completed = whole_number(entry.get("time_discovered_completed_ns")) or None
    dump.events.append(Event(layer, name, created, completed, group.name, sequence, sent))
    duration_ms = real_number(entry.get("duration_ms"))
    ns = duration_ms * 1e6 if duration_ms is not None and duration_ms >= 0 else None
    size = size_class(sent) if sent is not None else None
    dump.sums.add(layer, name, ns, group.name, size, kind="progress", size_bytes=sent)
    group.collectives += not point_to_point
    label = f"{name} {sequence} of {group.name}"
    dump.problems += [f"{where}, {label}: {text}" for text in _problems(entry, created, completed)]
    _follow(dump, (group.name, point_to_point), sequence, f"{where}, {label}")
    if word(entry.get("state")) in ("scheduled", "started"):
        dump.waiting.append(f"{label} ({entry['state']})")


def _operation(profiling_name: str) -> tuple[str, str]:
    layer, colon, name = profiling_name.partition(":")
    return (layer, name) if colon and layer.isidentifier() else ("collectives", profiling_name or "?")


def _group(dump: Dump, names: Any) -> Group:
    given = names if isinstance(names, list) and len(names) == 2 else ["?", ""]
    name = word(given[0])
    if name not in dump.groups and len(dump.groups) < 10**5:
        dump.groups[name] = Group(_label(name, word(given[1])), name)
    return dump.groups.get(name) or Group("other groups")


def _bytes(sizes: Any, dtypes: Any) -> int | None:
    if not isinstance(sizes, list) or not isinstance(dtypes, list) or len(sizes) != len(dtypes):
        return None
    total = 0
    for shape, dtype in zip(sizes, dtypes, strict=True):
        each = 1 if word(dtype).startswith("Float8") else DTYPE_BYTES.get(word(dtype))
        if each is None or not isinstance(shape, list):
            return None
        for length in shape[:64]:
            each *= whole_number(length) or 0
            if each >= 2**60:
                return None
        total += each
    return total if total < 2**62 else None


def _problems(entry: Object, created: int, completed: int | None) -> Iterator[str]:
    started = whole_number(entry.get("time_discovered_started_ns")) or None
    if started is not None and started < created:
        yield "started before it was created"
    if completed is not None and completed < (started or created):
        yield "completed before it started"
    state = word(entry.get("state"))
    if state and (state == "completed") != (completed is not None):
        yield f"its state is {state}, but it has {'a' if completed else 'no'} completion time"


def _follow(dump: Dump, key: tuple[str, bool], sequence: int | None, label: str) -> None:
    """In one group the numbers of collectives never fall (a coalesced batch shares one)."""
    if sequence is None:
        return
    if sequence < dump.last.get(key, 0):
        dump.problems.append(f"{label}: comes after number {dump.last[key]}")
    dump.last[key] = sequence


def _reading(dump: Dump, content: Object, entries: list[Any]) -> Reading:
    where = str(dump.source)
    given = whole_number(content.get("rank"))
    facts = RankFacts(rank=dump.source.hints.rank if given is None else given, source=where)
    version = word(content.get("comm_lib_version")) or word(content.get("nccl_version"))
    facts.versions = f"{'nccl' if 'nccl_version' in content else 'communication library'} {version}" if version else ""
    facts.overwritten_events = whole_number(entries[0].get("record_id")) or 0 if entries else 0
    world = [group.size for group in dump.groups.values() if group.name.startswith("default_pg") and group.size]
    facts.world_size = world[0] if world else None
    reading = Reading(facts, tallies=dump.sums.tallies(), events=dump.events, groups=list(dump.groups.values()))
    reading.notes = [Note(text, Severity.WARNING, where) for text in dump.problems[:1000]]
    if dump.waiting:
        first = f"{len(dump.waiting)} collectives had not completed; the first is {dump.waiting[0]}"
        reading.notes.append(Note(first, where=where))
    reading.notes += [Note(text, Severity.WARNING, where) for text in _status_problems(content.get("pg_status"))]
    return reading


def _status_problems(status: Any) -> Iterator[str]:
    for name, state in (status if isinstance(status, dict) else {}).items():
        keys = ("last_completed_collective", "last_started_collective", "last_enqueued_collective")
        numbers = [whole_number(state.get(key)) for key in keys] if isinstance(state, dict) else []
        known = [number for number in numbers if number is not None]  # -1: none yet
        if known != sorted(known):
            yield f"group {str(name)[:50]}: completed, started and enqueued are {known}: not in order"
