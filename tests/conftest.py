"""The fixtures all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpis import ROOT, Mpi, find_mpi


@pytest.fixture(scope="session", params=["openmpi", "mpich", "impi"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each MPI in turn."""
    return find_mpi(request.param)


@pytest.fixture(scope="session")
def openmpi() -> Mpi:
    return find_mpi("openmpi")


@pytest.fixture(scope="session")
def mpich() -> Mpi:
    return find_mpi("mpich")


@pytest.fixture(scope="session")
def impi() -> Mpi:
    return find_mpi("impi")


@pytest.fixture(scope="session")
def rankscope() -> Path:
    """The rankscope command of the environment the tests run in."""
    found = ROOT / ".venv" / "bin" / "rankscope"
    if not found.exists():
        pytest.skip(".venv/bin/rankscope is missing: run make envs")
    return found
