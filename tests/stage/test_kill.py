"""Killed at any moment, nothing half-written is ever used: the next run works, and nothing stays behind."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rankscope.stage.receive import sealed
from stage.conftest import make_environment
from stage.jobs import Environment, clean_variables, copies, is_soon, python, stage, staged_folder, words

SEED = 20261115
BULK_BYTES = 24 * 1024**2


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that takes a moment to bring: a large file and 400 small ones."""
    made = make_environment(tmp_path_factory.mktemp("large") / "env")
    generator = random.Random(SEED)
    (made.packages / "alpha" / "bulk.bin").write_bytes(generator.randbytes(BULK_BYTES))
    (made.packages / "many").mkdir()
    for number in range(400):
        (made.packages / "many" / f"module{number}.py").write_text(f"VALUE = {number}\n")
    assert stage(made, "--all", "--no-base", command=[]).returncode == 0
    return made


def keepers(place: Path) -> list[int]:
    """Processes of ours that have a file open in the place: the ranks and the keeper."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            targets = [os.readlink(f"/proc/{name}/fd/{number}") for number in os.listdir(f"/proc/{name}/fd")]
            line = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if any(target.startswith(f"{place}/") for target in targets) or os.fsencode(place) + b"\0" in line:
            found.append(int(name))
    return found


def kill_all(place: Path) -> int:
    """Everything that works in this place, at once and without a word; how many there were."""
    killed = 0
    for pid in keepers(place):
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            pass
    return killed


def is_whole(copy: Path) -> bool:
    """Whether every packed file of the copy has the content that was packed."""
    return all(
        file.relocated or hashlib.sha256((copy / file.path).read_bytes()).hexdigest() == file.sha256
        for file in sealed(str(copy)).files
    )


def kill_and_run_again(large: Environment, place: Path, after_s: float) -> None:
    """Start, kill everything after so long, look, start again."""
    job = subprocess.Popen(
        words(large, "--to", place, command=python("import time; time.sleep(60)")),
        env=clean_variables(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(after_s)
    job.kill()  # it may be the command already, which has nothing of ours open
    while kill_all(place):
        pass  # one that was just being started
    job.wait(20)
    for copy in copies(place):
        if not copy.name.startswith(("part-", "trash-")):
            assert is_whole(copy), copy
    again = stage(large, "--to", place, command=python("import sys, many.module399; print(sys.prefix)"))
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith(str(staged_folder(place)))
    assert is_soon(lambda: not left_behind(place)), left_behind(place)


def left_behind(place: Path) -> list[str]:
    """All but empty files for locks and notes of jobs."""
    return [name for name in os.listdir(staged_folder(place)) if not name.startswith(("gate", "build-", "job-"))]


@pytest.fixture(scope="module")
def usual_s(large: Environment, tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long a run takes here and now."""
    began_s = time.monotonic()
    assert stage(large, "--to", tmp_path_factory.mktemp("usual"), command=python("")).returncode == 0
    return time.monotonic() - began_s


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_killed_on_the_way(large: Environment, usual_s: float, tmp_path: Path, share: float) -> None:
    kill_and_run_again(large, tmp_path, usual_s * share)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_random_moments(large: Environment, usual_s: float, tmp_path: Path) -> None:
    generator = random.Random(SEED)
    for _ in range(25):
        kill_and_run_again(large, tmp_path, generator.uniform(0, 1.2 * usual_s))


def test_a_killed_keeper_is_replaced(large: Environment, tmp_path: Path) -> None:
    """The rank waits for its keeper's word; without one it starts another."""
    job = subprocess.Popen(
        words(large, "--to", tmp_path, command=python("import sys; print(sys.prefix)")),
        env=clean_variables(),
        stdout=subprocess.PIPE,
        text=True,
    )
    part = staged_folder(tmp_path)
    assert is_soon(lambda: part.is_dir() and any(name.startswith("part-") for name in os.listdir(part)))
    for pid in keepers(tmp_path):
        if pid != job.pid:
            os.kill(pid, signal.SIGKILL)
    output, _ = job.communicate(timeout=30)
    assert (job.returncode, output.startswith(str(part))) == (0, True)


def test_a_killed_rank_leaves_a_keeper_that_cleans_up(large: Environment, tmp_path: Path) -> None:
    job = subprocess.Popen(
        words(large, "--to", tmp_path, command=python("print(flush=True); import time; time.sleep(60)")),
        env=clean_variables(),
        stdout=subprocess.PIPE,
    )
    assert job.stdout
    job.stdout.readline()
    assert len(copies(tmp_path)) == 1
    job.kill()
    job.wait(20)
    assert is_soon(lambda: not copies(tmp_path))
    assert is_soon(lambda: not keepers(tmp_path))
