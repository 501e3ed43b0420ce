"""The state in which the command would have started without us, and how to give it back."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module signal would also import enum
import os

SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh", "busybox")


def first_environment() -> dict[str, str]:
    """The environment this process was given: os.environ may also hold an LC_CTYPE that Python put there itself."""
    try:
        with open("/proc/self/environ", "rb", buffering=0) as file:
            block = file.readall()
    except OSError:
        return dict(os.environ)
    environment: dict[str, str] = {}
    for entry in os.fsdecode(block).split("\0"):
        name, equals, value = entry.partition("=")
        if equals:
            environment.setdefault(name, value)
    return environment


def restore_signals() -> None:
    """Undo that Python ignores SIGPIPE and SIGXFSZ, unless our parent passed that on to us.

    What we were given cannot be read any more. A shell that ignores a signal passes it on; other parents that ignore
    one (Python, daemons) set it back for their children.
    """
    ignored = ignored_by_shell(os.getppid())
    for signal in (_signal.SIGPIPE, _signal.SIGXFSZ):
        if not ignored >> (signal - 1) & 1:
            _signal.signal(signal, _signal.SIG_DFL)


def ignored_by_shell(pid: int) -> int:
    """The bit mask of signals that this process ignores if it is a shell, else 0."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            lines = os.fsdecode(file.readall()).split("\n")
    except OSError:
        return 0
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(fields.get("SigIgn", "0"), 16) if fields.get("Name") in SHELLS else 0
