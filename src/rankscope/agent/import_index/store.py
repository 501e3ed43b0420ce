"""The index file as it is read in a job. This module and the others that `layout.IN_THE_JOB` names lie as code in the
index itself and run at the start of every Python of the job, so they import built-in modules only. They are compiled
under the name of Python's own import code, whose frames Python leaves out of tracebacks."""

from __future__ import annotations

import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SOURCE, PACKAGE, EXTENSION, NAMESPACE, ASK = range(5)  # kinds of modules; ASK: Python itself is to look
WINDOW_BYTES = 2 << 20
STEP_BYTES = WINDOW_BYTES // 2
MOST_WINDOWS = 8


class Gone(Exception):
    """The index is no longer the file that it was."""


class Window:
    """A piece of the index in memory."""

    __slots__ = ("begin", "data", "end")

    def __init__(self, length: int) -> None:
        self.data = bytearray(length)
        self.begin = self.end = 0


class Store:
    """Parts of the index, read through a few windows. The file is opened anew for each: nothing of ours stays open in
    the program, and an index that was replaced meanwhile is noticed. Not mapped, because a mapped file that vanishes
    on a network file system would kill the program."""

    def __init__(self, path: str, status: os.stat_result, folders_from: int) -> None:
        self.path = path
        self.folders_from = folders_from
        self.identity = identity_of_file(status)
        self.windows: list[Window] = []  # the one used last is first

    def load(self, offset: int, length: int) -> Any:
        """Code lies in the order of imports, so one window serves many that follow."""
        end = offset + length
        for window in self.windows:
            if window.begin <= offset and end <= window.end:
                if window is not self.windows[0]:
                    self.windows.remove(window)
                    self.windows.insert(0, window)
                break
        else:
            begin = self.begin_of_window(offset, end)
            window = self.read(begin, end - begin)
        return marshal.loads(memoryview(window.data)[offset - window.begin : end - window.begin])

    def begin_of_window(self, offset: int, end: int) -> int:
        """Folders are asked for in no order: as many as possible come at once. Code begins a little before."""
        if offset >= self.folders_from and end <= self.folders_from + WINDOW_BYTES:
            return self.folders_from
        begin = offset - offset % STEP_BYTES
        return begin if end <= begin + WINDOW_BYTES else offset

    def read(self, offset: int, length: int) -> Window:
        if length > WINDOW_BYTES:
            window = Window(length)
        elif len(self.windows) < MOST_WINDOWS:
            window = Window(WINDOW_BYTES)
            self.windows.insert(0, window)
        else:
            window = self.windows.pop()
            self.windows.insert(0, window)
        window.begin = window.end = offset
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if identity_of_file(os.fstat(descriptor)) != self.identity:
                raise Gone
            window.end = offset + os.preadv(descriptor, [window.data], offset)
        finally:
            os.close(descriptor)
        if window.end < offset + length:
            raise Gone
        return window


def identity_of_file(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def identity(status: os.stat_result) -> tuple[int, int, int]:
    """What changes when a folder is another one, or an entry of it is made, removed or replaced. Not the device: its
    number differs from node to node."""
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns
