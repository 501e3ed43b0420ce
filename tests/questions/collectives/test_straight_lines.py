"""Lines between two sets of points, held against trying every pair of points."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.questions.collectives.clock_fit import lines_between, lower_hull


def brute_force(x: np.ndarray, high: np.ndarray, low: np.ndarray, at: float) -> tuple[float, float] | None:
    """The lowest and highest value at one x over all lines through two of the points that fit."""
    points = [(one, y) for ys in (high, low) for one, y in zip(x, ys, strict=True)]
    values = []
    for first in points:
        for second in points:
            if first[0] != second[0]:
                slope = (second[1] - first[1]) / (second[0] - first[0])
                line = first[1] + slope * (x - first[0])
                if (line <= high + 1e-9).all() and (line >= low - 1e-9).all():
                    values.append(first[1] + slope * (at - first[0]))
    return (min(values), max(values)) if values else None


@pytest.mark.parametrize("seed", range(60))
def test_the_room_is_that_of_all_lines_that_fit(seed: int) -> None:
    random = np.random.default_rng(seed)
    x = np.sort(random.uniform(0, 10, random.integers(2, 9)))
    middle = random.uniform(-2, 2) * x + random.uniform(-5, 5) + random.normal(0, 0.3, len(x))
    high, low = middle + random.exponential(1, len(x)), middle - random.exponential(1, len(x))
    lines, _ = lines_between((x, high), (x, low), steepest=1e6)
    for at in (0.0, 5.0, 10.0):
        expected = brute_force(x, high, low, at)
        assert (lines is None) == (expected is None)
        if lines is not None and expected is not None:
            lowest, highest = lines.reach(np.array([at]))
            assert (lowest[0], highest[0]) == pytest.approx(expected, abs=1e-6)
            assert lines.contains(*lines.centre())


def test_the_hull_of_a_parabola_is_all_of_it() -> None:
    x = np.arange(-500.0, 501.0)
    assert len(lower_hull(x, x * x)[0]) == 1001
    assert len(lower_hull(x, -x * x)[0]) == 2


def test_no_line_fits_between_crossed_points() -> None:
    lines, slope = lines_between((np.array([0.0, 1, 2]), np.array([1.0, -1, 1])), (np.arange(3.0), np.zeros(3)), 10)
    assert lines is None and slope == pytest.approx(0)


def test_one_moment_leaves_the_slope_open_up_to_the_steepest() -> None:
    lines, _ = lines_between((np.array([5.0]), np.array([3.0])), (np.array([5.0]), np.array([1.0])), 0.5)
    assert lines is not None and lines.centre() == pytest.approx((0.0, 2.0))
    lowest, highest = lines.reach(np.array([5.0, 15.0]))
    assert (lowest.tolist(), highest.tolist()) == (pytest.approx([1, -4]), pytest.approx([3, 8]))
