"""Turns the ticks of a rank file into nanoseconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankscope.rankfile import TickSource

SLOWEST_NS_PER_TICK = 1e5  # 10 kHz: anything outside these bounds is a damaged anchor, not a clock
FASTEST_NS_PER_TICK = 1e-2


class Clock:
    """The tick clock of one process, from the two anchors in its header."""

    def __init__(self, header: Any) -> None:
        self.origin_ticks = int(header["loaded"]["ticks"])
        self.origin_unix_ns = int(header["loaded"]["realtime_ns"])
        rate = _rate(header)
        self.known = rate is not None
        self.ns_per_tick = 0.0 if rate is None else rate

    def ns(self, ticks: int) -> int:
        """A duration."""
        return int(min(max(ticks * self.ns_per_tick, -(2.0**62)), 2.0**62))

    def unix_ns(self, ticks: Any) -> Any:
        """A moment, or an array of them, on the Unix clock as it stood when the recorder was loaded."""
        since = np.asarray(ticks, np.uint64).astype(np.int64) - np.int64(self.origin_ticks % 2**63)
        moved = np.clip(since * self.ns_per_tick, -(2.0**61), 2.0**61).astype(np.int64)
        return moved + np.int64(min(self.origin_unix_ns, 2**61))


def _rate(header: Any) -> float | None:
    """Nanoseconds per tick, None where the anchors are too close or make no sense."""
    if header["tick_source"] == TickSource.MONOTONIC:
        return 1.0
    first, last = header["loaded"], header["facts"]["anchor"]
    ticks = int(last["ticks"]) - int(first["ticks"])
    nanoseconds = int(last["monotonic_ns"]) - int(first["monotonic_ns"])
    if ticks <= 0 or nanoseconds <= 0:
        return None
    rate = nanoseconds / ticks
    return rate if FASTEST_NS_PER_TICK < rate < SLOWEST_NS_PER_TICK else None
