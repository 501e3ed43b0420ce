"""`rankscope hang`: says whether a running job hangs, in which collective, and because of whom."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rankscope.api.live import Diagnosis, NoRun, diagnose_hang
from rankscope.cli.printing import FILE_WIDTH, RUN_HELP, colour_wanted, width
from rankscope.model.tables import Table
from rankscope.output.json import to_json
from rankscope.output.text import to_text

# ---------------------------------------------------------------------------------------------------------------------
# The Python line each rank is at, where py-spy is installed and may look.
SECONDS_EACH = 10
AT_ONCE = 4
MOST_RANKS = 64  # of one host: a line each, and the others are seldom anywhere else
AGENT = "/rankscope/agent/"  # our functions around those of torch, wherever the job has them from


def find_py_spy() -> str | None:
    """py-spy beside our own Python, or on the path."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def python_lines(pids: Mapping[int, int], py_spy: str) -> tuple[dict[int, str], list[str]]:
    """For each rank the innermost line of its main thread, and why that could not be had for some."""
    chosen = dict(list(pids.items())[:MOST_RANKS])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(chosen, pool.map(lambda pid: _dump(py_spy, pid), chosen.values()), strict=True))
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
    theirs = [frame for frame in frames[0] if AGENT not in frame[0]] or frames[0]
    user_frames = [frame for frame in theirs if "site-packages" not in frame[0] and "/lib/python" not in frame[0]]
    path, line, name = (user_frames or theirs)[0]
    return f"{os.path.basename(path)}:{line} {name}"


def _frames(thread: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    return [
        (str(frame.get("filename")), frame.get("line") or 0, str(frame.get("name")))
        for frame in thread.get("frames", ())
    ]


# ---------------------------------------------------------------- hang
HELP = "is the job hung, in which collective, and which rank is missing"
NO_HANG, INCONCLUSIVE, BAD_INPUT, HANG = 0, 1, 2, 3


def run(argv: list[str]) -> int:
    """0: no hang; 1: cannot be told; 2: nothing could be read; 3: a hang."""
    options = parser().parse_args(argv)
    if options.wait <= 0 or options.patience < 0:
        print("rankscope: give --wait more than 0 and --patience at least 0 seconds", file=sys.stderr)
        return BAD_INPUT
    try:
        diagnosis = diagnose_hang(options.run, options.wait, options.patience)
    except NoRun as problem:
        print(f"rankscope: {problem}", file=sys.stderr)
        return BAD_INPUT
    show(tables_of(diagnosis, options), options.format)
    for text in diagnosis.watched.bad.values():
        print(f"rankscope: left out: {text}", file=sys.stderr)
    return HANG if diagnosis.is_hang else INCONCLUSIVE if diagnosis.is_inconclusive else NO_HANG


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        "rankscope hang",
        description="Is the job hung, in which collective, and which rank is missing? Also says where the missing "
        "ranks are instead. Reads the rank files twice and changes nothing.",
        epilog="exit code: 0 no hang, 1 inconclusive, 2 no run or no readable file, 3 hang",
    )
    arguments.add_argument("run", nargs="?", type=Path, metavar="RUN", help=RUN_HELP)
    arguments.add_argument(
        "--wait", type=float, default=1.0, metavar="SECONDS", help="time between the two readings (default: 1)"
    )
    arguments.add_argument(
        "--patience",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help=(
            "a wait for a rank that may still arrive counts as a hang after this long, or after three times the "
            "longest wait so far, whichever is longer (default: 10)"
        ),
    )
    arguments.add_argument("--no-stacks", action="store_true", help="do not ask py-spy for the Python lines")
    arguments.add_argument(
        "--format", choices=["text", "json"], default="text", help="format of the tables (default: text)"
    )
    return arguments


def tables_of(diagnosis: Diagnosis, options: argparse.Namespace) -> Sequence[Table]:
    """The verdict, the ranks with their Python lines where those can be had, and the groups."""
    lines: dict[int, str] = {}
    notes: list[str] = []
    pids, py_spy = diagnosis.pids_here(), find_py_spy()
    if options.no_stacks or not pids:
        pass
    elif py_spy is None:
        notes.append("Python lines: py-spy is not installed (pip install py-spy)")
    else:
        lines, notes = python_lines(pids, py_spy)
    tables = diagnosis.tables(lines, collapse=options.format == "text")
    tables[1].notes += notes
    return tables


def show(tables: Sequence[Table], form: str) -> None:
    if form == "json":
        print(to_json(tables), end="", flush=True)
        return
    wide = width(None) if sys.stdout.isatty() else FILE_WIDTH
    print(to_text(tables, wide, colour_wanted()), end="", flush=True)
