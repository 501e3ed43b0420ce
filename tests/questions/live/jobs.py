"""Starts jobs that hang on purpose, and asks `rankscope hang` about them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpis import ROOT

DEADLINE_S = 80
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Answer:
    """What the command said."""

    code: int
    out: str
    err: str

    def table(self, name: str) -> dict[str, Any]:
        (found,) = [table for table in json.loads(self.out)["tables"] if table["name"] == name]
        return dict(found)

    @property
    def verdict(self) -> dict[str, Any]:
        table = self.table("hang")
        return {column["name"]: cell for column, cell in zip(table["columns"], table["rows"][0], strict=True)}

    @property
    def places(self) -> dict[str, str]:
        return {row[0]: row[1] for row in self.table("places")["rows"]}


def command(*argv: str | Path, timeout_s: float = 60) -> Answer:
    """rankscope of this tree."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-m", "rankscope", *map(str, argv)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def going(argv: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A job that ends with all its processes."""
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    job = subprocess.Popen(argv, env=environment, **quiet)  # type: ignore[call-overload]
    try:
        yield job
    finally:
        end_family(job)


def family_of(job: subprocess.Popen[str]) -> list[int]:
    """The job's launcher and all below it: some put their ranks into sessions of their own."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    family = [job.pid]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family


def end_family(job: subprocess.Popen[str]) -> None:
    for pid in family_of(job):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.wait()
    if job.stdout:
        job.stdout.close()


def until_hang(job: subprocess.Popen[str], run: Path, patience_s: float = 1.0) -> Answer:
    """Asks until the answer is a hang."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        is_over = job.poll() is not None  # before it is asked: what it says of a job that is just ending may change
        answer = command("hang", run, "--format", "json", "--wait", "0.3", "--patience", str(patience_s))
        if answer.code == 3:
            return answer
        assert not is_over and time.monotonic() < deadline, f"no hang found: {answer.out} {answer.err}"
        time.sleep(0.2)


def kill_behind_the_launchers_back(job: subprocess.Popen[str], pid: int, run: Path) -> None:
    """SIGKILL for one rank while its launchers are stopped: they would end the others at once."""
    ranks = {int(path.stem) for path in run.glob("ranks/*/*.rank")}
    for other in set(family_of(job)) - ranks:
        os.kill(other, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)


def until_written(path: Path) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"{path.name} was not written"
        time.sleep(0.05)
    return path.read_text()
