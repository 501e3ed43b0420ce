"""How a process ended, as far as its rank file and this machine can tell."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope.model import Ending
from rankscope.rank_file import Flag, State

# plain numbers: members of enumerations are slow to look up where thousands of files are read
ABORTED, RUNNING, EXITED = int(Flag.MPI_ABORTED), int(State.RUNNING), int(State.EXITED)
REPLACED, SIGNALLED = int(State.REPLACED), int(State.SIGNALLED)
HEARD_WITHIN_NS = 10_000_000_000  # a process elsewhere counts as running when its last sign of life is this recent


@dataclass(frozen=True, slots=True)
class Here:
    """Where and when the reading happens; injectable so that tests decide."""

    host: str = field(default_factory=socket.gethostname)
    proc: Path = Path("/proc")
    now_ns: Callable[[], int] = time.time_ns

    def sees(self, namespace: int) -> bool:
        """Whether the processes of a pid namespace have the numbers here that they have there."""
        try:
            return namespace in (0, os.stat(f"{self.proc}/self/ns/pid").st_ino)
        except OSError:
            return True


def ending(header: Any, last_heard_ns: int, here: Here) -> Ending:
    """How the process ended; for one that left no end state, whether it still runs."""
    state, aborted = int(header["state"]), bool(int(header["flags"]) & ABORTED)
    if state == REPLACED:
        return "replaced"
    if state in (EXITED, SIGNALLED):
        return "aborted" if aborted else "exited" if state == EXITED else "signalled"
    if state != RUNNING:
        return "unknown"
    found = _running(header, last_heard_ns, here)
    return "aborted" if aborted and found != "running" else found


def _running(header: Any, last_heard_ns: int, here: Here) -> Ending:
    """On its own host the kernel knows; elsewhere, and in containers, only the last sign of life can speak."""
    if header["host"].decode("utf-8", "backslashreplace") == here.host and here.sees(int(header["pid_namespace"])):
        return "running" if _is_alive(header, here.proc) else "vanished"
    return "running" if here.now_ns() - last_heard_ns < HEARD_WITHIN_NS else "unknown"


def _is_alive(header: Any, proc: Path) -> bool:
    """Whether a process of this pid and this start time exists and is no zombie."""
    try:
        told = process_words(proc, int(header["pid"]))
        return told[0] not in "ZX" and int(told[19]) == int(header["start_jiffies"])
    except (OSError, ValueError, IndexError):
        return False


def process_words(proc: Path, pid: int) -> list[str]:
    """What the kernel says of a process, from its state on."""
    with open(f"{proc}/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode("ascii", "replace").split()
