"""The rule on simulated runs: each cause by name, and silence where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from questions.stragglers.simulated import CAUSES, Case, write_case
from rankscope.questions.stragglers.causes import causes, causes_of
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run
from runs.small_run import MILLI


def run_of(folder: Path, case: Case, seed: int = 1) -> RunTables:
    return open_run(write_case(folder / "run", case, np.random.default_rng(seed)), read_rank_file)


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize("cause", CAUSES)
def test_rank_and_cause(tmp_path: Path, cause: str, ranks: int) -> None:
    (found,) = causes_of(run_of(tmp_path, Case(ranks, cause, ranks - 1, 5.0 * MILLI)))
    assert (found.late.rank, found.name) == (ranks - 1, cause)
    assert found.ns == pytest.approx(5.0 * MILLI, rel=0.15)
    assert found.late.waited_ns == pytest.approx(5.0 * MILLI, rel=0.15)


def test_now_and_then_is_enough(tmp_path: Path) -> None:
    (found,) = causes_of(run_of(tmp_path, Case(4, "garbage collection", 1, 3.0 * MILLI, every=4)))
    assert (found.late.rank, found.name) == (1, "garbage collection")


@pytest.mark.parametrize("seed", range(6))
def test_nothing_wrong_nothing_said(tmp_path: Path, seed: int) -> None:
    run = run_of(tmp_path, Case(2 + seed), seed)
    assert causes(run).rows == []
    assert causes(run).notes == ["No rank's own time in a step stands out from its peers'."]


def test_few_steps_prove_nothing(tmp_path: Path) -> None:
    assert causes_of(run_of(tmp_path, Case(4, "forward", 1, 9.0 * MILLI, steps=10))) == []
