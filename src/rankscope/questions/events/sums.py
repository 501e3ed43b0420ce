"""The compiled sums over events (native/trace_sums.c), or their Python twins where that was not built."""

from __future__ import annotations

import contextlib
import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.analyse import trace_twins

LIBRARY = Path(__file__).parent.parent / "native" / "librankscope_read.so"
ADDRESS, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "rankscope_add_lengths": (ADDRESS, ADDRESS, ADDRESS, COUNT, ADDRESS, COUNT),
    "rankscope_walk_device": (*[ADDRESS] * 5, COUNT, ADDRESS, ADDRESS, COUNT, NUMBER, ADDRESS, ADDRESS),
    "rankscope_sweep_ranges": (*[ADDRESS] * 3, COUNT, *[ADDRESS] * 3, COUNT, ADDRESS, COUNT),
}

Array = Any


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
        trace_twins.add_lengths(codes, start_ns, end_ns, sums)
        return
    columns = _int32(codes), _int64(start_ns), _int64(end_ns)
    _done(native(*(one.ctypes.data for one in columns), len(codes), sums.ctypes.data, len(sums)))


def walk_device(
    times: tuple[Array, Array], kind: Array, stream: Array, launch_ns: Array, covers: Array, done_ns: Array
) -> tuple[Array, Array]:
    """Add to the unions of a device's activities, which come by their start; the gaps of its streams and their keys."""
    native = function("rankscope_walk_device")
    if native is None:
        return trace_twins.walk_device(times, kind, stream, launch_ns, covers, done_ns)
    rows = len(kind)
    gap_ns, key = np.empty(rows, np.int64), np.empty(rows, np.int32)
    columns = (*map(_int64, times), np.ascontiguousarray(kind, np.uint8), _int32(stream), _int64(launch_ns))
    state = (covers.ctypes.data, done_ns.ctypes.data, len(done_ns), trace_twins.BACK_TO_BACK_NS)
    addresses = (one.ctypes.data for one in columns)
    gaps = _done(native(*addresses, rows, *state, gap_ns.ctypes.data, key.ctypes.data))
    return gap_ns[:gaps].copy(), key[:gaps].copy()  # not the room for all


def sweep_ranges(times: tuple[Array, Array], codes: Array, calls: tuple[Array, Array, Array], sums: Array) -> None:
    """Add the ranges of one thread, in order, and what its calls launched to the sums (trace_twins.RANGE_SUM)."""
    native = function("rankscope_sweep_ranges")
    if native is None:
        trace_twins.sweep_ranges(times, codes, calls, sums)
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
