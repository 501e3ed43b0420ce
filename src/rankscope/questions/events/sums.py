"""The compiled sums over events (native/read/trace_sums.c), or their Python twins where that was not built."""

from __future__ import annotations

import contextlib
import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

# ---------------------------------------------------------------------------------------------------------------------
# The sums of native/read/trace_sums.c in Python: what they mean, and what counts where the compiled ones are missing.
LENGTH_SUM = np.dtype(
    [("calls", "u8"), *((name, "i8") for name in ("total_ns", "min_ns", "max_ns")), ("low", "u8"), ("high", "u8")]
)
COVER = np.dtype([("total_ns", "i8"), ("covered_ns", "i8")])
RANGE_SUM = np.dtype(
    [
        ("calls", "u8"),
        *((name, "i8") for name in ("total_ns", "min_ns", "max_ns", "own_ns")),
        *((name, "u8") for name in ("activities", "own_activities")),
        *((name, "i8") for name in ("gpu_ns", "own_gpu_ns")),
    ]
)
EVERYTHING, COMPUTE, COMMUNICATION, COPY, COMPUTE_OR_COMM = range(5)  # covers of a device
HOST, NEXT, OTHER = CAUSES = ("host", "next kernel", "other")
BACK_TO_BACK_NS = 30_000  # a shorter gap is what starting the next kernel takes
FIRST, LAST = -(2**63), 2**63 - 1

Array = Any


def empty_sums(kind: np.dtype[Any], rows: int) -> Array:
    """Sums of nothing."""
    made = np.zeros(rows, kind)
    made["min_ns"], made["max_ns"] = LAST, FIRST
    return made


def empty_covers() -> Array:
    made = np.zeros(5, COVER)
    made["covered_ns"] = FIRST
    return made


def add_lengths_in_python(codes: Array, start_ns: Array, end_ns: Array, sums: Array) -> None:
    """Calls, sum, least, largest and sum of squares of the lengths under each code."""
    if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= len(sums)):
        raise ValueError("a number that stands for no name")
    lengths_ns = end_ns - start_ns
    for code in np.unique(codes).tolist():
        found = lengths_ns[codes == code].tolist()
        one = sums[code]
        squares = (int(one["high"]) << 64 | int(one["low"])) + sum(length * length for length in found)
        one["calls"] += len(found)
        one["total_ns"] += sum(found)
        one["min_ns"], one["max_ns"] = min(int(one["min_ns"]), *found), max(int(one["max_ns"]), *found)
        one["low"], one["high"] = squares & (2**64 - 1), squares >> 64


def walk_device_in_python(
    times: tuple[Array, Array], kind: Array, stream: Array, launch_ns: Array, covers: Array, done_ns: Array
) -> tuple[Array, Array]:
    """How much each cover grows, and the gaps with stream × 3 + cause."""
    if len(stream) and (int(stream.min()) < 0 or int(stream.max()) >= len(done_ns)):
        raise ValueError("a number that stands for no name")
    start_ns, end_ns = times
    compute, communication = kind == 0, kind == 1
    chosen = (slice(None), compute, communication, ~(compute | communication), compute | communication)
    for one, rows in zip(covers, chosen, strict=True):
        _cover(one, start_ns[rows], end_ns[rows])
    parts = [_gaps(start_ns, end_ns, launch_ns, stream == code, code, done_ns) for code in np.unique(stream).tolist()]
    found = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 2
    return found[0], found[1].astype(np.int32)


def _cover(one: Array, start_ns: Array, end_ns: Array) -> None:
    if not len(start_ns):
        return
    reached_ns = np.maximum.accumulate(np.concatenate([[int(one["covered_ns"])], end_ns]))
    fresh_ns = end_ns - np.maximum(start_ns, reached_ns[:-1])
    one["total_ns"] += int(fresh_ns[fresh_ns > 0].sum())
    one["covered_ns"] = int(reached_ns[-1])


def _gaps(
    start_ns: Array, end_ns: Array, launch_ns: Array, rows: Array, code: int, done_ns: Array
) -> tuple[Array, Array]:
    start_ns, end_ns, launch_ns = start_ns[rows], end_ns[rows], launch_ns[rows]
    begun = int(done_ns[code]) != FIRST
    reached_ns = np.maximum.accumulate(np.concatenate([[int(done_ns[code])], end_ns]))
    done_ns[code] = reached_ns[-1]
    before_ns = reached_ns[:-1]
    gap = start_ns > before_ns
    gap[0] &= begun
    length_ns = (start_ns - before_ns)[gap]
    cause = np.where(launch_ns[gap] > before_ns[gap], 0, np.where(length_ns < BACK_TO_BACK_NS, 1, 2))
    return length_ns, code * len(CAUSES) + cause


def sweep_ranges_in_python(
    times: tuple[Array, Array], codes: Array, calls: tuple[Array, Array, Array], sums: Array
) -> None:
    """Each moment belongs to the range begun last of those that go on, each call to all that go on."""
    if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= len(sums)):
        raise ValueError("a number that stands for no name")
    sweep = _Sweep(sums)
    launches = list(zip(*(column.tolist() for column in calls), strict=True))[::-1]
    for start, end, code in zip(times[0].tolist(), times[1].tolist(), codes.tolist(), strict=True):
        while launches and launches[-1][0] < start:
            sweep.launch(*launches.pop())
        sweep.begin(start, end, code)
    while launches:
        sweep.launch(*launches.pop())
    sweep.advance(LAST)


