"""The counters of a mount or of a server, read while it works."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rankscope.slowfs.program import Unavailable, last_line, program

COUNTERS_NAME = ".rankscope-slowfs"  # in every mount: not listed, not counted, not slow


def parsed(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {name: int(value) for name, value in pairs}


def of_mount(mount_point: Path) -> dict[str, int]:
    try:
        return parsed((mount_point / COUNTERS_NAME).read_text(encoding="ascii"))
    except (OSError, ValueError):
        raise Unavailable(f"{mount_point}: no slow file system is mounted there") from None


def of_server(server: Path) -> dict[str, int]:
    """The sum over all that share a server file, also when they are gone."""
    done = subprocess.run([program(), "stats", server], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(last_line(done.stderr))
    return parsed(done.stdout)
