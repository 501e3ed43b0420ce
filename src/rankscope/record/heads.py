"""The beginning of a rank file: whose it is, and which of two is newer."""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from rankscope.record.place import may_run

# Members of struct rs_header in native/layout.h; tests/record/test_gather.py holds the two together.
MAGIC = b"RANKSCPE"
BYTE_ORDER = 0x01020304
FIELDS = {
    "byte_order": (12, "I"),
    "header_bytes": (16, "I"),
    "page_bytes": (20, "I"),
    "used_bytes": (32, "Q"),
    "state": (48, "I"),
    "pid": (72, "i"),
    "start_jiffies": (112, "Q"),
    "loaded_realtime_ns": (144, "Q"),
    "heard_realtime_ns": (176, "Q"),
    "boot_id": (2464, "Q"),
    "pid_namespace": (2472, "Q"),
}
HEAD_BYTES = 2480  # shorter headers of earlier recorders are followed by zeros
FIRST_HEAD_BYTES = 184
RUNNING = 1


class Unreadable(Exception):
    """Why a file is not a rank file that can be copied."""


@dataclass(frozen=True)
class Head:
    """What gathering needs to know of a rank file."""

    order: str  # of bytes, as struct calls it
    header_bytes: int
    page_bytes: int
    used_bytes: int
    state: int
    pid: int
    start_jiffies: int
    loaded_realtime_ns: int  # tells apart two programs that one process became in turn
    heard_realtime_ns: int
    boot_id: int
    pid_namespace: int

    @property
    def age(self) -> tuple[int, bool, int, int]:
        """Larger is newer: a later program, an ended one, one heard of later, one that holds more.

        Equal is not the same: counters move without leaving a time.
        """
        return self.loaded_realtime_ns, self.state != RUNNING, self.heard_realtime_ns, self.used_bytes

    @property
    def identity(self) -> tuple[int, ...]:
        return self.boot_id, self.pid_namespace, self.pid, self.start_jiffies, self.loaded_realtime_ns

    def is_alive_here(self) -> bool:
        """Whether its process still runs on this machine; where that cannot be seen from here: whether it may."""
        return self.state == RUNNING and may_run(self.pid, self.start_jiffies, self.pid_namespace, self.boot_id)


def read_head(path: Path) -> Head:
    """The head of a rank file, in the byte order of its host."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return head_of(file)
    finally:
        os.close(file)


def head_of(file: int) -> Head:
    """That of an open file, as it is now."""
    octets, size_bytes = os.pread(file, HEAD_BYTES, 0), os.fstat(file).st_size
    octets = octets if len(octets) < FIRST_HEAD_BYTES else octets.ljust(HEAD_BYTES, b"\0")
    if len(octets) < HEAD_BYTES or not octets.startswith(MAGIC):
        raise Unreadable("is no rank file")
    for order in "<>":
        values = {name: struct.unpack_from(order + code, octets, at)[0] for name, (at, code) in FIELDS.items()}
        if values.pop("byte_order") == BYTE_ORDER:
            break
    else:
        raise Unreadable("has a damaged header")
    head = Head(order, **values)
    if not FIRST_HEAD_BYTES <= head.used_bytes <= size_bytes:
        raise Unreadable(f"says it uses {head.used_bytes} bytes and has {size_bytes}")
    return head
