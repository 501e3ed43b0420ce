"""Laws of growth: the right one is found, the interval holds the truth, and what cannot be foretold is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from rankscope.questions.scaling.growth import Series, growth
from rankscope.questions.scaling.models import (
    ALPHA_BETA,
    BY_SCALE,
    BY_SIZE,
    LINEAR,
    LawEstimate,
    choose,
    estimate,
    fit,
    student_quantile,
)

SCALES = np.array([1, 2, 4, 8, 16, 32, 64, 128], np.float64)
FAR = 256.0
Curve = Callable[[np.ndarray], np.ndarray]


def drawn(law: str, draw: np.random.Generator) -> Curve:
    """A curve of that law, with coefficients that make it differ from the others within the scales."""
    a, u = draw.uniform(1, 10), draw.uniform
    if law == "constant":
        return lambda n: a + 0 * n
    if law == "logarithmic":
        b = a * u(0.1, 1)
        return lambda n: a + b * np.log2(n)
    if law == "linear":
        b = a * u(0.02, 1)
        return lambda n: a + b * n
    if law == "power":
        b = u(0.2, 1.7) * draw.choice([-1, 1])
        return lambda n: a * n**b
    if law == "amdahl":
        b = a * u(5, 50)
        return lambda n: a + b / n
    b, c = a * u(0.01, 0.1), a * u(0.0002, 0.002)
    return lambda n: (a + b * (n - 1) + c * n * (n - 1)) / n


def tried(law: str, times: int, noise: float, repeats: int, seed: int) -> tuple[int, int]:
    """How often the law was found, and how often the interval at twice the largest scale held the truth."""
    draw, right, held = np.random.default_rng(seed), 0, 0
    for _ in range(times):
        curve, x = drawn(law, draw), np.repeat(SCALES, repeats)
        y = curve(x) * (1 + draw.normal(0, noise, len(x)))
        choice = choose(BY_SCALE, x, y)
        assert choice
        right += choice.fit.law.name == law
        found = estimate(choice.fit, FAR)
        held += found.low <= float(curve(np.array([FAR]))[0]) <= found.high
    return right, held


@pytest.mark.slow
def test_the_right_law_is_found_and_the_interval_holds_the_truth() -> None:
    times, total, right, held = 40, 0, Counter[str](), 0
    for law in (one.name for one in BY_SCALE):
        for noise in (0.03, 0.08):
            found, kept = tried(law, times, noise, 4, 11)
            right[law] += found
            held += kept
            total += times
    assert sum(right.values()) >= 0.9 * total
    assert min(right.values()) >= 0.8 * 2 * times, right
    assert 0.91 * total <= held <= 0.98 * total  # 95 % within what so few tries scatter


def test_a_trend_over_four_scales_is_seen_and_noise_is_not_one() -> None:
    few = SCALES[:4]
    draw, laws = np.random.default_rng(3), Counter[str]()
    for _ in range(200):
        choice = choose(BY_SCALE, few, 5 * (1 + draw.normal(0, 0.05, 4)))
        laws[choice.fit.law.name if choice else ""] += 1
    steep = choose(BY_SCALE, few, (1 + 0.2 * few) * (1 + 0.01 * np.array([1, -1, 1, -1])))
    assert steep and steep.fit.law is LINEAR and laws["constant"] > 0.9 * 200, laws


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_interval_holds_the_truth_in_93_to_97_percent() -> None:
    times, total, right, held = 400, 0, 0, 0
    for law in (one.name for one in BY_SCALE):
        for noise in (0.03, 0.08):
            for repeats in (3, 5):
                found, kept = tried(law, times, noise, repeats, 5)
                right, held, total = right + found, held + kept, total + times
    assert right >= 0.9 * total and 0.93 * total <= held <= 0.97 * total, (right / total, held / total)


@pytest.mark.parametrize(("freedom", "expected"), [(1, 12.7062), (2, 4.30265), (5, 2.57058), (30, 2.04227)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(expected, rel=1e-5)


def test_exact_points_give_exact_coefficients() -> None:
    found = fit(LINEAR, SCALES, 3 + 0.25 * SCALES)
    assert found and found.coefficients == pytest.approx([3, 0.25]) and found.relative_error < 1e-9


def test_a_message_costs_latency_and_bandwidth() -> None:
    sizes = np.array([8, 1024, 65536, 1 << 20, 1 << 24], np.float64)
    choice = choose(BY_SIZE, sizes, 20_000 + 0.1 * sizes)
    assert choice and choice.fit.law is ALPHA_BETA and choice.fit.coefficients == pytest.approx([20_000, 0.1])


def series(*values: float) -> Series:
    return Series("s", "w", "ns", "ranks", tuple((float(2**at), value) for at, value in enumerate(values)))


def test_what_the_data_do_not_support_is_refused() -> None:
    assert "only 3 scales" in str(growth(series(1, 2, 3)).at(16))
    assert "from a constant" in str(growth(series(1.24, 1.3, 1.2, 1.9)).at(16))  # grows, by a law that is not sure
    assert "not monotone" in str(growth(series(10, 20, 9, 25, 8, 30, 7)).at(128))
    linear = growth(series(*(1e9 + 1e8 * 2**at * (1 + 0.01 * (-1) ** at) for at in range(8))))
    assert isinstance(linear.at(256), LawEstimate)
    assert "8 times" in str(linear.at(128 * 9))


def test_the_exponent_is_that_of_the_end() -> None:
    flat_then_steep = growth(series(10, 10, 10, 10, 20, 40, 80))
    assert flat_then_steep.exponent == pytest.approx(1.0)