class _Sweep:
    def __init__(self, sums: Array) -> None:
        self.sums = sums
        self.now = FIRST
        self.open: list[tuple[int, int]] = []

    def advance(self, until: int) -> None:
        while self.open:
            end, code = self.open[-1]
            reached = min(end, until)
            if reached > self.now:
                self.sums["own_ns"][code] += reached - self.now
                self.now = reached
            if end > until:
                break
            self.open.pop()
        self.now = until

    def begin(self, start: int, end: int, code: int) -> None:
        self.advance(start)
        one = self.sums[code]
        one["calls"] += 1
        one["total_ns"] += end - start
        one["min_ns"], one["max_ns"] = min(int(one["min_ns"]), end - start), max(int(one["max_ns"]), end - start)
        self.open.append((end, code))

    def launch(self, at: int, activities: int, gpu_ns: int) -> None:
        self.advance(at)
        for end, code in self.open:
            if end > at:
                self.sums["activities"][code] += activities
                self.sums["gpu_ns"][code] += gpu_ns
        if self.open:
            self.sums["own_activities"][self.open[-1][1]] += activities
            self.sums["own_gpu_ns"][self.open[-1][1]] += gpu_ns


# ---------------------------------------------------------------- sums
LIBRARY = Path(__file__).parents[2] / "native" / "librankscope_read.so"
ADDRESS, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "rankscope_add_lengths": (ADDRESS, ADDRESS, ADDRESS, COUNT, ADDRESS, COUNT),
    "rankscope_walk_device": (*[ADDRESS] * 5, COUNT, ADDRESS, ADDRESS, COUNT, NUMBER, ADDRESS, ADDRESS),
    "rankscope_sweep_ranges": (*[ADDRESS] * 3, COUNT, *[ADDRESS] * 3, COUNT, ADDRESS, COUNT),
}


@cache
def function(name: str, path: Path = LIBRARY) -> Any | None:
    """A compiled function, None where it was not built for this machine."""
    with contextlib.suppress(OSError, AttributeError):
        found = getattr(ctypes.CDLL(str(path)), name)
        found.argtypes = FUNCTIONS[name]
        found.restype = ctypes.c_int64 if name == "rankscope_walk_device" else ctypes.c_int
        return found
    return None


def add_lengths(codes: Array, start_ns: Array, end_ns: Array, sums: Array) -> None:
    """Add to the sum of each code (trace_twins.LENGTH_SUM) the lengths that have it."""
    native = function("rankscope_add_lengths")
    if native is None:
        add_lengths_in_python(codes, start_ns, end_ns, sums)
        return
    columns = _int32(codes), _int64(start_ns), _int64(end_ns)
    _done(native(*(one.ctypes.data for one in columns), len(codes), sums.ctypes.data, len(sums)))


def walk_device(
    times: tuple[Array, Array], kind: Array, stream: Array, launch_ns: Array, covers: Array, done_ns: Array
) -> tuple[Array, Array]:
    """Add to the unions of a device's activities, which come by their start; the gaps of its streams and their keys."""
    native = function("rankscope_walk_device")
    if native is None:
        return walk_device_in_python(times, kind, stream, launch_ns, covers, done_ns)
    rows = len(kind)
    gap_ns, key = np.empty(rows, np.int64), np.empty(rows, np.int32)
    columns = (*map(_int64, times), np.ascontiguousarray(kind, np.uint8), _int32(stream), _int64(launch_ns))
    state = (covers.ctypes.data, done_ns.ctypes.data, len(done_ns), BACK_TO_BACK_NS)
    addresses = (one.ctypes.data for one in columns)
    gaps = _done(native(*addresses, rows, *state, gap_ns.ctypes.data, key.ctypes.data))
    return gap_ns[:gaps].copy(), key[:gaps].copy()  # not the room for all


def sweep_ranges(times: tuple[Array, Array], codes: Array, calls: tuple[Array, Array, Array], sums: Array) -> None:
    """Add the ranges of one thread, in order, and what its calls launched to the sums (trace_twins.RANGE_SUM)."""
    native = function("rankscope_sweep_ranges")
    if native is None:
        sweep_ranges_in_python(times, codes, calls, sums)
        return
    ranges, launches = (*map(_int64, times), _int32(codes)), tuple(map(_int64, calls))
    addresses = [[one.ctypes.data for one in columns] for columns in (ranges, launches)]
    _done(native(*addresses[0], len(codes), *addresses[1], len(launches[0]), sums.ctypes.data, len(sums)))


def _int64(values: Array) -> Array:
    return np.ascontiguousarray(values, np.int64)


def _int32(values: Array) -> Array:
    return np.ascontiguousarray(values, np.int32)


def _done(result: int) -> int:
    if result < 0:
        raise MemoryError("ranges") if result == -2 else ValueError("a number that stands for no name")
    return int(result)
