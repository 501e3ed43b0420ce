"""Starts a command under `rankscope run`, in a child process, to record its imports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import rankscope

# Our own Python starts without the current folder on its path; the command's environment is left alone.
STARTER = "import sys; sys.path[0] = {folder!r}; from rankscope.cli import main; raise SystemExit(main())"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A command that was recorded, and what the kernel says it took, recording included."""

    folder: Path
    exit_code: int
    wall_ns: int
    cpu_ns: int


def import_command(python: str, module: str) -> list[str]:
    """What imports one module in a fresh Python."""
    return [python, "-c", f"import {module}"]


def record(
    command: Sequence[str], folder: Path, level: str, environment: Mapping[str, str] | None = None, silent: bool = False
) -> Recorded:
    """Run the command to its end; what it prints goes to stderr, so that stdout holds our tables alone."""
    place = str(Path(rankscope.__file__).resolve().parents[1])
    options = ["--imports", level, "--quiet", "--out", str(folder)]
    line = [sys.executable, "-c", STARTER.format(folder=place), "run", *options, "--", *command]
    return run_to_end(line, folder, environment, silent)


def run_to_end(
    line: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None, silent: bool = False
) -> Recorded:
    """Start a program and wait for it; the kernel says what it and its children took."""
    sys.stderr.flush()
    output = subprocess.DEVNULL if silent else 2
    began_ns = time.monotonic_ns()
    with subprocess.Popen(line, env=environment, stdout=output, stderr=output if silent else None) as child:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall_ns = time.monotonic_ns() - began_ns
    return Recorded(folder, child.returncode, wall_ns, round((used.ru_utime + used.ru_stime) * 1e9))
