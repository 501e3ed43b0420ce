"""What is kept of the events of one process so that questions over all ranks need not look at them again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActivitySum:
    """The GPU activities of one name."""

    name: str
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
    deviations_ns2: float  # sum of squared differences from the mean


@dataclass(frozen=True, slots=True)
class DeviceSum:
    """How long one GPU was busy, with what: lengths of unions of intervals."""

    device: str
    span_ns: int
    busy_ns: int
    compute_ns: int
    comm_ns: int
    copy_ns: int  # copies and sets
    compute_or_comm_ns: int


@dataclass(frozen=True, slots=True)
class GapSum:
    """The pauses of one stream that have one cause."""

    place: int  # streams in the order in which they are first seen
    stream: str
    cause: str
    gaps: int
    idle_ns: int
    median_ns: float
    max_ns: int


@dataclass(frozen=True, slots=True)
class RangeSum:
    """The ranges of one name on all threads (or streams) of a process."""

    layer: str
    domain: str
    name: str
    calls: int
    total_ns: int
    own_ns: int  # while it is the one begun last of those that go on
    min_ns: int
    max_ns: int
    activities: int | None  # launched inside; None where launches are not known
    own_activities: int | None
    gpu_ns: int | None
    own_gpu_ns: int | None


TRACE_TABLES: dict[str, type] = {
    "activity_sums": ActivitySum,
    "device_sums": DeviceSum,
    "gap_sums": GapSum,
    "range_sums": RangeSum,
}
