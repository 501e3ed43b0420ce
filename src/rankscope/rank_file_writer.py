"""Writes rank files as a recorder does: for tests of what reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.rank_file import (
    BYTE_ORDER,
    CHUNK,
    COLLECTIVE,
    CUDA,
    EVENT,
    GROUP,
    HEADER,
    LAP,
    LAPS,
    MAGIC,
    MARK,
    MESSAGE,
    MODULE,
    MOST_DURATION,
    OVERWRITTEN,
    PAGE,
    PATH,
    PEER,
    STEP,
    SYSTEM_CALL,
    TALLY,
    THREAD,
    VERSION,
    Cause,
    ChunkKind,
    CudaState,
    GroupKind,
    LayerNumber,
    MarkKind,
    MessageFlag,
    ModuleFlag,
    Operation,
    Rows,
    State,
    TickSource,
    TraceKeep,
    string_bytes,
    whole_pages,
)


class RankFileWriter:
    """Builds one rank file in memory and writes it in one go: for tests and synthetic runs."""

    def __init__(self, **header: Any) -> None:
        self.header = np.zeros(1, HEADER)
        self.set(magic=MAGIC, version=VERSION, byte_order=BYTE_ORDER, page_bytes=PAGE)
        self.set(header_bytes=whole_pages(HEADER.itemsize), state=State.RUNNING)
        self.set(rank=-1, local_rank=-1, world_size=-1, tick_source=TickSource.MONOTONIC)
        self._strings: dict[str, int] = {"": 0}
        self._groups: list[tuple[Any, ...]] = []
        self._tallies: dict[int, list[Rows]] = {}
        self._peers: dict[int, list[Rows]] = {}
        self._log: Rows = np.zeros(0, COLLECTIVE)
        self._rings: list[tuple[ChunkKind, Rows, int]] = []
        self._trace: Rows = np.zeros(0, EVENT)
        self._cuda: Rows = np.zeros(0, CUDA)
        self._threads: list[tuple[Any, ...]] = []
        self._unwrapped: list[int] = []
        self._tables: list[tuple[ChunkKind, Rows]] = []
        self._paths = b""
        self.set(**header)

    def set(self, **header: Any) -> None:
        """Set header fields by name; a dict sets the members of an anchor or of the facts."""
        for name, value in header.items():
            _assign(self.header, name, value)

    def string(self, text: str) -> int:
        """The id of a string, which is entered at its first use."""
        return self._strings.setdefault(text, len(self._strings))

    def group(self, name: str, **fields: Any) -> int:
        """Enter a communicator, window or file and give its id."""
        row = np.zeros(1, GROUP)
        for key, value in {"kind": GroupKind.COMM, **fields, "name": self.string(name)}.items():
            row[key] = value
        self._groups.append(row[0])
        return len(self._groups)

    def tally(self, name: str, calls: int, total_ticks: int, *, thread: int = 0, **fields: Any) -> None:
        """Enter one tally row; where min, max or the squares are not given, all calls took the same time."""
        each = total_ticks // calls if calls else 0
        defaults: dict[str, Any] = {"min_ticks": each, "max_ticks": each, "layer": LayerNumber.MPI}
        defaults["sum_squares_ticks2"] = float(each) * each * calls
        row = np.zeros(1, TALLY)
        given = {"name": self.string(name), "calls": calls, "total_ticks": total_ticks}
        for key, value in {**defaults, **fields, **given}.items():
            row[key] = value
        self.tallies(row, thread)

    def tallies(self, rows: Rows, thread: int = 0) -> None:
        """Enter ready-made tally rows of one thread."""
        self._tallies.setdefault(thread, []).append(rows)

    def peers(self, rows: Iterable[tuple[int, int, int]], thread: int = 0) -> None:
        """Enter (world rank, calls, bytes) rows of one thread."""
        peers = np.array([(rank, 0, calls, size) for rank, calls, size in rows], PEER)
        self._peers.setdefault(thread, []).append(peers)

    def collectives(self, rows: Rows, capacity: int | None = None) -> None:
        """Fill the ring as if these records had been claimed in order, the oldest ones overwritten."""
        capacity = max(1, len(rows)) if capacity is None else capacity
        numbers = np.arange(1, len(rows) + 1, dtype=np.uint64)
        rows = rows.copy()
        rows["number"] = numbers.astype(np.uint32)
        self._log = np.zeros(capacity, COLLECTIVE)
        newest = slice(max(0, len(rows) - capacity), None)
        self._log[(numbers[newest] - np.uint64(1)) % np.uint64(capacity)] = rows[newest]
        self.set(log_capacity=capacity, log_written=len(rows))

    def messages(self, rows: Rows, thread: int = 0, capacity: int | None = None) -> None:
        """Fill a thread's ring of messages in the same way, those that are overwritten counted by their envelopes."""
        capacity = max(1, len(rows)) if capacity is None else capacity
        rows = rows.copy()
        rows["number"] = np.arange(1, len(rows) + 1)
        ring, gone = np.zeros(capacity, MESSAGE), rows[: max(0, len(rows) - capacity)]
        ring[(rows["number"][len(gone) :] - np.uint64(1)) % np.uint64(capacity)] = rows[len(gone) :]
        self._rings.append((ChunkKind.MESSAGES, ring, thread))
        counts: dict[tuple[int, int, int], int] = {}
        for row in gone:
            receives = int(row["flags"] & MessageFlag.RECEIVE)
            key = int(row["group"]) << 16 | receives << 56 | 1
            envelope = (int(row["peer"]), int(row["tag"]), key)
            counts[envelope] = counts.get(envelope, 0) + 1
        if counts:
            lost = np.array([(*envelope, count) for envelope, count in counts.items()], OVERWRITTEN)
            self._rings.append((ChunkKind.OVERWRITTEN, lost, thread))

    def trace(
        self, rows: Rows, durations: Any, capacity: int | None = None, keep: TraceKeep = TraceKeep.NEWEST
    ) -> None:
        """Fill the trace as if these events had come in this order, more of them than it may hold."""
        capacity = max(1, len(rows)) if capacity is None else capacity
        numbers = np.arange(len(rows), dtype=np.uint64)
        durations = np.minimum(np.asarray(durations, np.uint64), np.uint64(MOST_DURATION))
        laps = numbers // np.uint64(capacity) % np.uint64(LAPS) + np.uint64(1)
        rows = rows.copy()
        rows["duration_low"] = durations & np.uint64(0xFFFFFFFF)
        rows["mark"] = laps * np.uint64(LAP) + (durations >> np.uint64(32))
        chosen = slice(0, capacity) if keep == TraceKeep.OLDEST else slice(max(0, len(rows) - capacity), None)
        self._trace = np.zeros(capacity, EVENT)
        self._trace[numbers[chosen] % np.uint64(capacity)] = rows[chosen]
        by_layer = np.bincount(rows["layer"], minlength=16)[:16]
        self.set(trace_capacity=capacity, trace_written=len(rows), trace_keep=keep, trace_events=by_layer)

    def cuda(self, **fields: Any) -> None:
        """Say how CUPTI was listened to."""
        self._cuda = np.zeros(1, CUDA)
        for name, value in {"state": CudaState.RECORDING, **fields}.items():
            self._cuda[name] = value

    def steps(self, rows: Rows, capacity: int | None = None) -> None:
        """Fill the ring of steps in the order of their numbers, the oldest ones overwritten."""
        capacity = max(1, len(rows)) if capacity is None else capacity
        ring = np.zeros(capacity, STEP)
        for row in rows:
            ring[(int(row["number"]) - 1) % capacity] = row
        self._tables.append((ChunkKind.STEPS, ring))

    def step_blocks(self, rows: Rows) -> None:
        """Enter blocks of steps as they are, in the rows of one chunk."""
        self._tables.append((ChunkKind.STEP_BLOCKS, rows))

    def marks(self, *marks: tuple[MarkKind, int, str]) -> None:
        """Enter moments: kind, ticks, name."""
        rows = np.array([(ticks, kind, self.string(name), 0) for kind, ticks, name in marks], MARK)
        self._tables.append((ChunkKind.MARKS, rows))

    def modules(self, *modules: Mapping[str, Any]) -> None:
        """Enter imports, the first with id 1: their fields, `name` as text; they have ended unless `flags` says so."""
        rows = np.zeros(len(modules), MODULE)
        for row, given in zip(rows, modules, strict=True):
            for key, value in {"flags": ModuleFlag.ENDED, **given}.items():
                row[key] = self.string(value) if key == "name" else value
        self._tables.append((ChunkKind.MODULES, rows))

    def system_call(
        self, module: int, cause: Cause, number: int, mount: str = "", fs_type: str = "", **fields: int
    ) -> None:
        """Enter calls of one kind (`number` as on x86-64): calls, failed, missing, ticks, bytes."""
        mount_id = self.string(f"{fs_type} {mount}") if mount else 0
        row = np.zeros(1, SYSTEM_CALL)
        row["key"] = module | cause << 20 | number << 24 | mount_id << 36 | 1 << 63
        for key, value in fields.items():
            row[key] = value
        self._tables.append((ChunkKind.SYSTEM_CALLS, row))

    def path(
        self,
        path: str,
        operation: Operation,
        module: int = 0,
        cause: Cause = Cause.SEARCH,
        *,
        result: int = 0,
        times: int = 1,
        size_bytes: int = 0,
    ) -> None:
        """Enter one path that was asked for."""
        raw = path.encode("utf-8", "surrogateescape")
        record_bytes = PATH.itemsize + (len(raw) + 8) // 8 * 8
        row = np.array([(record_bytes, len(raw), module, cause, operation, result, times, size_bytes)], PATH)
        self._paths += (row.tobytes() + raw).ljust(record_bytes, b"\0")

    def thread(
        self, slot: int, tid: int, name: str = "", call: int = 0, call_ticks: int = 0, call_tag: int = -(2**31)
    ) -> None:
        """Enter a thread, and the call it waits in, if any."""
        self._threads.append((slot, tid, 0, name.encode(), call, call_ticks, call_tag, 0, 0))

    def unwrapped(self, *names: str) -> None:
        """Enter entry points of the MPI library that are not intercepted."""
        self._unwrapped += [self.string(name) for name in names]

    def to_bytes(self) -> bytes:
        """The finished file."""
        chunks = b"".join(self._chunks())
        used = int(self.header["header_bytes"][0]) + len(chunks)
        self.set(used_bytes=used, reserved_bytes=used, bound_bytes=max(used, int(self.header["bound_bytes"][0])))
        return self.header.tobytes().ljust(int(self.header["header_bytes"][0]), b"\0") + chunks

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the file, making its folder where there is none."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.to_bytes())
        return target

    def _chunks(self) -> Iterable[bytes]:
        yield _chunk(ChunkKind.STRINGS, _string_bytes(list(self._strings)[1:]), row_bytes=0, first_id=1)
        if self._groups:
            yield _table_chunk(ChunkKind.GROUPS, np.array(self._groups, GROUP), first_id=1)
        for thread, parts in self._tallies.items():
            yield _table_chunk(ChunkKind.TALLIES, np.concatenate(parts), thread=thread)
        for thread, parts in self._peers.items():
            yield _table_chunk(ChunkKind.PEERS, np.concatenate(parts), thread=thread)
        if len(self._log):
            yield _table_chunk(ChunkKind.LOG, self._log)
        yield from (_table_chunk(kind, rows, thread=thread) for kind, rows, thread in self._rings)
        if len(self._cuda):
            yield _table_chunk(ChunkKind.CUDA, self._cuda)
        if len(self._trace):
            yield _table_chunk(ChunkKind.TRACE, self._trace)
        yield from (_table_chunk(kind, rows) for kind, rows in self._tables)
        if self._paths:
            yield _chunk(ChunkKind.PATHS, self._paths, row_bytes=0)
        if self._threads:
            yield _table_chunk(ChunkKind.THREADS, np.array(self._threads, THREAD))
        if self._unwrapped:
            yield _chunk(ChunkKind.UNWRAPPED, np.array(self._unwrapped, np.uint32).tobytes(), row_bytes=4)


def _assign(record: Any, name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for member, inner in value.items():
            _assign(record[name], member, inner)
    else:
        record[name] = np.void(value.ljust(1024, b"\0")) if name == "command" else value


def _string_bytes(strings: Iterable[str]) -> bytes:
    return b"".join(_one_string(text.encode("utf-8", "surrogateescape")) for text in strings)


def _one_string(raw: bytes) -> bytes:
    return (np.uint32(len(raw)).tobytes() + raw).ljust(string_bytes(len(raw)), b"\0")


def _table_chunk(kind: ChunkKind, rows: Rows, thread: int = 0, first_id: int = 0) -> bytes:
    return _chunk(kind, rows.tobytes(), row_bytes=rows.dtype.itemsize, thread=thread, first_id=first_id)


def _chunk(kind: ChunkKind, body: bytes, row_bytes: int, thread: int = 0, first_id: int = 0) -> bytes:
    size = whole_pages(CHUNK.itemsize + len(body))
    rows = len(body) // (row_bytes or 1)
    head = np.array((kind, thread, size, row_bytes, rows, first_id, b""), CHUNK)
    return (head.tobytes() + body).ljust(size, b"\0")
