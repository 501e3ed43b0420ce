"""A run can be read at any moment: counts only grow, and no row is ever half old and half new."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from mpis import find_mpi
from programs import jobs, recorded
from programs.recorded import Row
from robust import self_counts

READS = 10_000
DEADLINE_S = 100


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


class Watcher:
    """One rank file, read again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: dict[tuple[Any, ...], int] = {}
        self.sequences: dict[tuple[int, int], str] = {}
        self.grew = 0

    def look(self) -> None:
        reading = recorded.read(self.path)
        assert reading.facts.torn_rows == 0
        rows = list(recorded.rows_of(reading))
        for row in rows:
            assert_consistent(row)
        self.compare({row.identity: row.calls for row in rows})
        for entry in recorded.log_of(reading):
            known = self.sequences.setdefault((entry.group, entry.sequence), entry.name)
            assert known == entry.name

    def compare(self, now: dict[tuple[Any, ...], int]) -> None:
        fallen = {key: (calls, now.get(key, 0)) for key, calls in self.calls.items() if now.get(key, 0) < calls}
        assert fallen == {}
        self.grew += sum(now.values()) > sum(self.calls.values())
        self.calls = now


def assert_consistent(row: Row) -> None:
    nearly = 1 + 1e-9
    assert row.min_ns * row.calls <= row.total_ns * nearly, row
    assert row.total_ns <= row.max_ns * row.calls * nearly, row
    assert row.total_ns**2 <= row.calls * row.sum_squares_ns2 * (1 + 1e-6), row
    low = 2 ** (row.size_class - 2) if row.size_class > 1 else row.size_class - 1
    high = 2 ** (row.size_class - 1) if row.size_class > 0 else 0
    assert row.size_class == 0 or row.calls * low < row.bytes, row
    assert row.bytes <= row.calls * high, row


def until_started(job: subprocess.Popen[bytes], folder: Path, ranks: int) -> list[Path]:
    """The rank files, once every rank has made some calls."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        counts = self_counts.read_all(folder)
        if len(counts) == ranks and min(process.calls for process in counts) > 100:
            return [recorded.file_of(folder / "run", process.pid) for process in counts]
        assert job.poll() is None and time.monotonic() < deadline, "the job did not start"


@pytest.mark.timeout(600)
@pytest.mark.slow  # tests/native/read/test_reading_live.py is the quick one
@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_ten_thousand_reads_while_it_runs(name: str, built: Path, tmp_path: Path) -> None:
    ranks, mpi = 4, find_mpi(name)
    program = jobs.build_with_mpi(mpi, built, "counts_itself")
    recording = jobs.recording(tmp_path / "run", RANKSCOPE_LOG_RECORDS="64")
    command = mpi.command(ranks, *recording, program, tmp_path, "forever")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**mpi.environment, **jobs.variables(mpi)}
    job = subprocess.Popen(command, env=environment, **quiet)  # type: ignore[call-overload]
    try:
        watchers = [Watcher(path) for path in until_started(job, tmp_path, ranks)]
        for turn in range(READS):
            watchers[turn % ranks].look()
        assert job.poll() is None, "the job ended while it was being read"
    finally:
        job.terminate()
        job.wait(60)
    assert all(watcher.grew > 10 for watcher in watchers)
