"""What the GPUs of one process did, block by block: lengths by name, and when each device was at work.

Of an activity some fifteen bytes are kept. Blocks may come in any order, and activities in any order within them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analyse.gpu_lengths import Lengths
from rankscope.analyse.trace_twins import LENGTH_SUM, empty_sums
from rankscope.analyse.vocabulary import Vocabulary
from rankscope.model import Table, Tables, Words
from rankscope.questions.events.sums import add_lengths
from rankscope.questions.selection import Selection
from rankscope.questions.wording import ranges

Ints = NDArray[np.int64]
Array = Any

COMPUTE, COMMUNICATION, COPY, SET = KINDS = ("compute", "communication", "copy", "set")
# at the beginning of a word: in a mangled name that is after the word's length
COMMUNICATES = re.compile(r"(?:^|\W|^_Z\w*\d)(?:nccl|rccl|msccl|oneccl|nvshmem|deep_ep|cross_device_reduce|multimem_)")
COPIES = re.compile(r"\[?(?:CUDA |HIP )?[mM]emcpy|Copy(?:Host|Device)To|dma")
SETS = re.compile(r"\[?(?:CUDA |HIP )?[mM]emset|FillBuffer")
NONE = -1  # of a correlation


def kind_of(name: str) -> str:
    """What an activity does, by its name: copies and sets have one, NCCL and its kin have theirs, all else computes."""
    if COPIES.match(name):
        return COPY
    if SETS.match(name):
        return SET
    return COMMUNICATION if COMMUNICATES.search(name) else COMPUTE


@dataclass(frozen=True, slots=True)
class Run:
    """Activities of one device in one block: times from the first start on, in as few bytes as they fit in."""

    first_ns: int
    start: NDArray[Any]
    length: NDArray[Any]
    kind: NDArray[np.uint8]
    stream: Array
    correlation: Array | None

    def rows(self) -> tuple[Array, ...]:
        start_ns = self.start.astype(np.int64) + self.first_ns
        calls = np.full(len(self.start), NONE, np.int64) if self.correlation is None else self.correlation
        return start_ns, start_ns + self.length.astype(np.int64), self.kind, self.stream, calls


@dataclass(slots=True)
class Device:
    """When one device did what."""

    runs: list[Run] = field(default_factory=list)

    def add(
        self, start_ns: Ints, end_ns: Ints, kind: Array, stream: Array | None = None, correlation: Array | None = None
    ) -> None:
        first_ns = int(start_ns.min())
        streams = np.zeros(len(kind), np.uint16) if stream is None else _small(stream, np.uint16)
        times = _small(start_ns - first_ns), _small(end_ns - start_ns)
        self.runs.append(Run(first_ns, *times, kind.astype(np.uint8), streams, correlation))

    def in_order(self) -> Iterator[tuple[Array, ...]]:
        """Start, end, kind, stream and correlation of all activities by their start, some at a time."""
        waiting: list[tuple[Array, ...]] = []
        ordered = sorted(self.runs, key=lambda run: run.first_ns)
        for at, run in enumerate(ordered):
            waiting.append(run.rows())
            columns = waiting[0] if len(waiting) == 1 else tuple(map(np.concatenate, zip(*waiting, strict=True)))
            rows = _by_start(columns)
            last = at + 1 == len(ordered)  # nothing that comes later starts before the next run does
            ready = len(rows[0]) if last else int(np.searchsorted(rows[0], ordered[at + 1].first_ns))
            yield tuple(column[:ready] for column in rows)
            waiting = [tuple(column[ready:] for column in rows)] if ready < len(rows[0]) else []


def _by_start(columns: tuple[Array, ...]) -> tuple[Array, ...]:
    start_ns = columns[0]
    if bool((start_ns[1:] >= start_ns[:-1]).all()):
        return columns
    order = np.argsort(start_ns, kind="stable")
    return tuple(column[order] for column in columns)


def _small(numbers: Array, kind: Any = np.uint32) -> NDArray[Any]:
    fits = not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) <= np.iinfo(kind).max)
    return np.asarray(numbers.astype(kind) if fits else numbers)


class GpuWork:
    """The GPU activities of one process."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self.streams = Vocabulary()
        self._names = Vocabulary()
        self._sums = empty_sums(LENGTH_SUM, 0)
        self._kinds = np.zeros(0, np.uint8)

    @property
    def names(self) -> dict[str, Lengths]:
        """The lengths of the activities of each name."""
        return {name: _lengths(row) for name, row in zip(self._names, self._sums.tolist(), strict=True)}

    def add(self, columns: Mapping[str, Any], rows: Array) -> None:
        """Those rows of a block, which are GPU activities."""
        start_ns, end_ns = _taken(columns["start_ns"], rows), _taken(columns["end_ns"], rows)
        name, stream = (_words(columns[key], rows) for key in ("name", "group"))
        codes, streams = self._names.codes(name), self.streams.codes(stream)
        self._make_room()
        add_lengths(codes, start_ns, end_ns, self._sums)
        kind, correlation = self._kinds[codes], _correlation(columns, rows)
        for device, members in _devices(stream):
            told = start_ns, end_ns, kind, streams, correlation
            chosen = told if members is None else (one if one is None else one[members] for one in told)
            self.devices.setdefault(device, Device()).add(*chosen)

    def _make_room(self) -> None:
        more = list(self._names)[len(self._sums) :]
        if more:
            self._sums = np.concatenate([self._sums, empty_sums(LENGTH_SUM, len(more))])
            fresh = np.array([KINDS.index(kind_of(name)) for name in more], np.uint8)
            self._kinds = np.concatenate([self._kinds, fresh])


