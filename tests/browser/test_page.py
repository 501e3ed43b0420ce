"""The page of a small run in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from browser.chromium import Chromium
from rankscope.cli.report import run as report
from rankscope.rankfile import MarkKind, Part
from unit.small_run import MILLI, mpi_rank, write_run
from unit.step_runs import steps


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks with steps; rank 3 is slow in its forward pass."""
    folder = tmp_path_factory.mktemp("page")
    made = []
    for rank in range(4):
        one = mpi_rank(rank, 4, host=b"node1" if rank > 1 else b"node0")
        forward = {
            Part.FORWARD: 30.0 + 10 * (rank == 3),
            Part.BACKWARD: 50.0,
            Part.COMMUNICATION: 12.0 - 10 * (rank == 3),
        }
        one.steps(steps([forward] * 20, [{Part.COMMUNICATION: 12.0 - 10 * (rank == 3)}] * 20))
        one.marks((MarkKind.INIT_BEGIN, 200 * MILLI, "MPI_Init"), (MarkKind.INIT_END, 700 * MILLI, "MPI_Init"))
        made.append(one)
    write_run(folder / "run", *made, expected_ranks=4)
    assert report([str(folder / "run"), "--html", str(folder / "page.html")]) == 0
    return folder / "page.html"


def test_quiet(chromium: Chromium, page: Path) -> None:
    """No error, no warning, no request."""
    chromium.ask(page, {"do": "scroll"})
