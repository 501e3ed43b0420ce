"""kill -9 of a rank loses no collective and no step that was complete."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from mpis import Mpi, find_mpi
from questions.live.test_hang_gloo import TORCHRUN
from questions.live.test_hang_gloo import started as started_gloo
from questions.live.test_hang_mpi import started as started_mpi
from rankscope.model.records import Moment
from rankscope.rank_files.live import read_moment

SEED = int(os.environ.get("RANKSCOPE_TEST_SEED", random.SystemRandom().randrange(2**32)))


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return find_mpi(request.param)


def killed(folder: Path, chance: random.Random) -> tuple[int, Moment]:
    """Kills one rank after a random while: what it had counted itself, and what its file says."""
    path = chance.choice(counters(folder))
    time.sleep(chance.random())
    os.kill(int(path.stem), signal.SIGKILL)
    until_gone(int(path.stem))
    (rank_file,) = (folder / "run").glob(f"ranks/*/{path.stem}.rank")
    return int.from_bytes(path.read_bytes(), "little"), read_moment(rank_file)


def counters(folder: Path) -> list[Path]:
    """The files of the four ranks, once each has something to count."""
    deadline = time.monotonic() + 60
    while len(found := sorted(path for path in folder.glob("*.counted") if any(path.read_bytes()))) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # it may go between opening and reading, too
        return False


@pytest.mark.parametrize("turn", range(3))
def test_no_collective_is_lost(mpi: Mpi, turn: int, tmp_path: Path) -> None:
    print(f"RANKSCOPE_TEST_SEED={SEED}")
    with started_mpi(mpi, "counts", tmp_path):
        counted, moment = killed(tmp_path, random.Random(f"{SEED} {turn}"))
    ended = [one for one in moment.entered if one.end_ns is not None and "Allreduce" in one.name]
    first = 2  # MPI_Comm_dup was the first on this communicator
    assert counted > 0
    assert counted <= ended[-1].sequence - first + 1 <= counted + 1
    assert [one.sequence for one in ended] == list(range(ended[0].sequence, ended[-1].sequence + 1))


@pytest.mark.skipif(not TORCHRUN.exists(), reason=".envs/torch is missing: run make envs")
@pytest.mark.timeout(300)
def test_no_step_is_lost(tmp_path: Path) -> None:
    print(f"RANKSCOPE_TEST_SEED={SEED}")
    with started_gloo("ddp", tmp_path):
        counted, moment = killed(tmp_path, random.Random(SEED))
    assert counted > 0
    assert moment.steps is not None
    assert counted <= moment.steps <= counted + 1
