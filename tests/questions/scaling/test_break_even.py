"""The one rule of break-evens at its edge: what is level, and where level curves count as met."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rankscope.questions.imports.break_even import staging_break_even
from rankscope.questions.imports.staging import notes
from rankscope.questions.scaling.break_even import break_even
from rankscope.questions.scaling.crossovers import crossover
from rankscope.questions.scaling.growth import Series, growth

SIZES = (1, 2, 4, 8)


@pytest.mark.parametrize(
    ("first", "signs"),
    [
        (102.0, 0),  # 2 % of the smaller, which is the second: level
        (102.1, 1),
        (98.1, 0),  # the smaller is the first now: 1.9 is less than 2 % of 98.1
        (98.0, -1),  # 2 is 2 % of the second and more than 2 % of the first
    ],
)
def test_level_is_within_two_percent_of_the_smaller(first: float, signs: int) -> None:
    assert break_even([1], [first], [100.0]).signs == (signs,)


@pytest.mark.parametrize(
    ("first", "meetings"),
    [
        ((50, 100, 101, 200), (2,)),  # level on the way: from the first level size on
        ((100, 101, 200, 300), (2,)),  # level at the beginning: until the last level size
        ((50, 60, 99, 100), (4,)),  # level at the end: from the first level size on
        ((50, 100, 60, 50), ()),  # touched, and back again
        ((100, 101, 99, 100), ()),  # level everywhere
        ((50, 50, 150, 150), (3,)),  # between two sizes: where the straight lines cross
    ],
)
def test_where_level_curves_meet(first: tuple[float, ...], meetings: tuple[float, ...]) -> None:
    assert break_even(SIZES, first, (100.0,) * 4).meetings == meetings


def test_all_that_break_even_do_so_by_this_rule() -> None:
    """Level at 2 nodes by 2 % of the smaller: for scale, for imports and for staging."""
    in_place: Mapping[int, float] = {1: 50.0, 2: 98.05, 4: 200.0}
    one, other = (
        growth(Series(name, "time", "ns", "nodes", tuple(points.items())))
        for name, points in (("in place", in_place), ("staging", dict.fromkeys(in_place, 100.0)))
    )
    scale = crossover(one, other)
    assert scale is not None and scale.meetings == (2,)
    assert staging_break_even(in_place, {1: 100.0}) == scale
    rows = [(nodes, 0, value, 0, 0, 0, 100.0) for nodes, value in in_place.items()]
    assert notes(rows) == [f"Break-even: {scale.verdict('in place', 'staging', 'nodes')}"]
