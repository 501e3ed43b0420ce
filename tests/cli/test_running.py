"""A report of a real job that is still running: growing counts, no row that contradicts itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mpis import Mpi
from rankscope.rank_files.read import read_rank_file

ENDLESS = Path(__file__).parent / "endless.py"
BYTES = 32  # of every message


@contextmanager
def going(mpi: Mpi, rankscope: Path, run: Path) -> Iterator[list[Path]]:
    """The rank files of a 4-rank job that is under way."""
    command = mpi.command(4, rankscope, "run", "--out", run, mpi.python, ENDLESS)
    job = subprocess.Popen(command, env=mpi.environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert job.stdout is not None and job.stdout.readline() == "going\n"
        yield sorted(run.glob("ranks/*/*.rank"))
        assert job.poll() is None, "the job must have been running all the time"
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        if job.stdout:
            job.stdout.close()


def report(rankscope: Path, run: Path) -> dict[str, Any]:
    done = subprocess.run([rankscope, "report", run, "--format", "json"], capture_output=True, text=True, check=True)
    return {table["name"]: table for table in json.loads(done.stdout)["tables"]}


def calls(told: dict[str, Any], name: str) -> int:
    return sum(row[1] for row in told["routines"]["rows"] if row[0] == name)


@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow), "impi"], indirect=True)
@pytest.mark.slow
def test_a_running_job_can_be_reported(mpi: Mpi, rankscope: Path, tmp_path: Path) -> None:
    with going(mpi, rankscope, tmp_path / "run") as files:
        first, second = report(rankscope, tmp_path / "run"), report(rankscope, tmp_path / "run")
        check_readings(files, 300)
    assert "still going on (4 ranks: 0-3)" in first["overview"]["warnings"][0]
    assert 4 * 100 <= calls(first, "MPI_Allreduce") < calls(second, "MPI_Allreduce")
    assert {row[11] for row in second["ranks"]["rows"]} == {"still running"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_readings_of_a_running_job(openmpi: Mpi, rankscope: Path, tmp_path: Path) -> None:
    with going(openmpi, rankscope, tmp_path / "run") as files:
        check_readings(files, 10_000)


def check_readings(files: list[Path], readings: int) -> None:
    """Every message has 32 bytes and 17 to 32 bytes are one class, so each row proves itself."""
    counts: dict[Path, int] = dict.fromkeys(files, 0)
    for turn in range(readings):
        path = files[turn % len(files)]
        reading = read_rank_file(path, events=turn % 10 == 0)
        columns = reading.tally_columns
        sized = columns["size_class"] > 0
        wrong = (columns["bytes"] != columns["calls"] * BYTES) & sized
        assert wrong.sum() <= reading.facts.torn_rows
        assert (columns["min_ns"] * columns["calls"] <= columns["total_ns"] * (1 + 1e-9)).all()
        assert (columns["max_ns"] * columns["calls"] * (1 + 1e-9) >= columns["total_ns"]).all()
        now = int(columns["calls"].sum())
        assert now >= counts[path]
        counts[path] = now
