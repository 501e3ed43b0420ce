"""Copies a rank file, also one that is being written: what comes out can be read, and is there whole or not at all."""

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from rankscope.record.heads import FIELDS, RUNNING, Head, head_of

BLOCK_BYTES = 1 << 20
TRIES = 4  # where the file grows meanwhile
STRINGS, GROUPS = 1, 4  # kinds of chunks; every recorded row may name one that was published before it


def copy(path: Path, target: Path) -> None:
    """Copy the used bytes under another name, then give it its name: a reader never sees half a file.

    Thousands of nodes may do this at once: nothing is asked of the shared file system but what is needed.
    """
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    temporary = target.with_name(f".{target.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        head = head_of(source)
        while True:
            head = _write(source, temporary, head)
            os.replace(temporary, target)
            now = head_of(source)
            if now.state == head.state:
                return
            # It ended meanwhile, and may have put its own copy there before us: ours has to be as whole as that one.
            head = now
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    finally:
        os.close(source)


def _write(source: int, temporary: Path, head: Head) -> Head:
    """Write the file; gives the head that it was written by."""
    sink = _created(temporary)
    try:
        for _ in range(TRIES):
            _copy_bytes(source, sink, 0, head.used_bytes)
            if head.state != RUNNING:
                break
            _settle(source, sink, head)
            now = head_of(source)
            if now.used_bytes == head.used_bytes:
                break
            head = now
        os.fsync(sink)
    finally:
        os.close(sink)
    return head


def _settle(source: int, sink: int, head: Head) -> None:
    """Names last, because rows that were just copied may need them, and no more in use than was copied."""
    chunks = list(_chunks(source, head))
    for wanted in (GROUPS, STRINGS):
        for place, kind, size_bytes in chunks:
            if kind == wanted:
                _copy_bytes(source, sink, place, place + size_bytes)
    at, code = FIELDS["used_bytes"]
    os.pwrite(sink, struct.pack(head.order + code, head.used_bytes), at)


def _chunks(source: int, head: Head) -> Iterator[tuple[int, int, int]]:
    """Place, kind and size of each chunk, as far as they make sense."""
    page = max(head.page_bytes, 1)
    place = -(-head.header_bytes // page) * page
    while place + 12 <= head.used_bytes:
        kind, _, size_bytes = struct.unpack(head.order + "3I", os.pread(source, 12, place))
        if size_bytes < page or place + size_bytes > head.used_bytes:
            return
        yield place, kind, size_bytes
        place += size_bytes


def _copy_bytes(source: int, sink: int, begin: int, end: int) -> None:
    while begin < end:
        octets = os.pread(source, min(BLOCK_BYTES, end - begin), begin)
        if not octets:
            raise OSError(f"ended at byte {begin} of {end}")
        begin += os.pwrite(sink, octets, begin)


def _created(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:  # the first file of its host
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o666)


def is_copy(path: Path, target: Path, used_bytes: int) -> bool:
    """Whether both begin with the same bytes."""
    with open(path, "rb") as ours, open(target, "rb") as theirs:
        for begin in range(0, used_bytes, BLOCK_BYTES):
            wanted = min(BLOCK_BYTES, used_bytes - begin)
            if ours.read(wanted) != theirs.read(wanted):
                return False
    return True
