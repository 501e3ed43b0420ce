"""The Python line each rank is at, where py-spy is installed and may look."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SECONDS_EACH = 10
AT_ONCE = 4
MOST_RANKS = 64  # of one host: a line each, and the others are seldom anywhere else


def find_py_spy() -> str | None:
    """py-spy beside our own Python, or on the path."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def python_lines(pids: Mapping[int, int], py_spy: str) -> tuple[dict[int, str], list[str]]:
    """For each rank the innermost line of its main thread, and why that could not be had for some."""
    asked = dict(list(pids.items())[:MOST_RANKS])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(asked, pool.map(lambda pid: _dump(py_spy, pid), asked.values()), strict=True))
    lines = {rank: line for rank, (line, _) in answers.items() if line}
    return lines, sorted({problem for _, problem in answers.values() if problem})


def _dump(py_spy: str, pid: int) -> tuple[str, str]:
    command = [py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_EACH, check=False)
        if done.returncode:
            return "", f"py-spy: {(done.stderr.strip().splitlines() or ['failed'])[0]}"
        return innermost(json.loads(done.stdout)), ""
    except (OSError, subprocess.TimeoutExpired, ValueError) as problem:
        return "", f"py-spy: {problem}"


def innermost(threads: Iterable[Mapping[str, Any]]) -> str:
    """file:line function of the main thread's innermost frame that is the program's own, else of the innermost."""
    frames = [_frames(thread) for thread in threads if thread.get("thread_name") == "MainThread"]
    frames = frames or [_frames(thread) for thread in threads]
    if not frames or not frames[0]:
        return ""
    own = [frame for frame in frames[0] if "site-packages" not in frame[0] and "/lib/python" not in frame[0]]
    path, line, name = (own or frames[0])[0]
    return f"{os.path.basename(path)}:{line} {name}"


def _frames(thread: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    return [(str(one.get("filename")), one.get("line") or 0, str(one.get("name"))) for one in thread.get("frames", ())]
