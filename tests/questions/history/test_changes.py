"""Changes of the level of series whose every level is known."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest

from rankscope.questions.history.changes import interval, level_changes, rank_sum_chance


def series(seed: int, *levels: tuple[int, float], noise: float = 0.02) -> Any:
    random = np.random.default_rng(seed)
    return np.concatenate([level * random.lognormal(0, noise, count) for count, level in levels])


def test_a_step_is_found_with_its_size_and_how_sure_it_is() -> None:
    (found,) = level_changes(series(1, (40, 100.0), (25, 110.0)))
    assert abs(found.at - 40) <= 1 and found.until == 65 and not found.gradual
    assert found.share == pytest.approx(0.1, abs=0.02)
    assert found.low < 0.1 < found.high and found.high - found.low < 0.04
    assert found.chance < 1e-6


def test_a_few_runs_after_a_clear_change_suffice() -> None:
    (found,) = level_changes(series(2, (96, 100.0), (5, 130.0), noise=0.01), tests=20)
    assert found.at == 96 and found.chance * 20 < 0.05


def test_three_runs_are_never_enough() -> None:
    assert level_changes(series(3, (96, 100.0), (3, 900.0), noise=0.01)) == []


def test_equal_runs_raise_no_alarm() -> None:
    """Of 150 series 5 % of which may: by the bound, not one in 20 even of these."""
    alarms = sum(bool(level_changes(series(seed, (60, 100.0), noise=0.05))) for seed in range(150))
    assert alarms <= 5


def test_slow_runs_here_and_there_are_no_change() -> None:
    values = series(4, (120, 100.0))
    values[np.random.default_rng(5).choice(120, 10, replace=False)] *= 3
    assert level_changes(values) == []


def test_what_passes_is_two_changes() -> None:
    found = level_changes(series(6, (60, 100.0), (20, 115.0), (80, 100.0)))
    assert [abs(one.at - at) <= 2 for one, at in zip(found, (60, 80), strict=True)] == [True, True]
    assert found[0].share > 0 > found[1].share


def test_what_creeps_is_gradual() -> None:
    values = series(7, (200, 100.0), noise=0.01) * np.linspace(1, 1.3, 200)
    (found,) = level_changes(values)
    assert found.gradual and found.share == pytest.approx(0.22, abs=0.04)  # from the first quarter to the last


def test_a_change_too_small_to_notice_is_none() -> None:
    values = series(8, (200, 100.0), (200, 102.0), noise=0.01)
    assert level_changes(values) == [] and level_changes(values * [*[1] * 200, *[1.05] * 200]) != []
    assert level_changes(series(9, (50, 100.0), (50, 110.0)), least=20.0) == []


def test_values_that_are_equal_do_not_grow() -> None:
    """Without an order of their own the later ones would count as larger."""
    assert level_changes(np.zeros(100)) == []
    assert level_changes(np.repeat([1.0, 1.0, 1.1, 1.0], 25)[np.random.default_rng(1).permutation(100)]) == []


def wandering(seed: int, count: int = 500) -> Any:
    """Noise of 2 % on a level that moves by 1.5 % to and fro, and needs 50 runs for it."""
    random = np.random.default_rng(seed)
    level = np.zeros(count)
    for at in range(1, count):
        level[at] = 0.98 * level[at - 1] + random.normal(0, 0.015 * (1 - 0.98**2) ** 0.5)
    return 100.0 * np.exp(level + random.normal(0, 0.02, count))


def test_a_level_that_wanders_is_no_change_by_what_it_does_by_itself() -> None:
    assert [seed for seed in range(30) if level_changes(wandering(seed), tests=50)] == []


def test_a_change_beyond_what_the_level_does_by_itself_is_found() -> None:
    found = [level_changes(wandering(seed) * np.repeat([1.0, 1.1], 250), tests=50) for seed in range(20)]
    assert sum(len(some) == 1 and abs(some[0].at - 250) <= 5 for some in found) >= 19


def test_places_that_are_as_likely_are_few_where_a_change_is_clear() -> None:
    (clear,) = level_changes(series(12, (60, 100.0), (60, 120.0), noise=0.01))
    assert (clear.earliest, clear.latest) == (60, 60) and clear.at == 60
    faint = [level_changes(series(seed, (60, 100.0), (60, 105.0), noise=0.03))[0] for seed in range(20)]
    assert sum(one.earliest <= 60 <= one.latest for one in faint) >= 16
    assert all(one.latest - one.earliest >= 2 for one in faint)


def test_neighbours_that_are_alike_are_no_change() -> None:
    """A walk that returns: each value is near the one before."""
    random = np.random.default_rng(11)
    alarms = 0
    for _ in range(20):
        walk = np.zeros(300)
        for at in range(1, 300):
            walk[at] = 0.95 * walk[at - 1] + random.normal(0, 0.31)
        alarms += len(level_changes(100 * np.exp(0.015 * walk)))
    assert alarms <= 6


@pytest.mark.parametrize(("left", "right"), [(4, 4), (5, 7), (4, 12), (9, 6)])
def test_the_chance_is_that_of_all_ways_to_share_out_the_ranks(left: int, right: int) -> None:
    ranks = np.arange(left + right) - (left + right - 1) / 2
    sums = np.array([ranks[list(chosen)].sum() for chosen in combinations(range(left + right), left)])
    for seen in (abs(sums).max(), abs(sums).max() - 1, abs(sums).max() - 3):
        true = (abs(sums) >= seen - 1e-9).mean()
        assert rank_sum_chance(left, right, float(seen)) == pytest.approx(true, rel=1e-6)


def test_the_chance_of_many_is_not_too_small() -> None:
    """Of the largest difference of 200 and 12 runs: 2 of all ways, which the normal law would not dare to say."""
    assert rank_sum_chance(12, 200, 12 * 200 / 2) == pytest.approx(2 / comb(212, 12), rel=1e-6)
    assert rank_sum_chance(30, 30, 450.0) > 2 / comb(60, 30)
    assert rank_sum_chance(30, 30, 450.0, carried=2.0) > rank_sum_chance(30, 30, 450.0)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    random = np.random.default_rng(12)
    held = 0
    for _ in range(300):
        before, after = random.lognormal(0, 0.05, 20), 1.1 * random.lognormal(0, 0.05, 15)
        low, high = interval(before, after)
        held += low <= 0.1 <= high
    assert 0.91 <= held / 300 <= 0.99
