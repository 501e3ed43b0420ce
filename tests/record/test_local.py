"""--local and gather with the real recorder and a rank that is killed."""

import json
from pathlib import Path

import pytest

from .conftest import Mpi, Run

PROGRAM = """
import os, signal
from mpi4py import MPI
world = MPI.COMM_WORLD
world.allreduce(1)
if world.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
world.Barrier()
"""


def rank_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("ranks/*/*.rank"))


@pytest.fixture
def recorder(rankscope: str, run: Run, work: Path) -> str:
    """The command, if it comes with a recorder that writes rank files."""
    run(rankscope, "run", "--out", "probe", "true")
    if not rank_files(work / "probe"):
        pytest.skip("the recorder is not built")
    return rankscope


def test_clean_end_leaves_the_file_in_the_run(recorder: str, run: Run, work: Path) -> None:
    run(recorder, "run", "--out", "prof", "--local", "node", "true")
    assert len(rank_files(work / "prof")) == 1


def test_killed_rank_is_gathered(recorder: str, mpi: Mpi, run: Run, work: Path) -> None:
    python = str(mpi.bin / "python")
    done = run(
        *mpi.mpirun(2), recorder, "run", "--out", "prof", "--local", "node", python, "-c", PROGRAM, env=mpi.environment
    )
    assert done.returncode != 0
    left = rank_files(work / "node" / "prof")
    assert left, "the killed rank's file is still on its node"
    assert run(*mpi.mpirun(1), recorder, "gather", "--remove", "prof", env=mpi.environment).returncode == 0
    gathered = rank_files(work / "prof")
    assert {path.name for path in left} <= {path.name for path in gathered} and len(gathered) == 2
    assert not rank_files(work / "node" / "prof")
    assert json.loads((work / "prof/run.json").read_text())["expected_ranks"] == 2
