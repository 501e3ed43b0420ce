"""--local and gather with the real recorder and a rank that is killed."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from installed import Mpi, Run
from rankscope.model.records import Reading
from rankscope.rank_files.read import read_rank_file

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
    [node] = (work / "node").glob("prof-*")
    left = rank_files(node)
    assert left, "the killed rank's file is still on its node"
    assert run(*mpi.mpirun(1), recorder, "gather", "--remove", "prof", env=mpi.environment).returncode == 0
    gathered = rank_files(work / "prof")
    assert {path.name for path in left} <= {path.name for path in gathered} and len(gathered) == 2
    assert not rank_files(node)
    assert json.loads((work / "prof/run.json").read_text())["expected_ranks"] == 2


def kill_at_once(recorder: str, run: Run, out: str) -> None:
    done = run(recorder, "run", "--out", out, "--local", "node", "sh", "-c", "kill -9 $$")
    assert done.returncode == -9


def test_runs_of_equal_names_share_no_folder_on_the_node(recorder: str, run: Run, work: Path) -> None:
    """In two folders, and one after the other in the same."""
    for out in ("a/prof", "b/prof", "a/prof"):
        kill_at_once(recorder, run, out)
        if out == "b/prof":
            (work / "a" / "prof").rename(work / "a" / "earlier")
    assert len(list((work / "node").iterdir())) == 3
    for out in ("a/prof", "b/prof", "a/earlier"):
        assert run(recorder, "gather", "--remove", out).returncode == 0
        assert len(rank_files(work / out)) == 1
    assert not list((work / "node").glob("*/ranks/*/*.rank"))


IN_CONTAINER = """
import sys
sys.stdout.write("ready\\n")  # in one write, also where PYTHONUNBUFFERED is set: two processes share the pipe
sys.stdout.flush()
sys.stdin.readline()
import decimal
"""


@pytest.fixture
def container() -> list[str]:
    """What gives a command process id 1, and a /proc to match."""
    made = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*made, "true"], capture_output=True).returncode:
        pytest.skip("process namespaces cannot be made here: that takes root and unshare")
    return made


def test_a_process_takes_no_file_of_another_with_its_number(recorder: str, container: list[str], work: Path) -> None:
    """Two containers of a host: the one that ends first has the second name, and leaves the first file alone."""
    inside = shlex.join([*container, sys.executable, "-c", IN_CONTAINER])
    script = f"mkfifo a b; exec 3<>a 4<>b; {inside} <&3 & {inside} <&4 & wait"
    command = [recorder, "run", "--out", "prof", "--local", "node", "sh", "-c", script]
    with subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, text=True, start_new_session=True) as job:
        try:
            assert job.stdout is not None
            assert [job.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
            [node] = (work / "node").glob("prof-*")
            assert len(of_number_one(node)) == 2
            end_one(work / "b", work / "prof", 1)
            end_one(work / "a", work / "prof", 2)
            assert job.wait(60) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
    found = [read_rank_file(path) for path in of_number_one(work / "prof")]
    assert [(reading.facts.ending, "decimal" in modules(reading)) for reading in found] == [("exited", True)] * 2
    assert not rank_files(node)


def end_one(fifo: Path, run_folder: Path, files: int) -> None:
    """Let one of the two end; its file is in the run before its parent can know that it has ended."""
    with fifo.open("w") as told:
        told.write("end\n")
    deadline = time.monotonic() + 60
    while len(of_number_one(run_folder)) < files:
        assert time.monotonic() < deadline, f"{files} files expected"
        time.sleep(0.01)


def of_number_one(folder: Path) -> list[Path]:
    return [path for path in rank_files(folder) if path.stem.partition("-")[0] == "1"]


def modules(reading: Reading) -> set[str]:
    return set(reading.import_columns["modules"]["name"].values) if "modules" in reading.import_columns else set()
