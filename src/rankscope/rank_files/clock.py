"""Turns the ticks of a rank file into nanoseconds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rankscope.model.gpu import GpuClock
from rankscope.rank_file import Rows, TickSource

MONOTONIC = int(TickSource.MONOTONIC)
SLOWEST_NS_PER_TICK = 1e5  # 10 kHz: anything outside these bounds is a damaged anchor, not a clock
FASTEST_NS_PER_TICK = 1e-2
LEAST_CUPTI_SPAN_NS = 500_000_000  # a reading of both clocks is off by some microseconds
MOST_CUPTI_DRIFT = 1e-3


class Clock:
    """The tick clock of one process, from the two anchors in its header."""

    def __init__(self, header: Any) -> None:
        self.origin_ticks = int(header["loaded"]["ticks"])
        self.origin_unix_ns = int(header["loaded"]["realtime_ns"])
        self._first_ticks, self._first_unix_ns = self.origin_ticks % 2**63, min(self.origin_unix_ns, 2**61)
        rate = _rate(header)
        self.known = rate is not None
        self.ns_per_tick = 0.0 if rate is None else rate

    def ns(self, ticks: int) -> int:
        """A duration."""
        return int(min(max(ticks * self.ns_per_tick, -(2.0**62)), 2.0**62))

    def unix_ns(self, ticks: Any) -> Any:
        """A moment, or an array of them, on the Unix clock as it stood when the recorder was loaded."""
        since = np.asarray(ticks, np.uint64).astype(np.int64) - np.int64(self._first_ticks)
        moved = np.clip(since * self.ns_per_tick, -(2.0**61), 2.0**61).astype(np.int64)
        return moved + np.int64(self._first_unix_ns)

    def unix_ns_at(self, ticks: int) -> int:
        """One moment: as above, without an array."""
        moved = ((ticks if ticks < 2**63 else ticks - 2**64) - self._first_ticks) * self.ns_per_tick
        if -(2.0**61) < moved < 2.0**61:
            return int(moved) + self._first_unix_ns
        return int(math.copysign(2.0**61, moved)) + self._first_unix_ns


class CuptiClock:
    """The clock of the GPU layers, tied to the tick clock by the moments at which both were read."""

    def __init__(self, clock: Clock, how: Any) -> None:
        rows = how[how["started_ns"] > 0]
        self.known = len(rows) > 0 and clock.known
        self.origin_ns, self.origin_unix_ns, self.rate = 0, 0, 1.0
        if self.known:
            self.origin_ns = int(rows["started_ns"][0])
            self.origin_unix_ns = int(clock.unix_ns(int(rows["started_ticks"][0])))
            self.rate = _cupti_rate(clock, rows[0])

    def unix_ns(self, cupti_ns: Any) -> Any:
        """Moments; CUPTI's own where nothing ties it to another clock."""
        since = np.asarray(cupti_ns, np.uint64).astype(np.int64) - np.int64(self.origin_ns % 2**63)
        return np.clip(since * self.rate, -(2.0**61), 2.0**61).astype(np.int64) + np.int64(self.origin_unix_ns)


def gpu_begins(clock: CuptiClock, how: Any, devices: Any) -> dict[str, int]:
    """When CUDA was first used and, if the GPUs were recorded from then on, when one first did something."""
    if not clock.known:
        return {}
    begins = {"cuda_begin": clock.origin_unix_ns} if (how["cupti_version"] > 0).any() else {}
    if any(row["windows"] or row["calls_begin_ns"] or _late(row["window_begin_ns"], row["started_ns"]) for row in how):
        return begins  # CUPTI came later
    used = [int(row["first_ns"]) for row in devices if row["activities"] and row["first_ns"]]
    return begins | ({"gpu_begin": int(clock.unix_ns(min(used)))} if used else {})


def _late(begin_ns: Any, started_ns: Any) -> bool:
    return int(begin_ns) > int(started_ns) + LEAST_CUPTI_SPAN_NS


def _cupti_rate(clock: Clock, row: Any) -> float:
    """Nanoseconds of ours in one of CUPTI's; 1 where the two moments are too close or make no sense."""
    theirs = int(row["flushed_ns"]) - int(row["started_ns"])
    ours = clock.ns(int(row["flushed_ticks"]) - int(row["started_ticks"]))
    rate = ours / theirs if theirs >= LEAST_CUPTI_SPAN_NS else 1.0
    return rate if abs(rate - 1) < MOST_CUPTI_DRIFT else 1.0


def _rate(header: Any) -> float | None:
    """Nanoseconds per tick, None where the anchors are too close or make no sense."""
    if int(header["tick_source"]) == MONOTONIC:
        return 1.0
    first, last = header["loaded"], header["facts"]["anchor"]
    ticks = int(last["ticks"]) - int(first["ticks"])
    nanoseconds = int(last["monotonic_ns"]) - int(first["monotonic_ns"])
    if ticks <= 0 or nanoseconds <= 0:
        return None
    rate = nanoseconds / ticks
    return rate if FASTEST_NS_PER_TICK < rate < SLOWEST_NS_PER_TICK else None


# ---------------------------------------------------------------------------------------------------------------------
# What the moments at which both clocks were read say of CUPTI's clock against the host's.
def gpu_clocks(clock: Clock, how: Rows) -> list[GpuClock]:
    """What its first and its last reading say, where there is any."""
    rows = how[how["started_ns"] > 0]
    if not len(rows) or not clock.known:
        return []
    row = rows[0]
    gpu_clock = GpuClock(*_reading(clock, row, "started"))
    span_ns = int(row["flushed_ns"]) - int(row["started_ns"])
    if span_ns > 0 and int(row["flushed_ticks"]) > int(row["started_ticks"]):
        gpu_clock.last_offset_ns, gpu_clock.last_error_ns = _reading(clock, row, "flushed")
        gpu_clock.span_ns = min(span_ns, 2**63 - 1)
    return [gpu_clock]


def _reading(clock: Clock, row: Any, field: str) -> tuple[float, float | None]:
    """CUPTI's time less the host's in the middle of the reading, and half of how long that took."""
    after_ns = int(row[f"{field}_ns"]) - int(clock.unix_ns(int(row[f"{field}_ticks"])))
    half_ns = clock.ns(int(row[f"{field}_width_ticks"])) / 2
    return after_ns + half_ns, half_ns or None
