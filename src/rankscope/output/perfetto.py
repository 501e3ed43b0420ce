"""A timeline as Perfetto's own format: opens in ui.perfetto.dev and in its trace processor.

A trace is a sequence of packets; a slice is two of them, where it begins and where it ends. All packets of a kind have
the same bytes in the same places, numbers padded to a fixed width, so that they are made by columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rankscope.output.cells import printable
from rankscope.pictures import Actor, Slices, Track

# ---------------------------------------------------------------------------------------------------------------------
# Protocol buffers by hand: single fields, and columns of numbers written into fixed places of many records.
VARINT, FIXED64, LENGTH = 0, 1, 2


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    return tag(field, VARINT) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def message(field: int, body: bytes) -> bytes:
    return tag(field, LENGTH) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    return message(field, value.encode("utf-8", "backslashreplace"))


def put_varints(records: Any, at: int, values: Any, width: int) -> None:
    """Write one number into each record, always in so many bytes: a varint may have leading zeros."""
    left = np.asarray(values).astype(np.uint64)
    for place in range(width):
        more = 0x80 if place < width - 1 else 0
        records[:, at + place] = (left & np.uint64(0x7F)).astype(np.uint8) | np.uint8(more)
        left >>= np.uint64(7)


def put_fixed64(records: Any, at: int, values: Any) -> None:
    records[:, at : at + 8] = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(-1, 8)


# ---------------------------------------------------------------- perfetto
PACKET = 1  # of Trace
TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS, DESCRIPTOR = 8, 10, 11, 12, 13, 60  # of TracePacket
ANNOTATION, TYPE, NAME_IID, TRACK, FLOW = 4, 9, 10, 11, 47  # of TrackEvent
BEGIN, END = 1, 2
CLEARED, NEEDED = 1, 2  # state of interned names
EVENT_NAMES, ANNOTATION_NAMES = 2, 3  # of InternedData
BYTES_NAME = 1
HOSTS_FROM, PROCESSES_FROM = 1 << 21, 1 << 22  # numbers of their tracks: above those of all others
TIME_BYTES, ID_BYTES, SIZE_BYTES = 9, 4, 9

Array = Any


class _Template:
    """The bytes of one kind of packet and where its numbers go."""

    def __init__(self, begins: bool, flow: bool, sized: bool) -> None:
        self.flow, self.sized, self.begins = flow, sized, begins
        event = number(TYPE, BEGIN if begins else END) + _room(TRACK, ID_BYTES)
        places = {"track": len(event) - ID_BYTES}
        if begins:
            event += _room(NAME_IID, ID_BYTES)
            places["name"] = len(event) - ID_BYTES
        if flow:
            event += tag(FLOW, FIXED64) + bytes(8)
            places["flow"] = len(event) - 8
        if sized:
            event += message(ANNOTATION, number(1, BYTES_NAME) + _room(3, SIZE_BYTES))
            places["bytes"] = len(event) - SIZE_BYTES
        head = _room(TIMESTAMP, TIME_BYTES)
        time_at = len(head) - TIME_BYTES
        head += _room(SEQUENCE, ID_BYTES) + number(FLAGS, NEEDED) + tag(EVENT, LENGTH) + varint(len(event))
        body = head + event
        start = tag(PACKET, LENGTH) + varint(len(body))
        self.bytes = np.frombuffer(start + body, np.uint8)
        self.time_at = len(start) + time_at
        self.sequence_at = self.time_at + TIME_BYTES + 1
        self.places = {name: len(start) + len(head) + at for name, at in places.items()}

    def filled(self, block: Slices, rows: Array, time_ns: Array, name_ids: Array) -> Array:
        """One packet for each of the rows."""
        records = np.repeat(self.bytes[None, :], len(rows), axis=0)
        put_varints(records, self.time_at, time_ns, TIME_BYTES)
        put_varints(records, self.sequence_at, np.full(len(rows), block.process + 1), ID_BYTES)
        put_varints(records, self.places["track"], block.track[rows], ID_BYTES)
        if self.begins:
            put_varints(records, self.places["name"], name_ids[rows], ID_BYTES)
        if self.flow:
            put_fixed64(records, self.places["flow"], block.flow[rows])
        if self.sized:
            put_varints(records, self.places["bytes"], block.bytes[rows], SIZE_BYTES)
        return records


def _room(field: int, width: int) -> bytes:
    return tag(field, VARINT) + bytes(width)


TEMPLATES = [_Template(True, bool(kind & 1), bool(kind & 2)) for kind in range(4)] + [_Template(False, False, False)]


def perfetto_pieces(actors: Sequence[Actor], slices: Iterable[tuple[Slices, Array, Array]]) -> Iterator[bytes]:
    """The trace in pieces; slices come with the order in which they open and close."""
    yield from _actors(actors)
    names: dict[int, dict[str, int]] = {}
    for block, order, opens in slices:
        if block.process not in names:
            names[block.process] = {}
            yield _first_packet(block.process)
        yield from (_track(track) for track in block.new_tracks)
        interned, name_ids = _intern(block, names[block.process])
        yield interned
        yield _packets(block, order, opens, name_ids)


def _actors(actors: Sequence[Actor]) -> Iterator[bytes]:
    hosts = {host: HOSTS_FROM + at for at, host in enumerate(dict.fromkeys(actor.host for actor in actors))}
    for host, track in hosts.items():
        yield _descriptor(number(1, track) + text(2, printable(f"host {host}")))
    for actor in actors:
        label = printable(f"{actor.name} ({actor.host}, pid {actor.pid})")
        ids = number(1, PROCESSES_FROM + actor.process) + number(5, hosts[actor.host])
        yield _descriptor(ids + message(3, number(1, actor.process + 1) + text(6, label)))


def _track(track: Track) -> bytes:
    label = printable(track.name) + (f" ({track.lane + 1})" if track.lane else "")
    body = number(1, track.number) + number(5, PROCESSES_FROM + track.process)
    if track.kind == "thread" and not track.lane:
        thread = number(1, track.process + 1) + number(2, track.number) + text(5, label)
        return _descriptor(body + message(4, thread))
    return _descriptor(body + text(2, label))


def _descriptor(body: bytes) -> bytes:
    return message(PACKET, number(SEQUENCE, (1 << 27) + 1) + message(DESCRIPTOR, body))


def _first_packet(process: int) -> bytes:
    names = message(INTERNED, message(ANNOTATION_NAMES, number(1, BYTES_NAME) + text(2, "bytes")))
    return message(PACKET, number(SEQUENCE, process + 1) + number(FLAGS, CLEARED) + names)


def _intern(block: Slices, known: dict[str, int]) -> tuple[bytes, Array]:
    """A packet with the names that are new, and for each slice the number of its name."""
    used = np.unique(block.name.codes)
    ids = np.zeros(len(block.name.values) + 1, np.int64)
    fresh = b""
    for code in used.tolist():
        name = block.name.values[code]
        if name not in known:
            known[name] = len(known) + 1
            fresh += message(EVENT_NAMES, number(1, known[name]) + text(2, printable(name) or "unnamed"))
        ids[code] = known[name]
    packet = message(PACKET, number(SEQUENCE, block.process + 1) + number(FLAGS, NEEDED) + message(INTERNED, fresh))
    return packet if fresh else b"", ids[block.name.codes]


def _packets(block: Slices, order: Array, opens: Array, name_ids: Array) -> bytes:
    time_ns = np.where(opens, block.start_ns[order], block.end_ns[order])
    kinds = np.where(opens, (block.flow[order] > 0) + 2 * (block.bytes[order] > 0), 4)
    widths = np.array([len(template.bytes) for template in TEMPLATES])[kinds]
    ends = np.cumsum(widths)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for kind, template in enumerate(TEMPLATES):
        places = np.flatnonzero(kinds == kind)
        if len(places):
            begins = (ends[places] - widths[places]).astype(np.int64)
            out[begins[:, None] + np.arange(len(template.bytes))] = template.filled(
                block, order[places], time_ns[places], name_ids
            )
    return out.tobytes()
