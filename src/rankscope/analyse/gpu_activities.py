"""What the GPUs of one process did: kernels, copies and sets as arrays, and the arithmetic of time intervals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analyse.selection import Selection
from rankscope.model import Tables, Words

Ints = NDArray[np.int64]

COMPUTE, COMMUNICATION, COPY, SET = KINDS = ("compute", "communication", "copy", "set")
COMMUNICATES = re.compile(r"(?:^|\W)(?:nccl|rccl|msccl|oneccl|nvshmem|deep_ep|cross_device_reduce|multimem_)")
COPIES = re.compile(r"\[?(?:CUDA |HIP )?[mM]emcpy|Copy(?:Host|Device)To|dma")
SETS = re.compile(r"\[?(?:CUDA |HIP )?[mM]emset|FillBuffer")
SQL = (
    """SELECT name, "group", start_ns, end_ns FROM events WHERE process = ? AND layer = 'gpu' AND end_ns IS NOT NULL"""
)


@dataclass(slots=True)
class Activities:
    """The GPU activities of one process."""

    names: list[str]
    groups: list[str]  # device/stream
    name: NDArray[np.int32]  # a number into names
    group: NDArray[np.int32]  # a number into groups
    start_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def where(self, wanted: NDArray[np.bool_]) -> Activities:
        """Some of them."""
        columns: Any = (column[wanted] for column in (self.name, self.group, self.start_ns, self.end_ns))
        return Activities(self.names, self.groups, *columns)

    def kinds(self) -> NDArray[np.int8]:
        """Of each activity its place in KINDS."""
        return np.array([KINDS.index(kind_of(name)) for name in self.names], np.int8)[self.name]

    def by_device(self) -> Iterator[tuple[str, Activities]]:
        """The activities of each device."""
        devices = [group.partition("/")[0] for group in self.groups]
        for device in sorted(set(devices), key=lambda name: (len(name), name)):
            members = np.array([one == device for one in devices], np.bool_)
            yield device, self.where(members[self.group])


def kind_of(name: str) -> str:
    """What an activity does, by its name: copies and sets have one, NCCL and its kin have theirs, all else computes."""
    if COPIES.match(name):
        return COPY
    if SETS.match(name):
        return SET
    return COMMUNICATION if COMMUNICATES.search(name) else COMPUTE


def activities(blocks: Iterable[Mapping[str, Any]]) -> Activities:
    """The GPU activities among the event columns of one process, which come block by block."""
    names: dict[str, int] = {}
    groups: dict[str, int] = {}
    parts: list[tuple[Any, ...]] = []
    for columns in blocks:
        rows = _gpu_rows(columns)
        if len(rows):
            name, group = _numbers(columns["name"], rows, names), _numbers(columns["group"], rows, groups)
            parts.append((name, group, columns["start_ns"][rows], columns["end_ns"][rows]))
    kinds = (np.int32, np.int32, np.int64, np.int64)
    empty = tuple(np.empty(0, kind) for kind in kinds)
    columns_of_all = zip(zip(empty, *parts, strict=True), kinds, strict=True)
    joined: Any = (np.concatenate(column, dtype=kind) for column, kind in columns_of_all)
    return Activities(list(names), list(groups), *joined)


def _gpu_rows(columns: Mapping[str, Any]) -> Ints:
    layer = columns.get("layer")
    if layer is None:  # asked for alone
        return np.arange(len(columns["start_ns"]) if columns else 0)
    return np.flatnonzero(np.array([value == "gpu" for value in layer.values], np.bool_)[layer.codes])


def _numbers(column: Words, rows: Ints, known: dict[str, int]) -> NDArray[np.int32]:
    """The words of these rows, by numbers that are the same in all blocks."""
    codes = column.codes[rows]
    numbers = np.zeros(len(column.values), np.int32)
    for code in np.flatnonzero(np.bincount(codes, minlength=len(column.values))).tolist():
        numbers[code] = known.setdefault(column.values[code], len(known))
    return np.asarray(numbers[codes], np.int32)


def busy_ns(start_ns: Ints, end_ns: Ints) -> int:
    """How long at least one of the intervals goes on: the length of their union."""
    if not len(start_ns):
        return 0
    order = np.argsort(start_ns, kind="stable")
    start_ns, end_ns = start_ns[order], end_ns[order]
    covered_ns = np.maximum.accumulate(end_ns)
    fresh_ns = end_ns.copy()
    fresh_ns[0] -= start_ns[0]
    fresh_ns[1:] -= np.maximum(start_ns[1:], covered_ns[:-1])
    return int(np.maximum(fresh_ns, 0).sum())


def processes(tables: Tables, selection: Selection) -> Iterator[tuple[int, Activities]]:
    """Rank and GPU activities of each process that has some."""
    for process, rank in tables.query(f"SELECT process, rank FROM ranks WHERE {selection.condition} ORDER BY rank"):
        found = activities([tables.columns(SQL, [process])])
        if len(found):
            yield rank, found
