"""Gives the events of a rank file's trace block by block: they may be more than memory holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.model.records import PHASES, BadFile
from rankscope.model.tables import Words
from rankscope.rank_file import EVENT_PHASE, ChunkKind, CollectiveFlag, EventFlag, Kind, LayerNumber, Rows
from rankscope.rank_files.chunks import RankFile, open_rank_file
from rankscope.rank_files.clock import Clock, CuptiClock
from rankscope.rank_files.cuda import cuda_rows_of
from rankscope.rank_files.read import KINDS, LAYERS, group_of, log_rows
from rankscope.rank_files.trace import TraceClocks, trace_blocks

Columns = Mapping[str, Any]
IN_LOGS = np.isin(np.arange(256), (LayerNumber.MPI, LayerNumber.NCCL, LayerNumber.ONECCL))


def trace_events(path: Path) -> Iterator[Columns]:
    """The events of one file that its collective log does not tell of, as columns."""
    file = open_rank_file(path)
    if not file.header["trace_keep"]:
        return
    clock = Clock(file.header)
    clocks = TraceClocks(clock, CuptiClock(clock, cuda_rows_of(file)[0]))
    log, names = Logged(log_rows(file)), Names(file)
    for rows in trace_blocks(file):
        known = log.has(rows)
        yield _columns(rows[~known] if known.any() else rows, clocks, names)


class Logged:
    """The collectives that come from the log, with their sequence: the trace must not tell of them once more."""

    def __init__(self, log: Rows) -> None:
        nonblocking, device = (
            (log["flags"] & flag) != 0 for flag in (CollectiveFlag.NONBLOCKING, CollectiveFlag.DEVICE)
        )
        # on the device, the log has the start there and how long after the call it was
        start_ticks = log["enter_ticks"] - np.where(device, log["call_ticks"], 0).astype(np.uint64)
        # of a nonblocking one the log tells the completion, and the time in the call except where it is on the device
        parts = [
            (log[~nonblocking], start_ticks[~nonblocking], Kind.CALL),
            (log, start_ticks, Kind.PROGRESS),  # oneCCL's may be known to have blocked only when they were over
            (log[nonblocking & ~device], start_ticks[nonblocking & ~device], Kind.CALL),
        ]
        keys = [_keys(ticks, rows["name"], rows["group"], kind) for rows, ticks, kind in parts]
        self._keys = np.sort(np.concatenate(keys))

    def has(self, rows: Rows) -> Any:
        """Which of these events are in the log."""
        inside = np.zeros(len(rows), np.bool_)
        may_be = np.flatnonzero(IN_LOGS[rows["layer"]])
        if len(may_be) and len(self._keys):
            inside[may_be] = self._has(rows[may_be])
        return inside

    def _has(self, rows: Rows) -> Any:
        kinds = np.where(rows["flags"] & EventFlag.PROGRESS, Kind.PROGRESS, Kind.CALL)
        keys = _keys(rows["start_ticks"], rows["name"], rows["group"], kinds)
        at = np.searchsorted(self._keys, keys)
        return (np.append(self._keys, np.uint64(0))[at] == keys) & (at < len(self._keys))


def _keys(start_ticks: Any, name: Any, group: Any, kind: Any) -> Any:
    """What tells one event from another, mixed into 64 bits: the start alone already almost does."""
    words = name.astype(np.uint64) << np.uint64(17) | group.astype(np.uint64) << np.uint64(1)
    words |= np.asarray(kind, np.uint64)
    return start_ticks.astype(np.uint64) ^ words * np.uint64(0x9E3779B97F4A7C15)


class Names:
    """Strings and groups of a file that may be growing: looked at again where an event names a newer one."""

    def __init__(self, file: RankFile) -> None:
        self.path, self._file = file.path, file
        self._look()

    def _look(self) -> None:
        rows = [row for part in self._file.parts(ChunkKind.GROUPS) for row in part.rows.copy()]
        self.strings = self._file.strings()
        self.groups = ["", *(group_of(row, self.strings, self._file.path).name for row in rows)]

    def of(self, rows: Rows) -> tuple[Words, Words]:
        """The names and the groups of these events."""
        if self._lacks(rows):
            self._look()
        if self._lacks(rows):
            raise BadFile(f"{self._file.path}: the trace has a name or a group that is not in the file")
        return Words(rows["name"].astype(np.int32), self.strings), Words(rows["group"].astype(np.int32), self.groups)

    def _lacks(self, rows: Rows) -> bool:
        wanted = ((rows["name"], self.strings), (rows["group"], self.groups))
        return any(len(codes) and int(codes.max()) >= len(values) for codes, values in wanted)


class LateColumns(Mapping[str, Any]):
    """Columns, each made when it is asked for: sums need few of them."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers = makers
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def _columns(rows: Rows, clocks: TraceClocks, names: Names) -> Columns:
    start_ns, end_ns = clocks.times(rows)
    name, group = names.of(rows)
    flags = rows["flags"]
    if len(rows) and (int((flags & EVENT_PHASE).max()) >= len(PHASES) or int(rows["layer"].max()) >= len(LAYERS)):
        raise BadFile(f"{names.path}: the trace has a phase or a layer that is not known")
    return LateColumns(
        {
            "layer": lambda: Words(rows["layer"].astype(np.int32), LAYERS),
            "name": lambda: name,
            "start_ns": lambda: start_ns,
            "end_ns": lambda: end_ns,
            "group": lambda: group,
            "bytes": lambda: np.minimum(rows["bytes"], np.uint64(2**63 - 1)).astype(np.int64),
            "phase": lambda: Words((flags & EVENT_PHASE).astype(np.int32), PHASES),
            "thread": lambda: rows["thread"].astype(np.int32),
            "kind": lambda: Words(((flags & EventFlag.PROGRESS) != 0).astype(np.int32), KINDS),
            "failed": lambda: (flags & EventFlag.FAILED) != 0,
        }
    )
