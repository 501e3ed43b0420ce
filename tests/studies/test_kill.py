"""A study that is killed at any moment goes on where it was: nothing twice, nothing wrong, nothing left running."""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path

import pytest

from mpis import Mpi
from studies.studying import ENVIRONMENT, STUDY, cells, processes_with, squares, states, study, wrong_values

LONGEST_S = 20.0
FEW, MANY = 3, 20
AXES = {"number": [2, 3, 4], "ranks": [1, 2]}


def kept(folder: Path) -> dict[str, list[tuple[str, int, bytes]]]:
    """Of each cell that has ended: its files, when they were written and what is in them."""
    found = {}
    for name, cell in cells(folder).items():
        place = folder / "cells" / name
        attempt = place / cell["attempt"]
        files = [place / "cell.json", *(path for path in attempt.rglob("*") if path.is_file())]
        found[name] = [(str(path), path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(files)]
    return found


def half_written(folder: Path) -> list[str]:
    """Files of ours that cannot be read as a whole; what stays hidden beside them does not count."""
    found = []
    for path in folder.rglob("*.json"):
        if not path.name.startswith("."):
            try:
                json.loads(path.read_text())
            except ValueError:
                found.append(str(path))
    return found


def begin(toml: Path, folder: Path) -> subprocess.Popen[str]:
    words = [*STUDY, str(toml), "--out", str(folder), *(["--resume"] if folder.exists() else [])]
    return subprocess.Popen(
        words, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def until_nothing_runs(folder: Path) -> list[str]:
    until = time.monotonic() + LONGEST_S
    while (left := processes_with(str(folder))) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def kill_and_resume(toml: Path, parent: Path, times: int, longest_s: float) -> None:
    """Kills at random moments, studies one after the other, until so many kills have hit."""
    seed = random.randrange(1 << 30)
    moments = random.Random(seed)
    killed = number = 0
    while killed < times:
        number += 1
        folder = parent / f"study-{number}"
        while True:
            before = kept(folder)
            running = begin(toml, folder)
            try:
                running.wait(moments.uniform(0, longest_s) if killed < times else LONGEST_S * 5)
            except subprocess.TimeoutExpired:
                running.kill()
                killed += 1
            said = running.communicate()[1]
            where = f"seed {seed}, kill {killed}, {folder}: {said}"
            assert until_nothing_runs(folder) == [], where
            after = kept(folder)
            assert {name: after[name] for name in before} == before, where
            assert wrong_values(folder) == [], where
            assert half_written(folder) == [], where
            if running.returncode == 0:
                break
            assert running.returncode == -9, where
        assert list(states(folder).values()) == ["done"] * 6, where
        assert not list(folder.rglob(".*.new")), where
        assert (folder / "squares.md").exists() and (folder / "squares.html").exists(), where


@pytest.mark.slow
def test_killed_few_times(tmp_path: Path) -> None:
    kill_and_resume(squares(tmp_path / "squares.toml", axes=AXES), tmp_path, FEW, 4.0)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_twenty_times(tmp_path: Path) -> None:
    kill_and_resume(squares(tmp_path / "squares.toml", axes=AXES), tmp_path, MANY, 4.0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_twenty_times_under_mpirun(openmpi: Mpi, tmp_path: Path) -> None:
    toml = squares(tmp_path / "squares.toml", openmpi.python, axes=AXES, launch={"launcher": "openmpi"})
    kill_and_resume(toml, tmp_path, MANY, 10.0)


def test_killed_under_mpirun_ends_the_ranks(openmpi: Mpi, tmp_path: Path) -> None:
    toml = squares(tmp_path / "squares.toml", openmpi.python, axes={"ranks": [2]}, launch={"launcher": "openmpi"})
    hanging = toml.read_text().replace('"{cell}"]', '"{cell}", "hang", "1"]')
    toml.write_text(hanging)
    folder = tmp_path / "out"
    running = begin(toml, folder)
    until = time.monotonic() + LONGEST_S
    while len(processes_with(f"{folder}/cells/number=2,ranks=2,repeat=1/attempt-1 hang")) < 2:
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.05)
    running.kill()
    running.wait()
    assert until_nothing_runs(folder) == []
    assert states(folder) == {}


def test_resumed_when_all_is_done_runs_nothing(tmp_path: Path) -> None:
    toml, folder = squares(tmp_path / "squares.toml", axes={"ranks": [1], "number": [2]}), tmp_path / "out"
    assert study(toml, "--out", folder).returncode == 0
    before = kept(folder)
    again = study(toml, "--out", folder, "--resume")
    assert again.returncode == 0 and "[1/1]" not in again.stderr
    assert kept(folder) == before
