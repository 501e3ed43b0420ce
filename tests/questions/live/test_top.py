"""`rankscope top` on real running jobs: one frame, a terminal that is left by q or Ctrl-C, a job that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpis import ROOT, Mpi, find_mpi
from questions.live.jobs import DEADLINE_S, command, end_family, until_written
from questions.live.test_hang_mpi import started


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return find_mpi(request.param)


def test_one_frame_names_the_slow_rank(mpi: Mpi, tmp_path: Path) -> None:
    with started(mpi, "slow", tmp_path):
        frame = command("top", tmp_path / "run", "--once", "--interval", "1.5")
    assert frame.code == 0, frame.err
    assert re.search(r"Slowest rank +2 \(waits", frame.out), frame.out
    rows = [line.split() for line in frame.out.splitlines() if re.match(r" +[0-3] +[\d.]+ ", line)]
    assert len(rows) == 4 and rows[0][0] == "2"
    assert all(float(row[1]) > 1 for row in rows)  # collectives a second


@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow)], indirect=True)
def test_a_hang_is_told(mpi: Mpi, tmp_path: Path) -> None:
    with started(mpi, "dies", tmp_path) as job:
        os.kill(int(until_written(tmp_path / "pid")), signal.SIGSTOP)
        frame = command("top", tmp_path / "run", "--once", "--interval", "11")
        assert job.poll() is None
    assert "Hang: ranks 0, 2-3 waiting in MPI_Allreduce #12 of MPI_COMM_WORLD" in frame.out
    assert "rank 1 has not entered it" in " ".join(frame.out.split())


class Terminal:
    """rankscope top on a terminal of its own."""

    def __init__(self, run: Path) -> None:
        self.main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.before = termios.tcgetattr(other)
        self.other = other
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "COLUMNS": "", "LINES": ""}
        words = [sys.executable, "-m", "rankscope", "top", str(run), "--interval", "0.3"]
        self.process = subprocess.Popen(
            words, env=environment, stdin=other, stdout=other, stderr=other, preexec_fn=own_terminal(other)
        )
        self.seen = ""

    def until(self, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} was not shown: {self.seen[-2000:]}"
            self.read()

    def read(self) -> None:
        if select.select([self.main], [], [], 0.2)[0]:
            with contextlib.suppress(OSError):
                self.seen += os.read(self.main, 65536).decode(errors="replace")

    def type(self, keys: bytes) -> None:
        os.write(self.main, keys)

    def end(self) -> int:
        """Its exit code; a terminal that nobody reads would hold it up."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end: {self.seen[-2000:]}"
            self.read()
        return self.process.returncode


def own_terminal(terminal: int) -> Callable[[], None]:
    def begin() -> None:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    return begin


@contextlib.contextmanager
def shown(run: Path) -> Iterator[Terminal]:
    terminal = Terminal(run)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.main)
        os.close(terminal.other)


@pytest.mark.parametrize("keys", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_the_terminal_is_left_as_it_was(keys: bytes, openmpi: Mpi, tmp_path: Path) -> None:
    with started(openmpi, "healthy", tmp_path) as job, shown(tmp_path / "run") as terminal:
        terminal.until("Ranks, worst first")
        terminal.type(keys)
        assert terminal.end() == 0
        assert job.poll() is None, "the job goes on"
        terminal.until("\x1b[?1049l")
        assert "Traceback" not in terminal.seen
        assert termios.tcgetattr(terminal.other) == terminal.before


def test_it_ends_with_the_job(mpich: Mpi, tmp_path: Path) -> None:
    with started(mpich, "healthy", tmp_path) as job, shown(tmp_path / "run") as terminal:
        terminal.until("Ranks, worst first")
        end_family(job)
        assert terminal.end() == 0
        terminal.until("The job has ended")


def test_bad_input(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for argv, told in (
        ([tmp_path / "nothing"], "no such run"),
        ([tmp_path / "empty"], "no rank files"),
        ([tmp_path / "empty", "--interval", "0"], "--interval"),
    ):
        answer = command("top", *argv, "--once")
        assert (answer.code, answer.out) == (2, "")
        assert told in answer.err and "Traceback" not in answer.err


def test_the_files_are_only_read(openmpi: Mpi, tmp_path: Path) -> None:
    """Rank files and folders that nobody may write can be watched."""
    with started(openmpi, "healthy", tmp_path):
        for path in (tmp_path / "run").rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
        assert command("top", tmp_path / "run", "--once", "--interval", "0.2").code == 0
        assert command("hang", tmp_path / "run", "--wait", "0.2").code == 0
        assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before
        for path in (tmp_path / "run").rglob("*"):
            path.chmod(0o755)
