"""The first screen of every kind of run is one screen, and is as it was looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rankscope as rs
from output.screens import KEPT, WIDTHS, kept, runs, shown
from rankscope.api.run import Selection
from rankscope.output.screen import MOST_LINES, WIDEST_TEXT, to_screen
from runs.small_run import mpi_rank, write_run

KINDS = sorted({path.stem.rpartition("-")[0] for path in KEPT.glob("*.txt")})
CALL = [sys.executable, "-c", "import sys; from rankscope.cli.report import run; sys.exit(run(sys.argv[1:]))"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return dict(runs(tmp_path_factory.mktemp("runs")))


def test_every_kind_is_kept(made: dict[str, Path]) -> None:
    assert sorted(made) == KINDS and len(KINDS) >= 8
    assert sorted(path.name for path in KEPT.iterdir()) == sorted(kept(kind, w).name for kind in KINDS for w in WIDTHS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_screen_is_as_it_was(kind: str, made: dict[str, Path]) -> None:
    for width in WIDTHS:
        text = shown(made[kind], width)
        assert text == kept(kind, width).read_text(encoding="utf-8"), "after a look: .venv/bin/python tools/screens.py"
        assert text.count("\n") <= MOST_LINES and max(map(len, text.splitlines())) <= width
        prose = [line for line in text.splitlines() if line.startswith(("INCOMPLETE", "Complete", "1 ", "Not", "More"))]
        assert prose or kind in ("study",)
        assert all(len(line) <= WIDEST_TEXT for line in prose)


@pytest.mark.parametrize(
    ("kind", "opens", "names"),
    [
        ("mpi_toy", "rankscope  train_mpi4py.py", "exposed communication"),
        ("ddp_straggler", "rankscope  train_ddp.py", "1 HIGH  Rank 1 (vm) is late"),
        ("gpu_launch_bound", "rankscope  problems.py launch", "launch kernels"),
        ("gpu_data_bound", "rankscope  problems.py data", "data loader"),
        ("gpu_pageable", "rankscope  problems.py pageable", "pin_memory=True"),
        (
            "gpu_item",
            "rankscope  problems.py item",
            "1 MED   The host waits for the GPU, and then the GPU for the host",
        ),
        ("gpu_ddp", "rankscope  problems.py ddp", "1 HIGH  The GPUs communicate without computing"),
        ("kineto", "rankscope  kineto", "1 HIGH  The GPUs communicate without computing"),
        ("nsys", "rankscope  nsys", "1 HIGH  The GPU is idle, and nothing says what the host does"),
        ("nvprof", "rankscope  worker.py", "1 HIGH  Kernels that communicate take 67 % of GPU time"),
        ("mpitrace", "rankscope  mpitrace", "34 % of wall time"),
        ("document", "rankscope  document", "32.00 ×"),
        (
            "incomplete",
            "INCOMPLETE: 1 of 4 ranks not seen (rank 3): sums",
            "1 HIGH  Every rank is blocked in communication",
        ),
        ("kineto_one_of_two", "INCOMPLETE: 1 of 2 ranks loaded (rank 0)", "rankscope load FILES --out"),
        ("study", "FAILED: 1 of 3 cells", "no end after 60 s"),
        ("many_ranks", "rankscope  train.py", "1 MED   Rank 17 (node00001) is late"),
    ],
)
def test_a_screen_opens_with_the_answer(kind: str, opens: str, names: str) -> None:
    text = kept(kind, 100).read_text(encoding="utf-8")
    assert text.startswith(opens) and names in text


def test_the_numbers_are_those_of_the_tables(made: dict[str, Path]) -> None:
    """Worked out once more from CSV, not by the screen."""
    [found] = rs.open(made["mpi_toy"]).answers(["step_parts"], Selection())
    rows = [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]
    mean = sum(row["step_ns"] for row in rows) / len(rows)
    exposed = sum(row["exposed_ns"] for row in rows) / len(rows)
    text = shown(made["mpi_toy"], 100)
    assert f"mean {mean / 1e6:.2f} ms" in text
    [line] = [line for line in text.splitlines() if line.startswith("  exposed communication")]
    assert line.split()[-4:] == [f"{exposed / 1e6:.2f}", "ms", f"{100 * exposed / mean:.0f}", "%"]


def test_on_a_terminal_of_ascii_alone(made: dict[str, Path]) -> None:
    plain = {**os.environ, "LC_ALL": "C", "COLUMNS": "80"}
    for options in ([], ["--full"]):
        done = subprocess.run([*CALL, made["ddp_straggler"], *options], capture_output=True, env=plain, check=True)
        text = done.stdout.decode("ascii")
        assert "\\" not in text and max(map(len, text.splitlines())) <= 80
        assert options or "####" in text


def test_ranks_can_be_chosen(made: dict[str, Path]) -> None:
    text = to_screen(rs.open(made["many_ranks"]).screen(Selection(frozenset((16, 17, 18)))), 100)
    assert [line.split()[0] for line in text.partition("RANKS")[2].splitlines()[1:4]] == ["16", "17", "18"]


def test_a_job_that_failed_says_so_first(tmp_path: Path) -> None:
    failed = write_run(tmp_path / "failed", *(mpi_rank(rank, 2, exit_code=rank) for rank in range(2)))
    first, second, *_ = to_screen(rs.open(failed).screen(), 100).splitlines()
    assert first == "FAILED: 1 rank ended abnormally (exit 1): 1"
    assert second.endswith("1 × exit 0 (rank 0), 1 × exit 1 (rank 1)")
