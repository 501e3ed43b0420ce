"""Every call that had returned before a process died is in its file, however it died."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import pytest

from mpis import Mpi, find_mpi
from programs import jobs, recorded
from robust import self_counts
from robust.self_counts import SelfCounts

SEED = int(os.environ.get("RANKSCOPE_TEST_SEED", random.SystemRandom().randrange(2**32)))
DEADLINE_S = 60
LAUNCHER_S = 15
MOST_CALLS = 60_000


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def check(run: Path, counts: list[SelfCounts]) -> None:
    """Returned <= recorded <= entered, for every function of every process."""
    assert counts
    for process in counts:
        found: dict[str, int] = defaultdict(int)
        for name, calls in recorded.calls_by_name(recorded.read(recorded.file_of(run, process.pid))).items():
            found[name.removesuffix("_c")] += calls
        bounds = {name: (process.returned[name], found[name], process.entered[name]) for name in process.entered}
        wrong = {name: bound for name, bound in bounds.items() if list(bound) != sorted(bound)}
        assert wrong == {}, f"seed {SEED}, pid {process.pid}: returned, recorded, entered"


def until_gone(pids: list[int]) -> None:
    """The launcher can be gone before the last of its ranks."""
    deadline = time.monotonic() + DEADLINE_S
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "ranks outlive their launcher"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_one(job: subprocess.Popen[bytes], folder: Path, ranks: int, chance: random.Random) -> None:
    """Kills a random rank once it has made a random number of calls, which may be none."""
    target, victim = int(MOST_CALLS ** chance.random()) - 1, chance.randrange(ranks)
    deadline = time.monotonic() + DEADLINE_S
    while True:
        files = sorted(folder.glob("*.counts"))
        if len(files) > victim and self_counts.read(files[victim]).calls >= target:
            break
        assert job.poll() is None and time.monotonic() < deadline, "the job did not get far enough"
        time.sleep(chance.random() * 0.002)
    os.kill(self_counts.read(files[victim]).pid, signal.SIGKILL)


def one_kill(mpi: Mpi, program: list[str | Path], folder: Path, chance: random.Random) -> None:
    ranks = chance.choice((2, 3, 4))
    folder.mkdir()
    run = folder / "run"
    command = mpi.command(ranks, *jobs.recording(run), *program, folder, "forever")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**mpi.environment, **jobs.variables(mpi)}
    job = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        kill_one(job, folder, ranks, chance)
        job.wait(LAUNCHER_S)
    except subprocess.TimeoutExpired:
        end_survivors(folder)  # Intel's launcher can wait for ever for a rank killed before MPI_Init
    finally:
        end_launcher(job)
    until_gone([process.pid for process in self_counts.read_all(folder)])
    check(run, self_counts.read_all(folder))


def end_launcher(job: subprocess.Popen[bytes]) -> None:
    """Intel's mpirun is a script: what it has started has to go with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    # Open MPI's, which it cannot remove: a later mpirun of that process id would refuse to start
    shutil.rmtree(Path(tempfile.gettempdir()) / f"ompi.{job.pid}", ignore_errors=True)


def end_survivors(folder: Path) -> None:
    for process in self_counts.read_all(folder):
        if alive(process.pid):
            os.kill(process.pid, signal.SIGKILL)


def kills(mpi: Mpi, built: Path, folder: Path, number: int) -> None:
    print(f"RANKSCOPE_TEST_SEED={SEED}")
    chance = random.Random(f"{SEED} {mpi.name}")
    compiled = jobs.build_with_mpi(mpi, built, "counts_itself")
    for turn in range(number):
        python = turn % 5 == 4
        program = [mpi.python, jobs.PROGRAMS / "counts_itself.py"] if python else [compiled]
        one_kill(mpi, program, folder / str(turn), chance)


@pytest.mark.parametrize(("name", "number"), [("mpich", 4), ("openmpi", 6)])
def test_some_random_kills(name: str, number: int, built: Path, tmp_path: Path) -> None:
    kills(find_mpi(name), built, tmp_path, number)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "number"), [("mpich", 150), ("openmpi", 100), ("impi", 50)])
def test_three_hundred_random_kills(name: str, number: int, built: Path, tmp_path: Path) -> None:
    kills(find_mpi(name), built, tmp_path, number)


@pytest.mark.parametrize("ending", ["abort", "sigterm", "segv", "_exit", "skip", "finalize"])
def test_ending(mpi: Mpi, ending: str, built: Path, tmp_path: Path) -> None:
    program = jobs.build_with_mpi(mpi, built, "counts_itself")
    job = jobs.run(mpi, 3, tmp_path / "run", program, tmp_path, ending)
    counts = self_counts.read_all(tmp_path)
    until_gone([process.pid for process in counts])
    assert len(counts) == 3, job.err
    check(tmp_path / "run", counts)
    finalized = [recorded.read(recorded.file_of(tmp_path / "run", process.pid)).facts.finalized for process in counts]
    assert finalized == [ending == "finalize"] * 3


@pytest.mark.parametrize("ending", ["exception", "_exit", "finalize"])
def test_python_ending(mpi: Mpi, ending: str, tmp_path: Path) -> None:
    program = jobs.PROGRAMS / "counts_itself.py"
    job = jobs.run(mpi, 3, tmp_path / "run", mpi.python, "-m", "mpi4py", program, tmp_path, ending)
    counts = self_counts.read_all(tmp_path)
    until_gone([process.pid for process in counts])
    assert len(counts) == 3, job.err
    check(tmp_path / "run", counts)
