"""One walk along the activities of a device: how long it was busy with what, and the pauses of its streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.questions.events.sums import FIRST, empty_covers, walk_device
from rankscope.questions.gpu.activities import Device

# ---------------------------------------------------------------------------------------------------------------------
# Which call launched a GPU activity: both carry the same number.
Array = Any
NONE = -1


class Launches:
    """The calls of one process that have such a number."""

    def __init__(self) -> None:
        self._parts: list[tuple[Array, Array, Array]] = []
        self._sorted: tuple[Array, Array, Array] | None = None

    def add(self, correlation: Array, start_ns: Array, thread: Array) -> None:
        """Calls of a block; those without a number (negative) launch nothing."""
        known = correlation >= 0
        chosen = (
            (correlation, start_ns, thread) if known.all() else (correlation[known], start_ns[known], thread[known])
        )
        if len(chosen[0]):
            self._parts.append(chosen)
            self._sorted = None

    def __bool__(self) -> bool:
        return bool(self._parts)

    def calls(self) -> tuple[Array, Array, Array]:
        """Number, start and thread, by number; where calls share one (CUDA's two interfaces), the first of them."""
        if self._sorted is None:
            empty = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
            number, start_ns, thread = map(np.concatenate, zip(empty, *self._parts, strict=True))
            if not bool((number[1:] > number[:-1]).all()):
                order = np.lexsort((start_ns, number))
                number, start_ns, thread = number[order], start_ns[order], thread[order]
                first = np.flatnonzero(np.concatenate([[True], number[1:] != number[:-1]])[: len(number)])
                number, start_ns, thread = number[first], start_ns[first], thread[first]
            self._sorted = number, start_ns, thread
        return self._sorted

    def of(self, correlation: Array) -> tuple[Array, Array]:
        """The places in `calls` of these numbers, and which of them are there."""
        number = self.calls()[0]
        if not len(number):
            return np.zeros(len(correlation), np.int64), np.zeros(len(correlation), np.bool_)
        at = np.minimum(np.searchsorted(number, correlation), len(number) - 1)
        return at, number[at] == correlation

    def start_ns(self, correlation: Array) -> Array:
        """When the call of each began, negative where it is not known."""
        if not self._parts:
            return np.full(len(correlation), NONE, np.int64)
        at, known = self.of(correlation)
        return np.where(known, self.calls()[1][at], NONE)


# ---------------------------------------------------------------- walk
@dataclass(frozen=True, slots=True)
class GpuTime:
    """How long one GPU was busy, with what."""

    span_ns: int
    busy_ns: int
    compute_ns: int
    comm_ns: int
    copy_ns: int  # copies and memsets
    compute_or_comm_ns: int

    @property
    def idle_ns(self) -> int:
        return self.span_ns - self.busy_ns

    @property
    def hidden_ns(self) -> int:
        """Communication while something is computed too."""
        return self.compute_ns + self.comm_ns - self.compute_or_comm_ns

    @property
    def exposed_ns(self) -> int:
        """Communication while nothing is computed."""
        return self.comm_ns - self.hidden_ns


@dataclass(slots=True)
class Gaps:
    """The pauses of a device's streams: how long each, with stream × 3 + cause."""

    lengths_ns: list[Array] = field(default_factory=list)
    keys: list[Array] = field(default_factory=list)

    def by_key(self) -> Iterator[tuple[int, Array]]:
        """The lengths under each key."""
        if not self.keys:
            return
        keys, lengths_ns = np.concatenate(self.keys), np.concatenate(self.lengths_ns)
        counts = np.bincount(keys)
        few = keys.astype(np.int16) if len(counts) < 2**15 else keys  # these are sorted without comparing
        lengths_ns = lengths_ns[np.argsort(few, kind="stable")]
        ends = np.cumsum(counts)
        for key in np.flatnonzero(counts).tolist():
            yield key, lengths_ns[ends[key] - counts[key] : ends[key]]


def walked(device: Device, streams: int, launches: Launches) -> tuple[GpuTime, Gaps]:
    """The breakdown of one device, and its gaps."""
    covers, done_ns, gaps = empty_covers(), np.full(streams, FIRST, np.int64), Gaps()
    first_ns = None
    for start_ns, end_ns, kind, stream, correlation in device.in_order():
        if not len(kind):
            continue
        first_ns = int(start_ns[0]) if first_ns is None else first_ns
        launch_ns = launches.start_ns(correlation)
        walk = walk_device((start_ns, end_ns), kind, stream, launch_ns, covers, done_ns)
        gaps.lengths_ns.append(walk[0])
        gaps.keys.append(walk[1])
    span_ns = int(covers["covered_ns"][0]) - first_ns if first_ns is not None else 0
    return GpuTime(span_ns, *covers["total_ns"].tolist()), gaps


def time_of(device: Device) -> GpuTime:
    """The breakdown alone."""
    streams = max((int(run.stream.max()) for run in device.runs), default=0) + 1
    return walked(device, streams, Launches())[0]
