"""The recorder in this process, by way of ctypes. Calls keep the interpreter's lock: they take nanoseconds."""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
from typing import Any

WORD, NUMBER, TEXT = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rankscope_range_begin": (WORD, (TEXT,)),
    "rankscope_range_end": (None, (TEXT, WORD)),
    "rankscope_step": (None, ()),
    "rankscope_pause": (None, (ctypes.c_int,)),
    "rankscope_gc": (None, (ctypes.c_int,)),
    "rankscope_compiling": (None, (ctypes.c_int,)),
    "rankscope_graph_compiled": (None, (TEXT, ctypes.c_double)),
    "rankscope_tf32": (None, (ctypes.c_int, ctypes.c_int)),
    "rankscope_graph_replayed": (None, ()),
    "rankscope_allocator": (None, (NUMBER, *[WORD] * 7)),
    "rankscope_ticks": (WORD, ()),
    "rankscope_blocked": (None, (WORD,)),
    "rankscope_optimizer": (None, (WORD,)),
    "rankscope_optimizers": (None, (ctypes.c_int,)),
    "rankscope_optimizer_skipped": (None, (WORD,)),
    "rankscope_python": (None, (ctypes.c_void_p, ctypes.c_void_p)),
    "rankscope_mark": (None, (NUMBER, TEXT, WORD)),
    "rankscope_rank": (None, (ctypes.c_int32, ctypes.c_int32)),
    "rankscope_group": (NUMBER, (TEXT, WORD, NUMBER, NUMBER, ctypes.c_int)),
    "rankscope_group_named": (None, (NUMBER, TEXT)),
    "rankscope_group_freed": (None, (NUMBER,)),
    "rankscope_collective_begin": (NUMBER, (TEXT, NUMBER, WORD, ctypes.c_int32, WORD, ctypes.c_int)),
    "rankscope_collective_end": (None, (NUMBER, ctypes.c_int)),
    "rankscope_futures": (None, ()),
    "rankscope_process_set": (NUMBER, (TEXT, WORD, NUMBER, NUMBER)),
    "rankscope_horovod": (NUMBER, ()),
    "rankscope_horovod_call": (None, (TEXT, WORD, ctypes.c_int)),
    "rankscope_message": (WORD, (TEXT, ctypes.c_int, NUMBER, ctypes.c_int32, ctypes.c_int32, WORD, WORD)),
    "rankscope_message_end": (None, (WORD, WORD, ctypes.c_int32)),
    "rankscope_worker": (None, (TEXT,)),
    "rankscope_worker_call": (None, (TEXT, TEXT, WORD)),
    "rankscope_xla_build": (TEXT, ()),
    "rankscope_xla_install": (ctypes.c_int, (TEXT,)),
    "rankscope_xla_symbols": (ctypes.c_size_t, (TEXT, ctypes.c_size_t)),
    "rankscope_program_compiled": (None, (TEXT, WORD)),
    "rankscope_jax_rank": (None, (ctypes.c_int32, ctypes.c_int32)),
    "rankscope_jax_took": (None, (TEXT, ctypes.c_double, WORD)),
    "rankscope_jax_wait": (WORD, ()),
    "rankscope_jax_waited": (None, (TEXT, WORD, WORD)),
}
INTERPRETER, IMPORT_BEGIN, IMPORT_END, INIT_BEGIN, INIT_END, FINALIZE, OBSERVER, XLA = 1, 2, 3, 4, 5, 10, 11, 14


def recorder() -> Any | None:
    """The preloaded library, None in a process that is not recorded."""
    library = ctypes.PyDLL(None)
    try:
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError:
        return None
    return library if library.rankscope_ticks() else None


def watch_garbage(recorder: Any) -> None:
    """Tell the recorder when a collection begins and ends; once in a process, whoever asks."""
    if any(getattr(known, "by_rankscope", False) for known in gc.callbacks):
        return
    tell = recorder.rankscope_gc

    def collecting(phase: str, info: dict[str, int]) -> None:
        tell(phase == "start")

    collecting.by_rankscope = True  # type: ignore[attr-defined]
    gc.callbacks.append(collecting)


def lend_interpreter(recorder: Any, _: Any = None) -> None:
    """Let the recorder have something done by the main thread between two instructions, until the interpreter ends.

    Not before 3.9: there all threads are slower until it is done, and who asks while it ends gets an error on stderr.
    """
    if sys.implementation.name != "cpython" or sys.version_info < (3, 9):
        return
    python = ctypes.pythonapi
    ways = (python.Py_AddPendingCall, python.Py_IsInitialized)
    atexit.register(recorder.rankscope_python, None, None)
    recorder.rankscope_python(*(ctypes.cast(way, ctypes.c_void_p) for way in ways))


def group_identity(text: str) -> int:
    """What all ranks recognise a group by: FNV-1a, for Python's own hash differs between processes."""
    value = 0xCBF29CE484222325
    for octet in text.encode():
        value = (value ^ octet) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value
