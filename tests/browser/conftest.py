"""The fixtures of the browser tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser.chromium import Chromium, find_chromium
from browser.large_run import write_large_run
from browser.pages import gpu_run, page_of_run


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    found = find_chromium()
    yield found
    found.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """24 ranks of MPI of which rank 5 is slow, and two on a GPU."""
    folder = tmp_path_factory.mktemp("runs")
    return {"mpi": write_large_run(folder / "run", ranks=24, steps=40), "gpu": gpu_run(folder)}


@pytest.fixture(scope="session")
def page(runs: dict[str, Path]) -> Path:
    """The page of the run with MPI."""
    return page_of_run(runs["mpi"])
