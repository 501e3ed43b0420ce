"""Where two series cross, worked out by hand."""

from __future__ import annotations

import pytest

from rankscope.questions.scaling.crossovers import crossover, crossovers
from rankscope.questions.scaling.growth import Growth, Series, growth
from rankscope.questions.scaling.scaling import summed


def series(name: str, points: dict[float, float], unit: str = "ns") -> Series:
    return Series(name, "time", unit, "nodes", tuple(points.items()))


def met(first: dict[float, float], second: dict[float, float], unit: str = "ns") -> tuple[tuple[float, ...], str]:
    found = crossover(growth(series("a", first, unit)), growth(series("b", second, unit)))
    assert found
    return found.meetings, found.verdict("a", "b", "nodes", "lower" if unit == "count" else "faster", unit == "bytes/s")


def test_between_two_sizes_by_straight_lines() -> None:
    at, verdict = met({1: 10, 2: 20, 4: 40}, {1: 25, 2: 25, 4: 25})
    assert at == pytest.approx((2.5,)) and verdict == "a is faster up to about 2.5 nodes, b from there on"


def test_of_rates_the_larger_is_better() -> None:
    _, verdict = met({1: 10, 4: 40}, {1: 25, 4: 25}, "bytes/s")
    assert verdict == "b is faster up to about 2.5 nodes, a from there on"
    assert met({1: 1, 4: 1}, {1: 2, 4: 2}, "count")[1].startswith("never in range: a is lower at every size")


def test_sizes_that_only_one_has_are_met_on_its_line() -> None:
    assert met({1: 10, 8: 80}, {2: 45, 4: 45, 8: 45})[0] == pytest.approx((4.5,))


def test_never_in_range_level_and_touching() -> None:
    assert met({1: 1, 2: 2}, {1: 5, 2: 5}) == ((), "never in range: a is faster at every size from 1 to 2 nodes")
    assert met({1: 1, 2: 2}, {1: 1.01, 2: 2}) == ((), "the same within 2 % at every size from 1 to 2 nodes")
    at, verdict = met({1: 1, 2: 2, 4: 4}, {1: 4, 2: 4, 4: 4})
    assert at == (4,) and verdict == "a is faster, but at 4 nodes both are the same within 2 %"
    assert met({1: 1, 2: 4, 4: 1}, {1: 4, 2: 4, 4: 4})[0] == ()  # touched, and back again


def test_several_meetings_are_all_told() -> None:
    at, verdict = met({1: 1, 2: 3, 4: 1}, {1: 2, 2: 2, 4: 2})
    assert at == pytest.approx((1.5, 3)) and verdict == "they meet at 1.5, 3 nodes; after the last one a is faster"


def test_sizes_that_do_not_overlap_are_not_compared() -> None:
    assert crossover(growth(series("a", {1: 1, 2: 2})), growth(series("b", {4: 1, 8: 2}))) is None


def test_only_like_is_compared_with_like() -> None:
    made: list[Growth] = [growth(series(name, {1: 1, 2: 2})) for name in "abc"]
    made.append(growth(series("d", {1: 1, 2: 2}, "bytes")))
    assert len(crossovers(made).rows) == 3
    assert [row[1:3] for row in crossovers(made, [made[2]]).rows] == [("a", "c"), ("b", "c")]
    many = crossovers([growth(series(str(name), {1: 1, 2: 2})) for name in range(9)])
    assert many.rows == [] and "--against" in many.notes[0]


def test_a_sum_holds_what_was_not_measured() -> None:
    total = summed("both", [series("a", {1: 10, 4: 12}), series("b", {1: 1, 2: 2})])
    assert total.points == ((1, 11), (2, 12), (4, 14)) and total.name == "both"
