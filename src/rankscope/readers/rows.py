"""Copies rows that another process may be writing, none of them half old and half new."""

from __future__ import annotations

import contextlib
import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope.rank_file import Rows

NATIVE = Path(__file__).parent.parent / "native"
LIBRARIES = ("librankscope_read.so",)
TRIES = 100

Unsettled = npt.NDArray[np.bool_]


def copy_rows(rows: Rows, mark: str, zero_is_busy: bool = False) -> tuple[Rows, Unsettled]:
    """A consistent copy of the rows, and which of them did not come to rest (see native/reading.c)."""
    native = native_copy()
    if native is None or len(rows) == 0:
        return copy_in_python(rows, mark, zero_is_busy)
    return copy_by(native, rows, mark, zero_is_busy)


@cache
def native_copy() -> Any | None:
    """The compiled copying function, or None where it was not built."""
    for path in (NATIVE / name for name in LIBRARIES):
        function = load(path) if path.exists() else None
        if function is not None:
            return function
    return None


@cache
def native_function(name: str) -> Any | None:
    """The function that times trace records (native/trace_times.c), or None where it was not built."""
    for path in (NATIVE / library for library in LIBRARIES):
        with contextlib.suppress(OSError, AttributeError):
            function = getattr(ctypes.CDLL(str(path)), name)
            function.argtypes = (
                ctypes.c_void_p,
                ctypes.c_uint64,
                ctypes.c_void_p,
                ctypes.c_uint64,
                *[ctypes.c_void_p] * 4,
            )
            function.restype = None
            return function
    return None


def load(path: Path) -> Any | None:
    """The copying function of one library, None if that has none or does not fit this machine."""
    try:
        function = ctypes.CDLL(str(path)).rankscope_read_rows
    except (OSError, AttributeError):
        return None
    word, number = ctypes.c_void_p, ctypes.c_uint32
    function.argtypes = (word, word, ctypes.c_uint64, number, number, ctypes.c_int, word)
    function.restype = ctypes.c_uint64
    return function


def copy_by(native: Any, rows: Rows, mark: str, zero_is_busy: bool) -> tuple[Rows, Unsettled]:
    """The copy made by the compiled function."""
    made = np.empty(len(rows), rows.dtype)
    unsettled = np.zeros(len(rows), np.bool_)
    offset = _offset(rows, mark)
    addresses = (rows.ctypes.data, made.ctypes.data)
    native(*addresses, len(rows), rows.dtype.itemsize, offset, int(zero_is_busy), unsettled.ctypes.data)
    return made, unsettled


def copy_in_python(rows: Rows, mark: str, zero_is_busy: bool) -> tuple[Rows, Unsettled]:
    """The copy made with numpy: good where stores become visible in order, as on x86."""
    made = rows.copy()
    unsettled = np.ones(len(rows), np.bool_)
    for _ in range(TRIES):
        left = np.flatnonzero(unsettled)
        before = rows[mark][left]
        made[left] = rows[left]
        same = rows[mark][left] == before
        at_rest = before != 0 if zero_is_busy else before % 2 == 0
        unsettled[left] = ~(same & at_rest)
        if not unsettled.any() or (zero_is_busy and not (before[~(same & at_rest)] != 0).any()):
            break
    return made, unsettled


def _offset(rows: Rows, mark: str) -> int:
    members = rows.dtype.fields
    assert members is not None
    return int(members[mark][1])
