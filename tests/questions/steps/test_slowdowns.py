"""Slow-downs: found where they are, with who and what, and not where there are none."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.model.tables import Tables
from rankscope.questions.steps.blocks import step_history
from rankscope.questions.steps.slowdowns import Slowdown, levels_of, slowdown_sentence, slowdowns, slowdowns_of
from rankscope.rank_file import Part
from runs import long_runs
from runs.small_run import MILLI
from runs.step_runs import opened, rank
from runs.step_runs import steps as made_steps

STEPS, AT = 400, 250


def noise(seed: int, count: int, alike: float = 0.0, spread: float = 0.05) -> Any:
    """Around 1, skewed as times are; `alike`: how much a step resembles the one before."""
    random = np.random.default_rng(seed)
    values = random.normal(0, spread * (1 - alike**2) ** 0.5, count)
    for at in range(1, count):
        values[at] += alike * values[at - 1]
    made = np.exp(values)
    made[random.random(count) < 0.01] *= 5  # now and then a long one
    return made


def run_of(
    folder: Path, slow: dict[int, float], part: Part = Part.FORWARD, until: int = STEPS, ranks: int = 4
) -> Tables:
    """Ranks that compute for 10 ms and wait for the slowest of them; some take so many ms longer from one step on."""
    random = np.random.default_rng(3)
    own = 10 * np.exp(random.normal(0, 0.03, (ranks, STEPS)))
    for who, longer in slow.items():
        own[who, AT:until] += longer
    length = own.max(axis=0) + 1
    made = []
    for number in range(ranks):
        each = rank(number, ranks)
        parts = [{part: own[number, at], Part.COMMUNICATION: length[at] - own[number, at]} for at in range(STEPS)]
        blocked = [{Part.COMMUNICATION: one[Part.COMMUNICATION]} for one in parts]
        each.steps(made_steps(parts, blocked), capacity=512)
        made.append(each)
    return opened(folder, *made)


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.8])
def test_noise_is_no_change(alike: float) -> None:
    alarms = sum(len(levels_of(noise(seed, 5000, alike))) > 1 for seed in range(8))
    assert alarms == 0


@pytest.mark.parametrize("grows", [1.15, 1.5, 3.0])
def test_the_onset_is_found_within_ten_steps(grows: float) -> None:
    for seed in range(10):
        values = noise(seed, 2000)
        values[1200:] *= grows
        (_, after) = levels_of(values)
        assert abs(after.first - 1200) <= 10
        assert after.median / np.median(values[:1200]) == pytest.approx(grows, rel=0.03)


def test_a_change_that_passes_has_an_end() -> None:
    values = noise(1, 2000)
    values[800:900] *= 1.6
    before, slow, after = levels_of(values)
    assert abs(slow.first - 800) <= 10 and abs(slow.last - 900) <= 10
    assert before.median == pytest.approx(after.median, rel=0.02)


@pytest.mark.parametrize("alike", [0.0, 0.7])
def test_several_short_changes_are_found_each(alike: float) -> None:
    for seed in range(6):
        values = noise(seed, 1600, alike)
        spans = [(200 + 300 * at, 250 + 300 * at) for at in range(5)]
        for first, last in spans:
            values[first:last] *= 1.5
        slow = [level for level in levels_of(values) if level.median > 1.25]
        assert [abs(level.first - first) <= 10 for level, (first, _) in zip(slow, spans, strict=True)] == [True] * 5


def test_a_change_that_has_just_begun_is_noticed() -> None:
    values = noise(4, 1000)
    values[980:] *= 1.5
    assert abs(levels_of(values)[-1].first - 980) <= 5


def test_what_is_compared_with_does_not_creep(tmp_path: Path) -> None:
    """After a slow-down steps may be a little faster: that is no reason to call the later ones slow."""
    random = np.random.default_rng(5)
    factors = np.repeat([1.0, 1.0, 1.5, 0.965, 1.5, 1.02], 80)
    length = 10 * factors * np.exp(random.normal(0, 0.002, len(factors)))
    made = [rank(number, 2) for number in range(2)]
    for one in made:
        one.steps(made_steps([{Part.FORWARD: ms} for ms in length], [{} for _ in length]), capacity=512)
    assert [found.first for found in slowdowns_of(opened(tmp_path, *made))] == [161, 321]


def only(tables: Tables) -> Slowdown:
    (found,) = slowdowns_of(tables)
    return found


def test_the_rank_and_the_part_that_grew_are_named(tmp_path: Path) -> None:
    found = only(run_of(tmp_path, {2: 5.0}))
    assert found.ranks == (2,) and found.part == "forward" and found.goes_on
    assert abs(found.first - (AT + 1)) <= 10
    assert found.grew_ns == pytest.approx(5 * MILLI, rel=0.1)
    assert slowdown_sentence(found).endswith(
        "forward of rank 2, +5 ms per step"
    ) or "forward of rank 2" in slowdown_sentence(found)


def test_a_rank_without_a_cpu_is_named_though_it_waits_in_collectives(tmp_path: Path) -> None:
    """It has to wait for a CPU to leave them: its own time explains little."""
    ranks = []
    for number in range(4):
        each, extra = rank(number, 4), np.where(np.arange(STEPS) >= AT, 20.0, 0.0)
        own = 10 + (0.4 * extra if number == 1 else 0)
        parts = [
            {Part.FORWARD: ms, Part.COMMUNICATION: 11 + more - ms}
            for ms, more in zip(own + 0 * extra, extra, strict=True)
        ]
        blocked = [{Part.COMMUNICATION: one[Part.COMMUNICATION]} for one in parts]
        each.steps(made_steps(parts, blocked, runnable_ns=0.8 * extra * MILLI * (number == 1)), capacity=512)
        ranks.append(each)
    found = only(opened(tmp_path, *ranks))
    assert found.ranks == (1,) and found.part == "waiting for a CPU"


def test_garbage_is_the_cause_where_its_collection_waits_for_a_cpu(tmp_path: Path) -> None:
    extra = np.where(np.arange(STEPS) >= AT, 20.0, 0.0)
    each = rank(0, 1)
    more = {"gc_ticks": extra * MILLI, "runnable_ns": 0.7 * extra * MILLI}
    each.steps(made_steps([{Part.FORWARD: 10 + ms} for ms in extra], [{} for _ in extra], **more), capacity=512)
    assert only(opened(tmp_path, each)).part == "garbage collection"


def test_all_ranks_that_grow_alike_are_all(tmp_path: Path) -> None:
    found = only(run_of(tmp_path, dict.fromkeys(range(4), 5.0), Part.DATA))
    assert found.ranks == () and found.part == "data loading"


def test_a_slow_down_that_ends_says_until_when(tmp_path: Path) -> None:
    tables = run_of(tmp_path, {1: 6.0}, until=330)
    found = only(tables)
    assert not found.goes_on and abs(found.last - 330) <= 10
    table = slowdowns(tables)
    assert dict(zip([column.name for column in table.columns], table.rows[0], strict=True))["who"] == "rank 1"


def test_a_steady_run_has_none(tmp_path: Path) -> None:
    assert slowdowns(run_of(tmp_path, {})).rows == []


# ---------------------------------------------------------------- of steps that the ring has overwritten
def long_run(folder: Path, count: int, slow: dict[int, tuple[int, int, float]], long_every: int = 0) -> Tables:
    """Four ranks, 10 ms a step; some take so many ms longer in backward from one step to another."""
    return opened(folder, *long_runs.ranks_of(count, slow, long_every))


def test_a_slowdown_of_long_ago_is_found_with_its_rank_and_part(tmp_path: Path) -> None:
    """Of 60,000 steps the ring has the last 8,192; steps 20,000 to 20,299 and 40,000 to the end took longer."""
    tables = long_run(tmp_path, 60_000, {2: (20_000, 20_300, 6.0), 1: (40_000, 60_001, 3.0)})
    passed, lasting = slowdowns_of(tables)
    assert (passed.ranks, passed.part, passed.goes_on) == ((2,), "backward", False)
    assert abs(passed.first - 20_000) <= 10 and abs(passed.last - 20_299) <= 10
    assert passed.grew_ns == pytest.approx(6 * MILLI, rel=0.1)
    assert (lasting.ranks, lasting.part, lasting.goes_on, lasting.last) == ((1,), "backward", True, 60_000)
    assert abs(lasting.first - 40_000) <= 10
    assert lasting.grew_ns == pytest.approx(3 * MILLI, rel=0.1)


@pytest.mark.parametrize("onset", [20_000, 20_007, 20_015, 20_022])
def test_the_onset_holds_where_single_steps_take_ten_times_as_long(tmp_path: Path, onset: int) -> None:
    tables = long_run(tmp_path, 40_000, {2: (onset, 21_000, 6.0)}, long_every=50)
    (found,) = slowdowns_of(tables)
    assert abs(found.first - onset) <= 10 and abs(found.last - 20_999) <= 10


def test_the_history_has_the_whole_job(tmp_path: Path) -> None:
    table = step_history(long_run(tmp_path, 40_000, {3: (10_001, 20_001, 5.0)}))
    assert len(table.rows) == 40 and (table.rows[0][0], table.rows[-1][1] > 39_900) == (3, True)
    assert [after[0] - before[1] for before, after in pairwise(table.rows)] == [1] * 39
    slow = [row for row in table.rows if row[3] > 14 * MILLI]
    assert slow[0][0] == pytest.approx(10_001, abs=1_000) and slow[-1][1] == pytest.approx(20_000, abs=1_000)
    assert {row[9] for row in slow} == {3} and slow[3][8] == pytest.approx(15 * MILLI, rel=0.02)
    assert slow[3][6] == pytest.approx(slow[3][3], rel=0.02) and slow[3][4] < slow[3][3] < slow[3][5]


def test_noise_of_long_ago_is_no_slowdown(tmp_path: Path) -> None:
    assert slowdowns_of(long_run(tmp_path, 60_000, {})) == []
    assert slowdowns_of(long_run(tmp_path / "other", 12_000, {})) == []
