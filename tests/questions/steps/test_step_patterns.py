"""Steps are found in what the collectives repeat, and nowhere else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rankscope.model.tables import Tables
from rankscope.questions.steps.data import Steps, steps_of
from rankscope.questions.steps.periods import period_of
from rankscope.questions.stragglers.causes import causes
from runs.step_runs import log, opened, rank

Call = tuple[str, int, float]  # name, bytes, ms of compute before it
BIG, MIDDLE, SMALL = ("MPI_Allreduce", 1 << 20, 5.0), ("MPI_Allreduce", 1 << 16, 1.0), ("MPI_Allreduce", 8, 0.2)
PROLOGUE: list[Call] = [("MPI_Bcast", 4096, 1.0), ("MPI_Bcast", 1 << 20, 1.0), ("MPI_Barrier", 0, 1.0)]
EVALUATION: list[Call] = [("MPI_Reduce", 128, 30.0), ("MPI_Gather", 96, 1.0), ("MPI_Gatherv", 1000, 1.0)]


def run_of(folder: Path, calls: Sequence[Call], ranks: int = 2) -> Tables:
    """All ranks do the same at the same time; each collective takes 0.5 ms."""
    made = [rank(number, ranks) for number in range(ranks)]
    for one in made:
        now, entries = 1_000.0, []
        for name, size, compute in calls:
            entries.append((name, size, now + compute, now + compute + 0.5))
            now += compute + 0.5
        log(one, entries)
    return opened(folder, *made)


def found(folder: Path, calls: Sequence[Call]) -> Steps:
    return steps_of(run_of(folder, calls))


def test_a_period_with_prologue_and_evaluations(tmp_path: Path) -> None:
    calls = PROLOGUE + ([BIG, MIDDLE] * 30 + EVALUATION) * 3
    steps = found(tmp_path, calls)
    assert steps.source == "pattern"
    for one in steps.ranks:
        assert len(one.number) == 90
        assert np.allclose(one.own["compute"], 6.0e6)
        assert np.allclose(one.exposed_ns, 1.0e6)
        assert np.allclose(one.length_ns, 7.0e6)


def test_an_extra_collective_now_and_then_does_not_break_a_step(tmp_path: Path) -> None:
    calls: list[Call] = [*PROLOGUE]
    for step in range(60):
        calls += [BIG, ("MPI_Allreduce", 512, 0.1), MIDDLE] if step % 10 == 9 else [BIG, MIDDLE]
    steps = found(tmp_path, calls)
    assert len(steps.ranks[0].number) == 60


def test_equal_collectives_are_told_apart_by_the_compute_before_them(tmp_path: Path) -> None:
    one, two, three = (("MPI_Allreduce", 4096, ms) for ms in (8.0, 1.0, 2.0))
    steps = found(tmp_path, [*PROLOGUE, *([one, two, three] * 40)])
    assert len(steps.ranks[0].number) == 40
    assert [np.unique(gaps).tolist() for gaps in steps.ranks[0].gaps.values()] == [[8e6], [1e6], [2e6]]


def test_steps_that_begin_elsewhere_on_some_ranks_have_the_same_numbers(tmp_path: Path) -> None:
    """Rank 0 computes before the broadcast, rank 1 before the reduction; each has a size that the other has not."""
    made = [rank(number, 2) for number in range(2)]
    for number, one in enumerate(made):
        own = ("MPI_Allreduce", 3000 + 1000 * number, 0.1)
        step: list[Call] = [
            ("MPI_Bcast", 1 << 16, 8.0 - 7.9 * number),
            own,
            ("MPI_Reduce", 1 << 18, 0.1 + 7.9 * number),
        ]
        now, entries = 1_000.0, []
        for name, size, compute in step * 40:
            entries.append((name, size, now + compute, now + compute + 0.5))
            now += compute + 0.5
        log(one, entries)
    steps = steps_of(opened(tmp_path, *made))
    assert len(steps.common()) >= 38
    assert max(int(one.number[-1]) for one in steps.ranks) <= 40


def test_a_late_rank_whose_steps_have_no_part_in_common_with_the_others(tmp_path: Path) -> None:
    made = [rank(number, 3) for number in range(3)]
    for number, one in enumerate(made):
        late = 4.0 * (number == 1)
        own = ("MPI_Allgather" if late else "MPI_Allreduce", 4096, 0.1)
        step: list[Call] = [("MPI_Bcast" if late else "MPI_Scatter", 1 << 16, 8.0 + late), own]
        now, entries = 1_000.0, []
        for name, size, compute in step * 40:
            entries.append((name, size, now + compute, now + compute + 4.5 - late))
            now += compute + 4.5 - late
        log(one, entries)
    (found,) = causes(opened(tmp_path, *made)).rows
    assert found[0] == 1 and found[2] == "own compute"
    assert found[-1] == "all own time +4 ms per step against its peers"


@pytest.mark.parametrize("spread", [0.5, 1.0, 1.5, 2.0])
def test_steps_are_found_although_times_vary_and_epochs_end_differently(tmp_path: Path, spread: float) -> None:
    """As on a machine whose processors others use: the times show no period, and no two epochs are equal."""
    chance = random.Random(6)
    calls: list[Call] = [*PROLOGUE]
    for epoch in range(24):
        for _ in range(96):
            calls += [(name, size, ms * chance.lognormvariate(0, spread)) for name, size, ms in (BIG, MIDDLE)]
        calls.append(("MPI_Gatherv", 1000 + 8 * epoch, 30.0))
    assert [len(one.number) for one in found(tmp_path, calls).ranks] == [24 * 96] * 2


def test_many_equal_collectives_of_a_step_are_one_step(tmp_path: Path) -> None:
    bucket: Call = ("MPI_Allreduce", 1 << 20, 0.5)
    step: list[Call] = [("MPI_Allreduce", 1 << 20, 8.0), *([bucket] * 6), ("MPI_Allreduce", 1 << 14, 0.5)]
    assert len(found(tmp_path, PROLOGUE + step * 40).ranks[0].number) == 40


def test_a_part_that_repeats_within_the_step_is_no_step(tmp_path: Path) -> None:
    layers: list[Call] = [("MPI_Allreduce", 1000 + 8 * (at % 8), 5.0 if at == 0 else 0.1) for at in range(60)]
    assert len(found(tmp_path, PROLOGUE + layers * 20).ranks[0].number) == 20


def test_negotiations_are_no_steps(tmp_path: Path) -> None:
    chance = random.Random(4)
    calls: list[Call] = []
    for _ in range(50):
        calls += [SMALL] * chance.randrange(1, 9) + [BIG, MIDDLE]
    assert len(found(tmp_path, calls).ranks[0].number) == 50


def test_no_period_no_steps(tmp_path: Path) -> None:
    chance = random.Random(5)
    calls = [("MPI_Allreduce", chance.randrange(100, 10**6), 1.0) for _ in range(300)]
    assert found(tmp_path, calls).ranks == []


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_too_few_repeats_are_no_steps(tmp_path: Path, repeats: int) -> None:
    assert found(tmp_path, PROLOGUE + [BIG, MIDDLE] * repeats).ranks == []


@pytest.mark.parametrize("period", [1, 2, 7, 100])
def test_periods_of_noisy_sequences(period: int) -> None:
    chance = np.random.default_rng(period)
    tokens = np.tile(np.arange(period), 2_000 // period)
    tokens[chance.random(len(tokens)) < 0.03] = 999
    idle = np.tile(np.arange(1, period + 1) * 1e6, len(tokens) // period) * chance.lognormal(0, 0.1, len(tokens))
    assert period_of(tokens, idle[1:]) == period


def test_random_tokens_have_no_period() -> None:
    chance = np.random.default_rng(1)
    assert period_of(chance.integers(0, 10, 2_000), chance.random(1_999)) == 0
