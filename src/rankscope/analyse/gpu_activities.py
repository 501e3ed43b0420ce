"""What the GPUs of one process did, block by block: lengths by name, and when each device was at work.

Of an activity only nine bytes are kept. Blocks may come in any order, and activities in any order within them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analyse.gpu_lengths import Lengths, join, lengths_by_code
from rankscope.analyse.selection import Selection
from rankscope.analyse.words import ranges
from rankscope.model import Table, Tables, Words

Ints = NDArray[np.int64]

COMPUTE, COMMUNICATION, COPY, SET = KINDS = ("compute", "communication", "copy", "set")
# at the beginning of a word: in a mangled name that is after the word's length
COMMUNICATES = re.compile(r"(?:^|\W|^_Z\w*\d)(?:nccl|rccl|msccl|oneccl|nvshmem|deep_ep|cross_device_reduce|multimem_)")
COPIES = re.compile(r"\[?(?:CUDA |HIP )?[mM]emcpy|Copy(?:Host|Device)To|dma")
SETS = re.compile(r"\[?(?:CUDA |HIP )?[mM]emset|FillBuffer")
SQL = (
    """SELECT name, "group", start_ns, end_ns FROM events WHERE process = ? AND layer = 'gpu' AND end_ns IS NOT NULL"""
)


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
    kind: NDArray[np.int8]

    def rows(self) -> tuple[Ints, Ints, NDArray[np.int8]]:
        start_ns = self.start.astype(np.int64) + self.first_ns
        return start_ns, start_ns + self.length.astype(np.int64), self.kind


@dataclass(slots=True)
class Device:
    """When one device did what."""

    runs: list[Run] = field(default_factory=list)

    def add(self, start_ns: Ints, end_ns: Ints, kind: NDArray[np.int8]) -> None:
        first_ns = int(start_ns.min())
        self.runs.append(Run(first_ns, _small(start_ns - first_ns), _small(end_ns - start_ns), kind))

    def in_order(self) -> Iterator[tuple[Ints, Ints, NDArray[np.int8]]]:
        """Start, end and kind of all activities by their start, some at a time."""
        waiting: list[tuple[Any, ...]] = []
        ordered = sorted(self.runs, key=lambda run: run.first_ns)
        for at, run in enumerate(ordered):
            waiting.append(run.rows())
            start_ns, end_ns, kind = (np.concatenate(column) for column in zip(*waiting, strict=True))
            order = np.argsort(start_ns, kind="stable")
            rows = start_ns[order], end_ns[order], kind[order]
            last = at + 1 == len(ordered)  # nothing that comes later starts before the next run does
            ready = len(order) if last else int(np.searchsorted(rows[0], ordered[at + 1].first_ns))
            yield rows[0][:ready], rows[1][:ready], rows[2][:ready]
            waiting = [tuple(column[ready:] for column in rows)]


def _small(numbers: Ints) -> NDArray[Any]:
    return numbers.astype(np.uint32) if not len(numbers) or int(numbers.max()) < 2**32 else numbers


@dataclass(slots=True)
class Busy:
    """How long at least one of the intervals goes on: the length of their union. They come by their start."""

    total_ns: int = 0
    covered_ns: int = -(2**63)  # up to here all is counted

    def add(self, start_ns: Ints, end_ns: Ints) -> None:
        if not len(start_ns):
            return
        reached_ns = np.maximum.accumulate(np.concatenate([[self.covered_ns], end_ns]))
        fresh_ns = end_ns - np.maximum(start_ns, reached_ns[:-1])
        self.total_ns += int(fresh_ns[fresh_ns > 0].sum())
        self.covered_ns = int(reached_ns[-1])


@dataclass(slots=True)
class GpuWork:
    """The GPU activities of one process."""

    names: dict[str, Lengths] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)


def gpu_work(blocks: Iterable[Mapping[str, Any]]) -> GpuWork:
    """The GPU activities among the event columns of one process."""
    work = GpuWork()
    for columns in blocks:
        rows = _gpu_rows(columns)
        if len(rows):
            _add(work, columns, rows)
    return work


def _gpu_rows(columns: Mapping[str, Any]) -> Ints:
    layer = columns.get("layer")
    if layer is None:  # asked for alone
        return np.arange(len(columns["start_ns"]) if columns else 0)
    return np.flatnonzero(np.array([value == "gpu" for value in layer.values], np.bool_)[layer.codes])


def _add(work: GpuWork, columns: Mapping[str, Any], rows: Ints) -> None:
    start_ns, end_ns = columns["start_ns"][rows], columns["end_ns"][rows]
    name, group = (Words(columns[key].codes[rows], columns[key].values) for key in ("name", "group"))
    found = lengths_by_code(name.codes, end_ns - start_ns)
    join(work.names, ((name.values[code], lengths) for code, lengths in found.items()))
    kinds = np.zeros(len(name.values), np.int8)
    for code in found:
        kinds[code] = KINDS.index(kind_of(name.values[code]))
    kind = kinds[name.codes]
    for device, members in _devices(group):
        work.devices.setdefault(device, Device()).add(start_ns[members], end_ns[members], kind[members])


def _devices(group: Words) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each device, from device/stream, and which rows are its own."""
    present = np.flatnonzero(np.bincount(group.codes, minlength=len(group.values))).tolist()
    devices = {code: group.values[code].partition("/")[0] for code in present}
    for device in sorted(set(devices.values()), key=lambda name: (len(name), name)):
        yield device, np.isin(group.codes, [code for code in present if devices[code] == device])


def say_what_is_lost(tables: Tables, selection: Selection, table: Table) -> None:
    """Warn where a trace has only some of the events, so that a table of them is not taken for the whole."""
    sql = f"SELECT rank FROM ranks WHERE {selection.condition} AND lost_trace_events > 0 ORDER BY rank"
    ranks = [row[0] for row in tables.query(sql)]
    if ranks and table.rows:
        told = f"the trace of rank {ranges(ranks)} has not kept every event"
        table.warnings.append(f"{told}: this is of those it has; the table gpu has all")


def processes(tables: Tables, selection: Selection) -> Iterator[tuple[int, GpuWork]]:
    """Rank and GPU activities of each process that has some."""
    having = "process IN (SELECT process FROM events WHERE layer = 'gpu')"
    sql = f"SELECT process, rank FROM ranks WHERE {selection.condition} AND {having} ORDER BY rank"
    for process, rank in tables.query(sql):
        found = gpu_work([tables.columns(SQL, [process])])
        if found.names:
            yield rank, found
