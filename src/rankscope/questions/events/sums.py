"""The compiled sums over events (native/read/trace_sums.c)."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.model.records import BadFile

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
    sums = np.zeros(rows, kind)
    sums["min_ns"], sums["max_ns"] = LAST, FIRST
    return sums


def empty_covers() -> Array:
    covers = np.zeros(5, COVER)
    covers["covered_ns"] = FIRST
    return covers


LIBRARY = Path(__file__).parents[2] / "native" / "librankscope_read.so"
ADDRESS, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "rankscope_add_lengths": (ADDRESS, ADDRESS, ADDRESS, COUNT, ADDRESS, COUNT),
    "rankscope_walk_device": (*[ADDRESS] * 5, COUNT, ADDRESS, ADDRESS, COUNT, NUMBER, ADDRESS, ADDRESS),
    "rankscope_sweep_ranges": (*[ADDRESS] * 3, COUNT, *[ADDRESS] * 3, COUNT, ADDRESS, COUNT),
}


@cache
def function(name: str) -> Any:
    """A compiled function, or a BadFile where it was not built for this machine."""
    try:
        native = getattr(ctypes.CDLL(str(LIBRARY)), name)
    except (OSError, AttributeError) as problem:
        raise BadFile(f"{problem}: build it with hatch_build.py, or install rankscope again") from None
    native.argtypes = FUNCTIONS[name]
    native.restype = ctypes.c_int64 if name == "rankscope_walk_device" else ctypes.c_int
    return native


def add_lengths(codes: Array, start_ns: Array, end_ns: Array, sums: Array) -> None:
    """Add to each code's calls, sum, least, largest and sum of squares (LENGTH_SUM) the lengths that have it."""
    native = function("rankscope_add_lengths")
    columns = _int32(codes), _int64(start_ns), _int64(end_ns)
    _done(native(*(column.ctypes.data for column in columns), len(codes), sums.ctypes.data, len(sums)))


def walk_device(
    times: tuple[Array, Array], kind: Array, stream: Array, launch_ns: Array, covers: Array, done_ns: Array
) -> tuple[Array, Array]:
    """Add to the unions of a device's activities, which come by their start; the gaps of its streams and their keys."""
    native = function("rankscope_walk_device")
    rows = len(kind)
    gap_ns, key = np.empty(rows, np.int64), np.empty(rows, np.int32)
    columns = (*map(_int64, times), np.ascontiguousarray(kind, np.uint8), _int32(stream), _int64(launch_ns))
    state = (covers.ctypes.data, done_ns.ctypes.data, len(done_ns), BACK_TO_BACK_NS)
    addresses = (column.ctypes.data for column in columns)
    gaps = _done(native(*addresses, rows, *state, gap_ns.ctypes.data, key.ctypes.data))
    return gap_ns[:gaps].copy(), key[:gaps].copy()  # not the room for all


def sweep_ranges(times: tuple[Array, Array], codes: Array, calls: tuple[Array, Array, Array], sums: Array) -> None:
    """Add the ranges of one thread, in order, and what its calls launched to the sums (RANGE_SUM): each moment belongs
    to the range begun last of those that go on, each call to all that go on."""
    native = function("rankscope_sweep_ranges")
    ranges, launches = (*map(_int64, times), _int32(codes)), tuple(map(_int64, calls))
    addresses = [[column.ctypes.data for column in columns] for columns in (ranges, launches)]
    _done(native(*addresses[0], len(codes), *addresses[1], len(launches[0]), sums.ctypes.data, len(sums)))


def _int64(values: Array) -> Array:
    return np.ascontiguousarray(values, np.int64)


def _int32(values: Array) -> Array:
    return np.ascontiguousarray(values, np.int32)


def _done(result: int) -> int:
    if result < 0:
        raise MemoryError("ranges") if result == -2 else ValueError("a number that stands for no name")
    return int(result)
