"""A study through a real Slurm: steps of an allocation and jobs of their own, on two nodes that are this machine."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpis import Mpi
from studies.studying import (
    ENVIRONMENT,
    STUDY,
    cells,
    processes_with,
    squares,
    states,
    study,
    write_toml,
    wrong_values,
)
from studies.test_outcomes import gone, wait_for
from tools.slurm_here import missing, slurm

NAME = "number=3,ranks=2,repeat=1"
ONE = {"number": [3], "ranks": [2]}


@pytest.fixture(scope="module")
def here() -> Iterator[dict[str, str]]:
    """The variables by which commands find it."""
    if absent := missing():
        pytest.skip(
            f"{', '.join(absent)} not found: install slurmctld, slurmd, slurm-client and munge (Debian's names)"
        )
    with slurm(nodes=2, cpus=4) as variables:
        folder = str(Path(variables["SLURM_CONF"]).parent)
        yield variables
    assert processes_with(folder) == [] and not os.path.exists(folder)


def run(variables: dict[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        env={**ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def launcher_of(folder: Path, cell: str) -> str:
    told = json.loads((folder / "cells" / cell / "attempt-1" / "run" / "run.json").read_text())
    return str(told["launcher"])


def left_in_queue(variables: dict[str, str]) -> list[str]:
    """Jobs that stay there; those that are just ending do not."""
    until = time.monotonic() + 30
    while left := run(variables, "squeue", "--noheader", "--format=%j %T").stdout.splitlines():
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    return left


def test_steps_of_an_allocation(here: dict[str, str], tmp_path: Path) -> None:
    """salloc gives the nodes, the study finds that out by itself and runs each cell as a step of it."""
    toml, folder = squares(tmp_path / "t.toml", axes={"number": [3], "ranks": [1, 2, 4]}), tmp_path / "out"
    done = run(here, "salloc", "--quiet", "--nodes=2", "--ntasks=4", *STUDY, toml, "--out", folder, "--ppn", "2")
    assert done.returncode == 0, done.stderr
    assert list(states(folder).values()) == ["done"] * 3 and wrong_values(folder) == []
    assert cells(folder)[NAME]["command"][0] == "srun" and launcher_of(folder, NAME) == "slurm"
    variables = json.loads((folder / "study.json").read_text())["environment"]["variables"]
    assert variables["SLURM_JOB_NUM_NODES"] == "2"


@pytest.mark.slow
def test_steps_of_a_batch_job(here: dict[str, str], tmp_path: Path) -> None:
    toml, folder = squares(tmp_path / "t.toml", axes=ONE), tmp_path / "out"
    script = f"--wrap=exec {' '.join(STUDY)} {toml} --out {folder}"
    done = run(here, "sbatch", "--wait", "--ntasks=2", f"--output={tmp_path}/log", script)
    assert done.returncode == 0, (tmp_path / "log").read_text()
    assert states(folder) == {NAME: "done"} and wrong_values(folder) == []
    assert launcher_of(folder, NAME) == "slurm"


def test_a_job_for_each_cell(here: dict[str, str], tmp_path: Path) -> None:
    """Two nodes with one rank each: both leave their results, and say where they were."""
    toml, folder = squares(tmp_path / "t.toml", axes=ONE), tmp_path / "out"
    done = study(toml, "--out", folder, "--launcher", "sbatch", "--ppn", "1", **here)
    assert done.returncode == 0, done.stderr
    assert states(folder) == {NAME: "done"} and wrong_values(folder) == []
    printed = (folder / "cells" / NAME / "attempt-1" / "job.txt").read_text().splitlines()
    assert sorted(printed) == ["rank 0 on here1", "rank 1 on here2"]


@pytest.mark.parametrize(
    ("how", "launcher", "state", "reason"),
    [
        ("fail", "sbatch", "failed", "exit code 1"),
        pytest.param("hang", "sbatch", "timed out", "its time was up", marks=pytest.mark.slow),
        ("hang", "srun", "timed out", "stopped after 3 s"),
    ],
)
def test_trouble(here: dict[str, str], tmp_path: Path, how: str, launcher: str, state: str, reason: str) -> None:
    toml, folder = squares(tmp_path / "t.toml", axes=ONE), tmp_path / "out"
    toml.write_text(toml.read_text().replace('"{cell}"]', f'"{{cell}}", "{how}", "1"]'))
    done = study(toml, "--out", folder, "--launcher", launcher, "--timeout", "3", **here)
    assert done.returncode == 1
    assert cells(folder)[NAME]["state"] == state and cells(folder)[NAME]["reason"].startswith(reason)
    assert gone(str(folder)) and left_in_queue(here) == []


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["srun", "sbatch"])
def test_killed_it_leaves_no_job(here: dict[str, str], tmp_path: Path, launcher: str) -> None:
    toml, folder = squares(tmp_path / "t.toml", axes=ONE), tmp_path / "out"
    toml.write_text(toml.read_text().replace('"{cell}"]', '"{cell}", "hang", "1"]'))
    words = [*STUDY, str(toml), "--out", str(folder), "--launcher", launcher]
    running = subprocess.Popen(words, env={**ENVIRONMENT, **here}, stderr=subprocess.DEVNULL)
    wait_for(folder / "cells" / NAME / "attempt-1" / "results" / "0.json")
    running.kill()
    running.wait()
    assert gone(str(folder)) and left_in_queue(here) == []
    assert states(folder) == {}


@pytest.mark.slow
def test_mpi_by_srun(here: dict[str, str], mpich: Mpi, tmp_path: Path) -> None:
    """Slurm's own PMI starts MPICH's ranks: one job of two, not two of one."""
    code = (
        "import os; from mpi4py.MPI import COMM_WORLD as c; os.write(1, f'rank {{c.rank}} of {{c.size}}\\n'.encode())"
    )
    toml = write_toml(tmp_path / "t.toml", [str(mpich.python), "-c", code], {"ranks": [2]})
    folder = tmp_path / "out"
    done = study(toml, "--out", folder, "--launcher", "srun", "--launcher-args=--mpi=pmi2", **here)
    assert done.returncode == 0, done.stderr
    printed = (folder / "cells" / "ranks=2,repeat=1" / "attempt-1" / "output.txt").read_text().splitlines()
    assert sorted(printed) == ["rank 0 of 2", "rank 1 of 2"]
