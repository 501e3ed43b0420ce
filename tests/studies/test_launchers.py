"""How each launcher starts the ranks of a cell: the command lines, and the launchers that are here really run."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from mpis import ROOT, Mpi
from rankscope.cli.study import run
from rankscope.studies.errors import BadStudy
from rankscope.studies.launchers import LAUNCHERS, JobStart, LaunchOptions, launched
from rankscope.studies.plan import CellJob
from studies.studying import cells, squares, states, study, wrong_values

RANK = ("rankscope", "run", "--", "python3", "train.py", "two words")


def command(launcher: str, ranks: int = 4, python: str = "", **wanted: object) -> list[str]:
    job = CellJob(RANK[3:], "local", python)
    return launched(JobStart(RANK, ranks, LaunchOptions(launcher, **wanted), job, "/cells/a"))[0]  # type: ignore[arg-type]


@pytest.fixture
def mpirun(tmp_path: Path) -> str:
    """The Python of an environment with an mpirun, which is not run here."""
    (tmp_path / "mpirun").write_text("#!/bin/sh\n")
    (tmp_path / "mpirun").chmod(0o755)
    return str(tmp_path / "python")


def test_srun() -> None:
    mine = ["srun", "--kill-on-bad-exit=1", "--export=ALL"]
    assert command("srun") == [*mine, "--nodes=1", "--ntasks=4", *RANK]
    asked = command("srun", 6, per_node=2, more=("--gpus-per-task=1",))
    assert asked == [*mine, "--nodes=3", "--ntasks=6", "--ntasks-per-node=2", "--gpus-per-task=1", *RANK]


def test_sbatch() -> None:
    words = command("sbatch", 6, per_node=4, more=("--time=5",))
    assert words[:2] == ["sh", "-c"] and "scancel" in words[2]
    assert words[4:11] == [
        *("sbatch", "--wait", "--export=ALL", "--nodes=2", "--ntasks=6", "--ntasks-per-node=4"),
        "--output=/cells/a/job.txt",
    ]
    assert words[11] == "--time=5"
    inner = words[12].removeprefix("--wrap=exec ")
    assert shlex.split(inner) == ["timeout", "-k", "10", "600", "srun", "--kill-on-bad-exit=1", *RANK]


def test_pals() -> None:
    assert command("pals", 12) == ["mpiexec", "-n", "12", *RANK]
    assert command("pals", 12, per_node=6, more=("--cpu-bind", "depth")) == [
        *("mpiexec", "-n", "12", "--ppn", "6", "--cpu-bind", "depth"),
        *RANK,
    ]


def test_mpiruns(mpirun: str) -> None:
    program = mpirun.replace("python", "mpirun")
    assert command("mpich", 3, mpirun) == [program, "-n", "3", *RANK]
    assert command("impi", 4, mpirun, per_node=2) == [program, "-n", "4", "-ppn", "2", *RANK]
    assert command("openmpi", 1, mpirun) == [program, "-n", "1", *RANK]
    many = len(os.sched_getaffinity(0)) + 1
    assert command("openmpi", many, mpirun)[3:6] == ["--oversubscribe", "--bind-to", "none"]
    assert command("openmpi", 4, mpirun, per_node=2)[3:5] == ["--map-by", "ppr:2:node"]


def test_template() -> None:
    words = command("template", 8, per_node=4, template="aprun -n {ranks} -N {ppn} -x{nodes} {command} --end")
    assert words == ["aprun", "-n", "8", "-N", "4", "-x2", *RANK, "--end"]
    inside = command("template", 2, template="ssh node 'cd /x && {command}'")
    assert inside == ["ssh", "node", f"cd /x && {shlex.join(RANK)}"]
    with pytest.raises(BadStudy, match=r"--template needs \{command\}"):
        command("template", template="aprun -n {ranks}")


def test_local_refuses_what_it_cannot_do() -> None:
    assert command("local", 3)[2:] == ["3", "--", *RANK]
    with pytest.raises(BadStudy, match="--launcher local"):
        command("local", 4, per_node=2)
    with pytest.raises(BadStudy, match="--launcher local"):
        command("local", more=("--x",))


def test_auto_takes_the_launcher_of_the_allocation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "PBS_", "PALS_"))]:
        monkeypatch.delenv(name)
    assert command("auto")[1].endswith("local.py")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert command("auto")[0] == "srun"
    monkeypatch.setenv("SLURM_STEP_ID", "0")  # inside a step already
    assert command("auto")[1].endswith("local.py")
    monkeypatch.delenv("SLURM_JOB_ID")
    (tmp_path / "mpiexec").write_text("#!/bin/sh\necho mpiexec version 1.2.12, PALS\n")
    (tmp_path / "mpiexec").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PBS_NODEFILE", "/nodes")
    monkeypatch.setenv("PBS_JOBID", "7.server")
    assert command("auto")[0] == "mpiexec"


def test_no_mpirun_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadStudy, match="no mpirun beside"):
        command("openmpi", python=str(tmp_path / "python"))


def test_dry_run_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    toml = squares(tmp_path / "t.toml", axes={"number": [2], "ranks": [2]})
    for launcher in sorted(LAUNCHERS.keys() - {"template", "openmpi", "mpich", "impi"}):
        assert run([str(toml), "--dry-run", "--launcher", launcher]) == 0
        assert capsys.readouterr().out.startswith("2, 2 ranks, repeat 1: ")
    assert [path.name for path in tmp_path.iterdir()] == ["t.toml"]


def test_real_mpi(mpi: Mpi, tmp_path: Path) -> None:
    """Every MPI's own launcher, found beside the job's Python and told from the others by what it says."""
    toml = squares(
        tmp_path / "t.toml", mpi.python, axes={"number": [3], "ranks": [1, 3]}, launch={"launcher": "mpirun"}
    )
    done = study(toml, "--out", tmp_path / "out", PATH=mpi.environment["PATH"])
    assert done.returncode == 0, done.stderr
    assert wrong_values(tmp_path / "out") == [] and list(states(tmp_path / "out").values()) == ["done", "done"]
    run = tmp_path / "out" / "cells" / "number=3,ranks=3,repeat=1" / "attempt-1" / "run" / "run.json"
    launcher = {"openmpi": "openmpi", "mpich": "mpich", "impi": "intelmpi"}[mpi.name]
    assert json.loads(run.read_text())["launcher"] == launcher


@pytest.fixture
def torch_python() -> Path:
    python = ROOT / ".envs" / "torch" / "bin" / "python"
    if not python.exists():
        pytest.skip(".envs/torch is missing: run make envs")
    return python


def test_real_torchrun(torch_python: Path, tmp_path: Path) -> None:
    toml = squares(
        tmp_path / "t.toml", torch_python, axes={"number": [3], "ranks": [2]}, launch={"launcher": "torchrun"}
    )
    done = study(toml, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert wrong_values(tmp_path / "out") == [] and list(states(tmp_path / "out").values()) == ["done"]


def test_real_template(tmp_path: Path) -> None:
    starter = ROOT / "src" / "rankscope" / "studies" / "local.py"
    launch = {"template": f"{sys.executable} {starter} {{ranks}} -- {{command}}"}
    done = study(
        squares(tmp_path / "t.toml", axes={"number": [3], "ranks": [2]}, launch=launch), "--out", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    assert wrong_values(tmp_path / "out") == []
    (cell,) = cells(tmp_path / "out").values()
    assert cell["command"][1:4] == [str(starter), "2", "--"]
