"""Every call of a real job is in its trace, in the order in which it was made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from mpis import ROOT, find_mpi
from programs.jobs import WARNINGS
from rankscope.rank_files.events import trace_events
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import OpenOptions, RunTables, open_run

PROGRAM = ROOT / "tests/programs/traced.c"
ROUNDS = 300
RUN = """SELECT name, bytes, sequence, start_ns, end_ns, kind, call_ns FROM events JOIN ranks USING (process)
    WHERE rank = {rank} AND layer = 'mpi' AND (kind = 'call' OR sequence IS NOT NULL) ORDER BY start_ns, end_ns"""


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def traced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[list[str]], RunTables]:
    """What each rank said it did, and the run."""
    mpi, folder = find_mpi(request.param), tmp_path_factory.mktemp("traced")
    if mpi.mpicc is None:
        pytest.skip(f"{mpi.name} has no compiler")
    subprocess.run([mpi.mpicc, *WARNINGS, "-o", folder / "traced", PROGRAM], check=True, env=mpi.environment)
    rankscope = (sys.executable, "-m", "rankscope", "run", "--trace", "1M", "--out", folder / "run")
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = mpi.run(2, *rankscope, folder / "traced", str(ROUNDS), **path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    said = [[f"{name} {size}" for who, name, size in lines if int(who) == rank] for rank in range(2)]
    return said, open_run(folder / "run", read_rank_file, OpenOptions(read_trace=trace_events))


@pytest.mark.parametrize("rank", [0, 1])
def test_every_call_is_there_in_order(traced: tuple[list[list[str]], RunTables], rank: int) -> None:
    said, run = traced
    rows = run.query(RUN.format(rank=rank))
    assert [f"{name} {size}" for name, size, *_ in rows] == said[rank]
    assert len(said[rank]) == 3 + 7 * ROUNDS
    for (_, _, _, _, end_ns, kind, _), (_, _, _, next_ns, *_) in pairwise(rows):
        assert kind == "progress" or end_ns <= next_ns


@pytest.mark.parametrize("rank", [0, 1])
def test_collectives_have_their_sequence_and_completions_their_bytes(
    traced: tuple[list[list[str]], RunTables], rank: int
) -> None:
    _, run = traced
    rows = run.query(RUN.format(rank=rank))
    numbered = [sequence for _, _, sequence, *_ in rows if sequence is not None]
    assert numbered == list(range(1, 2 * ROUNDS + 1))
    sql = f"""SELECT name, sum(bytes)::BIGINT, count(*) FROM events JOIN ranks USING (process)
        WHERE rank = {rank} AND kind = 'progress' AND sequence IS NULL GROUP BY name ORDER BY name"""
    moved = sum(8 * (1 + i % 512) for i in range(ROUNDS))
    assert run.query(sql) == [("MPI_Irecv", moved, ROUNDS), ("MPI_Isend", moved, ROUNDS)]


def test_the_ranks_fit_together(traced: tuple[list[list[str]], RunTables]) -> None:
    """On one node the clocks are one: a message cannot have been received before it was sent."""
    _, run = traced
    sql = """SELECT rank, start_ns, end_ns FROM events JOIN ranks USING (process)
        WHERE name IN ('MPI_Send', 'MPI_Recv') ORDER BY rank, start_ns"""
    found = run.query(sql)
    sends, receives = ([row for row in found if row[0] == rank] for rank in range(2))
    assert Counter(row[0] for row in found) == {0: ROUNDS, 1: ROUNDS}
    slack_ns = 50_000  # the anchors of the two processes, a few microseconds each
    early = [(send, got) for send, got in zip(sends, receives, strict=True) if got[2] + slack_ns < send[1]]
    assert early == []
