"""The code of a module as Python would run it."""

from __future__ import annotations

import importlib.util
import marshal
import os
import sys
from importlib.machinery import SourceFileLoader

HEADER_BYTES = 16  # of a .pyc: magic, flags, time and size of the source


class Code:
    """Marshalled code and the source it belongs to."""

    def __init__(self, data: bytes, status: os.stat_result) -> None:
        self.data = data
        self.mtime_ns, self.size_bytes = status.st_mtime_ns, status.st_size


def code_of(path: str) -> Code | None:
    """From the cached bytecode where that is valid, else compiled; None where Python could not run it either."""
    try:
        before = os.stat(path)
        data = cached(path, before) or compiled(path)
        after = os.stat(path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError, ImportError):
        return None
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        return None
    return Code(data, before)


def cached(path: str, source: os.stat_result) -> bytes | None:
    try:
        with open(importlib.util.cache_from_source(path), "rb") as file:
            data = file.read()
    except (OSError, NotImplementedError):
        return None
    stamp = b"".join((int(value) & 0xFFFFFFFF).to_bytes(4, "little") for value in (source.st_mtime, source.st_size))
    expected = importlib.util.MAGIC_NUMBER + bytes(4) + stamp
    return data[HEADER_BYTES:] if data[:HEADER_BYTES] == expected and len(data) > HEADER_BYTES else None


def compiled(path: str) -> bytes:
    name = os.path.basename(path)
    return marshal.dumps(SourceFileLoader(name, path).get_code(name))


sys.dont_write_bytecode = True  # nothing is written into the environment
