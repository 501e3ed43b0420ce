"""On runs of a known law: repeats of the same are not told apart, and a part made 5 % slower is named."""

from __future__ import annotations

import numpy as np
import pytest

from questions.compare.simulated import PARTS_MS, Law, side_by
from rankscope.questions.compare.measures import Metric
from rankscope.questions.compare.resampling import (
    MOST,
    block_length,
    chances,
    changes_of,
    exchanges,
    fewest_chance,
    paired_chance,
    paired_interval,
)
from rankscope.questions.compare.tables import headline, is_quiet
from rankscope.questions.compare.verdicts import (
    CANNOT_TELL,
    FASTER,
    SLOWER,
    CompareOptions,
    Comparison,
    _simultaneous,
    compare,
)

PAIRS = 12  # benchmarks/compare.py judges many more
LAW = Law()


def pair(seed: int, repeats: int, slower: dict[str, float], law: Law = LAW) -> Comparison:
    random = np.random.default_rng(seed)
    before = side_by(random, "A", repeats, law, {})
    return compare(before, side_by(random, "B", repeats, law, slower), CompareOptions())


def test_repeats_of_the_same_are_not_told_apart() -> None:
    quiet = [is_quiet(pair(seed, 10, {})) for seed in range(PAIRS)]
    assert sum(quiet) >= PAIRS - 1


def test_a_part_made_slower_is_named_and_no_other() -> None:
    made = [pair(100 + seed, 10, {"forward": 1.05}) for seed in range(PAIRS)]
    named = [{str(one.metric): one.verdict for one in each.changes if one.changed} for each in made]
    assert sum(one.get("part.forward") == SLOWER for one in named) >= PAIRS - 2
    assert sum(any(name.startswith("part.") and name != "part.forward" for name in one) for one in named) <= 1


def test_the_headline_names_the_part() -> None:
    made = pair(7, 10, {"backward": 1.2}, Law(disturbed=0.0))
    assert headline(made).startswith("B is slower than A: step_p50 +")
    assert "; part.backward +" in headline(made)


def test_four_runs_a_side_tell_a_clear_change_of_the_step() -> None:
    """The table around it, most of it noise, does not make the headline less sure."""
    made = pair(7, 4, dict.fromkeys(PARTS_MS, 1.22), Law(disturbed=0.0))
    assert made.headline and made.headline.verdict == SLOWER and made.headline.chance == pytest.approx(2 / 70)
    low, high = made.headline.interval()
    assert 0.15 < low < 0.22 < high < 0.30


def test_the_headline_raises_a_false_alarm_in_at_most_5_of_100_comparisons() -> None:
    """Disturbed runs included; the bound holds within three standard errors."""
    random = np.random.default_rng(11)
    for repeats in (4, 5, 6, 10):
        runs = random.lognormal(0, 0.02, (1500, 2, repeats))
        runs *= 1 + random.uniform(0.05, 0.3, runs.shape) * (random.random(runs.shape) < LAW.disturbed)
        alarms = np.mean([paired_chance(*both) <= 0.05 for both in runs])
        missed = np.mean([not np.prod(paired_interval(*both, 0.05)) <= 0 for both in runs])
        assert alarms == missed <= 0.05 + 3 * (0.05 * 0.95 / len(runs)) ** 0.5
    quiet = [pair(seed, 4, {}).headline for seed in range(40)]
    assert sum(one is not None and one.verdict in (FASTER, SLOWER) for one in quiet) <= 5


def test_the_interval_of_pairs_is_that_of_the_textbook() -> None:
    """Of 5 and 5 the third smallest and the third largest of 25 pairs; of 4 and 4 all of them."""
    first, second = np.array([10.0, 11.0, 12.0, 13.0, 14.0]), np.array([20.0, 21.0, 22.0, 23.0, 24.0])
    changes = sorted(after / before - 1 for after in second for before in first)
    assert paired_interval(first, second, 0.05) == pytest.approx((changes[2], changes[-3]))
    assert paired_interval(first[:4], second[:4], 0.05) == pytest.approx((20 / 13 - 1, 23 / 10 - 1))
    assert paired_chance(first, second) == pytest.approx(2 / 252) and paired_chance(first, first) == 1.0


@pytest.mark.parametrize("repeats", [1, 4])
def test_no_interval_goes_below_minus_100_percent(repeats: int) -> None:
    made = pair(5, repeats, dict.fromkeys(PARTS_MS, 0.01), Law(disturbed=0.0))
    judged = [one for one in made.changes if one.bounds]
    assert judged and all(one.interval()[0] >= -1 for one in judged)
    assert made.headline and made.headline.verdict == FASTER and made.headline.interval()[1] < -0.97


def test_one_run_a_side_claims_little() -> None:
    calm = Law(disturbed=0.0, run=0.005)
    assert all(is_quiet(pair(seed, 1, {}, calm)) for seed in range(PAIRS))
    made = pair(3, 1, {"forward": 1.4}, calm)
    verdicts = {str(one.metric): one.verdict for one in made.changes}
    assert verdicts["part.forward"] == SLOWER and made.by == "steps"
    assert verdicts["phase.imports"] == CANNOT_TELL  # a phase is there once a run: nothing says how it varies


def test_few_steps_say_nothing() -> None:
    made = pair(3, 1, {"forward": 2.0}, Law(steps=10))
    assert made.by == "" and is_quiet(made)


def test_the_chance_is_the_share_of_exchanges() -> None:
    first, second = np.array([[1.0, 1.1, 1.2, 1.3]]), np.array([[2.0, 2.1, 2.2, 2.3]])
    assert len(exchanges(4, 4)) == 70
    assert chances(first, second)[0] == 2 / 70 == fewest_chance(4, 4)
    assert chances(first, first)[0] == 1.0


def test_many_metrics_make_each_less_sure() -> None:
    random = np.random.default_rng(4)
    one, noise = random.normal(10, 1, (1, 16)), random.normal(10, 1, (60, 16))
    one[:, 8:] += 1.6
    alone = chances(one[:, :8], one[:, 8:])[0]
    both = np.concatenate([one, noise])
    assert alone < 0.05 < chances(both[:, :8], both[:, 8:])[0]


def test_blocks_are_longer_where_neighbours_are_alike() -> None:
    random = np.random.default_rng(4)
    white = random.normal(size=1000)
    drifting = np.cumsum(white)
    assert block_length(white) <= 15 < 100 < block_length(drifting) <= 1000 // 6


def test_what_one_side_has_only_is_said() -> None:
    random = np.random.default_rng(1)
    before, after = (side_by(random, name, 4, LAW, {}) for name in "AB")
    for one in after.runs:
        one.values[Metric("kernel", "new")] = 1e7
    assert compare(before, after, CompareOptions()).only == {"A": [], "B": [Metric("kernel", "new")]}


@pytest.mark.filterwarnings("error")
def test_a_part_that_few_steps_have_does_not_spoil_the_others() -> None:
    """Draws in which it is zero stay finite, so that what is clear stays clear."""
    before = np.array([[10.0, 10.1, 9.9], [0.0, 0.0, 1e-320]])
    ratios = changes_of(before, np.array([[5.0, 5.1, 4.9], [0.0, 3.0, 3.0]]))
    assert ratios[0] == pytest.approx([-0.5, 5.1 / 10.1 - 1, 4.9 / 9.9 - 1])
    assert ratios[1] == pytest.approx([0.0, MOST, MOST], rel=1e-5)
    assert np.isfinite(_simultaneous(ratios, 0.05))
