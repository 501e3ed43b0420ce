"""Times of trace records on the Unix clock, and what there is of each layer; the twin of native/trace_times.c."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.rank_file import EVENT_PHASE, LAP, Rows
from rankscope.rank_files.clock import Clock, CuptiClock
from rankscope.readers.rows import native_function

LAYERS = 16  # RS_TRACE_LAYERS
KEPT = np.dtype([("events", "i8"), ("first_ns", "i8"), ("last_ns", "i8")])
MOST = np.dtype([("name", "u4"), ("group", "u4"), ("phase", "u4"), ("layer", "u4")])
CLOCK = np.dtype([("origin", "i8"), ("origin_unix_ns", "i8"), ("ns_per_unit", "f8")])
FURTHEST = 2.0**61  # 73 years: added to the largest time it still fits
IN_NS = sum(1 << layer for layer in rank_file.IN_NS)


def _nothing_kept() -> Any:
    made = np.zeros(LAYERS, KEPT)
    made["first_ns"], made["last_ns"] = 2**63 - 1, -(2**63)
    return made


@dataclass(slots=True)
class Seen:
    """What came by: events and time span of each layer, and the largest numbers that point elsewhere."""

    kept: Any = field(default_factory=_nothing_kept)
    most: Any = field(default_factory=lambda: np.zeros(1, MOST))

    def add(self, rows: Rows, start_ns: Any, end_ns: Any) -> None:
        if not len(rows):
            return
        told = (rows["name"], rows["group"], rows["flags"] & EVENT_PHASE, rows["layer"])
        for name, values in zip(MOST.names or (), told, strict=True):
            self.most[name] = max(int(self.most[name][0]), int(values.max()))
        for layer in np.unique(rows["layer"][rows["layer"] < LAYERS]).tolist():
            of_layer, one = rows["layer"] == layer, self.kept[layer : layer + 1]
            one["events"] += np.count_nonzero(of_layer)
            one["first_ns"] = min(int(one["first_ns"][0]), int(start_ns[of_layer].min()))
            one["last_ns"] = max(int(one["last_ns"][0]), int(end_ns[of_layer].max()))


@dataclass(slots=True)
class Clocks:
    """The clocks of a process by which its events are timed, each layer by its own."""

    ticks: Clock
    cupti: CuptiClock

    def times(self, rows: Rows, seen: Seen | None = None) -> tuple[Any, Any]:
        """Start and end of each event, Unix time; what they tell is added to what was seen."""
        seen = seen or Seen()
        native = native_function("rankscope_trace_times")
        if native is None or not len(rows):
            return self.times_in_python(rows, seen)
        rows = np.ascontiguousarray(rows)
        start_ns, end_ns = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        clocks = self._as_rows()
        into = (start_ns.ctypes.data, end_ns.ctypes.data, seen.kept.ctypes.data, seen.most.ctypes.data)
        native(rows.ctypes.data, len(rows), clocks.ctypes.data, IN_NS, *into)
        return start_ns, end_ns

    def _as_rows(self) -> Any:
        made = np.zeros(2, CLOCK)
        made["origin"] = self.ticks.origin_ticks % 2**63, self.cupti.origin_ns % 2**63
        made["origin_unix_ns"] = min(self.ticks.origin_unix_ns, 2**61), self.cupti.origin_unix_ns
        made["ns_per_unit"] = self.ticks.ns_per_tick, self.cupti.rate
        return made

    def times_in_python(self, rows: Rows, seen: Seen) -> tuple[Any, Any]:
        durations = rows["duration_low"] + ((rows["mark"] & np.uint32(LAP - 1)).astype(np.uint64) << np.uint64(32))
        of_gpu = np.isin(rows["layer"], rank_file.IN_NS)
        start_ns = np.where(of_gpu, self.cupti.unix_ns(rows["start_ticks"]), self.ticks.unix_ns(rows["start_ticks"]))
        rate = np.where(of_gpu, self.cupti.rate, self.ticks.ns_per_tick)
        end_ns = start_ns + np.rint(np.minimum(durations * rate, FURTHEST)).astype(np.int64)
        seen.add(rows, start_ns, end_ns)
        return start_ns, end_ns
