"""A reader of rank files that says who reads what; workers import it."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

from rankscope.model.records import Reading
from rankscope.rank_files.read import read_rank_file


def noting(path: Path, log: Path, slowly_s: float = 0, killed_at: str = "") -> Reading:
    """Reads, and notes the host and the file; once, at one file, the worker is killed."""
    line = f"{socket.gethostname()} {path.parent.name}/{path.name}\n"
    with open(log, "a") as told:
        told.write(line)  # one write, at the end: lines of several workers do not mix
    mark = log.with_name("killed")
    if f"{path.parent.name}/{path.name}" == killed_at and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(slowly_s)
    return read_rank_file(path)


def noted(log: Path) -> list[tuple[str, str]]:
    """Host and file of each reading."""
    return [(line.split()[0], line.split()[1]) for line in log.read_text().splitlines()]
