"""Locks between the processes of a node; the kernel frees them when their holder dies, however it dies."""

import errno
import fcntl
import os
import time

SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.002, 0.05


class Waited(OSError):
    """The lock was not free in time."""


class Lock:
    """One file, held by one process at a time; it may be removed while others wait for it."""

    def __init__(self, path: str, patience_s: float) -> None:
        self.path = path
        self.patience_s = patience_s
        self.file = -1

    def __enter__(self) -> "Lock":
        deadline, wait_s = time.monotonic() + self.patience_s, SHORTEST_WAIT_S
        while not self.try_once():
            if time.monotonic() > deadline:
                raise Waited(errno.ETIMEDOUT, f"waited {self.patience_s:.0f} s", self.path)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        return self

    def try_once(self) -> bool:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = os.fstat(file).st_ino == os.stat(self.path).st_ino  # else its last holder has removed it
        except (BlockingIOError, FileNotFoundError):
            held = False
        except BaseException:
            os.close(file)
            raise
        if held:
            self.file = file
        else:
            os.close(file)
        return held

    def __exit__(self, *_: object) -> None:
        os.close(self.file)
        self.file = -1
