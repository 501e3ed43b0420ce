"""Which observer torch gets: the compiled one, or hooks in Python with the same records."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from . import build

NATIVE, PYTHON = "C++ observer", "Python hooks"

_library: Any = None  # the compiled observer, once it runs


def start(recorder: Any, torch: Any) -> str:
    """Start observing and say by what."""
    global _library
    if os.environ.get("RANKSCOPE_TORCH") == "python":
        return _in_python(recorder, torch, "asked for by RANKSCOPE_TORCH")
    try:
        path = build.find(os.path.dirname(os.path.abspath(torch.__file__)))
        library = ctypes.PyDLL(path)
        library.rankscope_observer_enter.argtypes = (ctypes.c_uint32, ctypes.c_int32)
        library.rankscope_observer_own_group.argtypes = (ctypes.c_uint32,)
        library.rankscope_observer_group.argtypes = (ctypes.c_char_p, ctypes.c_uint32)
        if library.rankscope_observer_start():
            _library = library
            return NATIVE
        problem = "torch refused the compiled one"
    except (build.NotBuilt, OSError, AttributeError) as reason:
        problem = " ".join(str(reason).split())[:200]
    return _in_python(recorder, torch, problem)


def _in_python(recorder: Any, torch: Any, why: str) -> str:
    from . import fallback

    fallback.watch_ranges(recorder, torch)
    return f"{PYTHON}: {why}"


def compiled() -> Any:
    """The compiled observer, None where Python does its work."""
    return _library
