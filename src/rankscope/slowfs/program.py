"""Where the native parts are, and whether the file system can be mounted here."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

NATIVE = Path(__file__).resolve().parent.parent / "native"
PROGRAM = NATIVE / "rankscope-slowfs"
SHIM = NATIVE / "librankscope_slow.so"


class Unavailable(Exception):
    """Why it cannot be done here, in one line with the next action."""


def program() -> str:
    if not PROGRAM.is_file():
        raise Unavailable("rankscope-slowfs was not built: install the kernel's headers (linux/fuse.h) and build again")
    return str(PROGRAM)


@cache
def reason_against_running() -> str | None:
    """Why no command can be run on a mounted slow folder here; None if it can, found out by doing it."""
    try:
        found = program()
    except Unavailable as problem:
        return str(problem)
    with tempfile.TemporaryDirectory(prefix="rankscope-slowfs-") as folder:
        words = [found, "run", folder, folder, "--", "true"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return None if done.returncode == 0 else last_line(done.stderr) or f"exit code {done.returncode}"


def last_line(text: str) -> str:
    """What went wrong, without the name of who says it."""
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("rankscope slowfs: ") if lines else ""