def _lengths(row: tuple[int, ...]) -> Lengths:
    calls, total_ns, min_ns, max_ns, low, high = row
    return Lengths(calls, total_ns, min_ns, max_ns, ((high << 64 | low) * calls - total_ns * total_ns) / calls)


def _taken(column: Array, rows: Array) -> Array:
    return np.asarray(column[rows], np.int64)


def _words(words: Words, rows: Array) -> Words:
    return Words(words.codes[rows], words.values)


def _correlation(columns: Mapping[str, Any], rows: Array) -> Array | None:
    """The number by which a call and what it launched name each other; None where no row has one."""
    if columns.get("correlation") is None:
        return None
    found = np.ma.filled(columns["correlation"][rows], NONE).astype(np.int64)
    return found if len(found) and int(found.max()) >= 0 else None


def gpu_work(blocks: Iterable[Mapping[str, Any]]) -> GpuWork:
    """The GPU activities among the event columns of one process."""
    work = GpuWork()
    for columns in blocks:
        rows = rows_of_layers(columns, ("gpu",))
        if len(rows):
            work.add(columns, rows)
    return work


def rows_of_layers(columns: Mapping[str, Any], layers: Iterable[str]) -> Array:
    """Which rows of a block belong to these layers."""
    layer = columns.get("layer")
    if layer is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.array([value in layers for value in layer.values], np.bool_)[layer.codes])


def _devices(group: Words) -> Iterator[tuple[str, NDArray[np.bool_] | None]]:
    """Each device, from device/stream, and which rows are its own (None: all)."""
    present = np.flatnonzero(np.bincount(group.codes, minlength=len(group.values))).tolist()
    devices = {code: group.values[code].partition("/")[0] for code in present}
    different = sorted(set(devices.values()), key=lambda name: (len(name), name))
    for device in different:
        own = np.array([devices.get(code) == device for code in range(len(group.values))], np.bool_)
        yield device, own[group.codes] if len(different) > 1 else None


def say_what_is_lost(tables: Tables, selection: Selection, table: Table) -> None:
    """Warn where a trace has only some of the events, so that a table of them is not taken for the whole."""
    sql = f"SELECT rank FROM ranks WHERE {selection.condition} AND lost_trace_events > 0 ORDER BY rank"
    ranks = [row[0] for row in tables.query(sql)]
    if ranks and table.rows:
        told = f"the trace of rank {ranges(ranks)} has not kept every event"
        table.warnings.append(f"{told}: this is of those it has; the table gpu has all")
