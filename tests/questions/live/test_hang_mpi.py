"""Deliberate hangs of a real MPI job: `rankscope hang` names group, sequence, operation and the guilty rank."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpis import Mpi, find_mpi
from programs import jobs
from questions.live.jobs import (
    HERE,
    command,
    going,
    kill_behind_the_launchers_back,
    until_hang,
    until_written,
)

WORLD = "MPI_COMM_WORLD"
ALLREDUCE = "MPI_Allreduce"
AT = 12  # MPI_Comm_dup, five steps of two, and the one that goes wrong


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return find_mpi(request.param)


@contextmanager
def started(mpi: Mpi, how: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    argv = mpi.command(4, *jobs.recording(folder / "run"), mpi.python, HERE / "hangs_mpi.py", how, folder)
    with going(argv, {**mpi.environment, **jobs.variables(mpi)}) as job:
        assert job.stdout is not None and job.stdout.readline().startswith("going")
        yield job


CASES = {
    # how: kind, group, sequence, operation, guilty, waiting
    "skips": ("skipped_or_order", WORLD, AT, ALLREDUCE, "2", "0-1, 3"),
    "swaps": ("skipped_or_order", WORLD, AT, ALLREDUCE, "2", "0-1, 3"),
    "sleeps": ("not_arrived", WORLD, AT, ALLREDUCE, "3", "0-2"),
    "computes": ("not_arrived", WORLD, AT, ALLREDUCE, "3", "0-2"),
    "leaves": ("skipped", WORLD, AT, ALLREDUCE, "2", "0-1, 3"),
    "other_group": ("skipped_or_order", WORLD, AT, ALLREDUCE, "2", "0-1, 3"),
}


@pytest.mark.parametrize("how", CASES)
def test_a_deliberate_hang(mpi: Mpi, how: str, tmp_path: Path) -> None:
    with started(mpi, how, tmp_path) as job:
        found = until_hang(job, tmp_path / "run")
    told = found.verdict
    names = ("kind", "group", "sequence", "operation", "guilty", "waiting")
    assert tuple(told[name] for name in names) == CASES[how], found.out
    assert 0 < told["waited_ns"] < 80e9
    title = found.table("hang")["title"]
    assert f"rank {told['guilty']}" in title and f"{ALLREDUCE} #{AT} of {WORLD}" in title


def test_where_the_guilty_rank_is(mpi: Mpi, tmp_path: Path) -> None:
    with started(mpi, "sleeps", tmp_path) as job:
        for _ in range(5):  # asleep but for the threads of MPI, which wake up now and then
            table = until_hang(job, tmp_path / "run").table("places")
            row = dict(zip([column["name"] for column in table["columns"]], table["rows"][3], strict=True))
            if row["process"] == "asleep":
                break
    assert row["where"].startswith("outside collectives; it last left MPI_Allreduce #5 of MPI_COMM_WORLD/dup#1")
    assert (row["ranks"], row["process"], row["phase"]) == ("3", "asleep", "steady")
    assert row["cpu_share"] < 0.3


def test_a_dead_rank(mpi: Mpi, tmp_path: Path) -> None:
    with started(mpi, "dies", tmp_path) as job:
        pid = int(until_written(tmp_path / "pid"))
        assert command("hang", tmp_path / "run", "--wait", "0.2", "--patience", "100").code == 0
        kill_behind_the_launchers_back(job, pid, tmp_path / "run")
        found = until_hang(job, tmp_path / "run", patience_s=100)
    told = found.verdict
    names = ("kind", "group", "sequence", "operation", "guilty", "waiting")
    assert tuple(told[name] for name in names) == ("dead", WORLD, AT, ALLREDUCE, "1", "0, 2-3")
    assert found.places["1"].startswith("ended: vanished")


def test_a_rank_blocked_in_a_receive_has_not_come(mpi: Mpi, tmp_path: Path) -> None:
    argv = mpi.command(4, *jobs.recording(tmp_path / "run"), mpi.python, HERE / "hangs_mpi.py", "receives", tmp_path)
    with going(argv, {**mpi.environment, **jobs.variables(mpi)}) as job:
        found = until_hang(job, tmp_path / "run")
    told = found.verdict
    assert (told["kind"], told["operation"], told["sequence"], told["guilty"]) == ("not_arrived", "MPI_Barrier", 2, "3")
    assert found.places["3"] == "in MPI_Recv from rank 2 (tag 7)"
    assert "rank 3 has not entered it: in MPI_Recv from rank 2 (tag 7)" in found.table("hang")["title"]


@pytest.mark.parametrize(
    ("how", "call", "guilty", "waiting", "title"),
    [
        ("deadlocks", "MPI_Recv", "0-3", "0-3", "in MPI_Recv from rank 1, rank 1 has been in MPI_Recv from rank 0"),
        ("unsent", "MPI_Wait", "2", "3", "rank 3 has been in MPI_Wait for a message from rank 2 (tag 8) for"),
    ],
)
def test_messages_that_do_not_come(
    mpi: Mpi, how: str, call: str, guilty: str, waiting: str, title: str, tmp_path: Path
) -> None:
    argv = mpi.command(4, *jobs.recording(tmp_path / "run"), mpi.python, HERE / "hangs_mpi.py", how, tmp_path)
    with going(argv, {**mpi.environment, **jobs.variables(mpi)}) as job:
        found = until_hang(job, tmp_path / "run")
    told = found.verdict
    assert (told["kind"], told["operation"], told["guilty"], told["waiting"]) == (
        "messages", call, guilty, waiting,
    ), found.out  # fmt: skip
    assert title in found.table("hang")["title"] and 0 < told["waited_ns"] < 80e9


def test_a_healthy_job_does_not_hang(mpi: Mpi, tmp_path: Path) -> None:
    with started(mpi, "healthy", tmp_path):
        answers = [
            command("hang", tmp_path / "run", "--format", "json", "--wait", wait, "--patience", "0.3")
            for wait in ("0.05", "0.1", "0.3", "0.5", "1")
        ]
    assert [(answer.code, answer.verdict["kind"]) for answer in answers] == [(0, "no_hang")] * 5


def test_a_job_that_ended_says_so(mpi: Mpi, tmp_path: Path) -> None:
    done = jobs.run(mpi, 4, tmp_path / "run", mpi.python, HERE / "hangs_mpi.py", "nothing", tmp_path)
    assert done.code == 0, done.err
    answer = command("hang", tmp_path / "run", "--format", "json", "--wait", "0.1")
    assert (answer.code, answer.verdict["kind"]) == (0, "ended")
    assert "exit 0 (ranks 0-3)" in answer.table("hang")["title"]


def test_without_a_run(tmp_path: Path) -> None:
    answer = command("hang", tmp_path / "nothing")
    assert (answer.code, answer.out) == (2, "")
    assert "no such run" in answer.err
