"""The fixtures all tests share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mpis import ROOT, Mpi, find_mpi


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have torch's observer compiled before tests of torch begin: no job of theirs waits for it."""
    python, rankscope = ROOT / ".envs" / "torch" / "bin" / "python", ROOT / ".venv" / "bin" / "rankscope"
    if session.config.option.collectonly or not python.exists() or not rankscope.exists():
        return
    if any("torch" in path.read_text(errors="replace") for path in {item.path for item in session.items}):
        subprocess.run([rankscope, "doctor", "--prepare", "--python", python], capture_output=True, check=False)


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
