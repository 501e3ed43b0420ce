"""How does a measured quantity grow with the scale, by which law, and how much will it be where nobody has measured?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rankscope.questions.scaling.models import BY_SCALE, Array, Law, LawChoice, LawEstimate, choose, estimate

FEWEST_SCALES = 4
FARTHEST = 8  # times the largest measured scale: beyond it nothing is foretold
WIDEST = 3.0  # high ÷ low of an interval that is still of use
LAST_SCALES = 3  # over which the exponent at the end is taken
LARGEST_ERROR = 0.4  # by which values may typically lie off a law that is said to fit
UNSTEADY = 0.15  # by which values may lie off a constant where repeats do not tell how much they scatter
TURN = 0.15  # by which a step back counts where repeats do not tell how much values scatter


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity at several scales; a scale may have several values (repeats)."""

    name: str
    what: str
    unit: str
    axis: str  # what the scale counts: ranks, nodes, bytes
    points: tuple[tuple[float, float], ...]
    laws: tuple[Law, ...] = BY_SCALE
    published: bool = False  # by somebody else, laid over what was measured
    objection: str = ""  # why its points are not what they seem to be: then nothing is foretold

    def arrays(self) -> tuple[Array, Array]:
        points = np.array(sorted(self.points), np.float64).reshape(-1, 2)
        return points[:, 0], points[:, 1]


@dataclass(frozen=True, slots=True)
class Growth:
    """What a series says, and what it does not support."""

    series: Series
    scales: tuple[float, ...]
    medians: tuple[float, ...]
    exponent: float | None  # of the last few scales
    choice: LawChoice | None
    doubts: list[str] = field(default_factory=list)  # why nothing is foretold

    def at(self, scale: float) -> LawEstimate | str:
        """The estimate, or why there is none."""
        if self.doubts or self.choice is None:
            return "; ".join(self.doubts) or "no model fits"
        if scale > FARTHEST * self.scales[-1]:
            return f"more than {FARTHEST} times the largest measured scale ({self.scales[-1]:g})"
        value = estimate(self.choice.fit, scale)
        if value.low <= 0 or value.high / value.low > WIDEST:
            ends = f"its ends differ by a factor of {value.high / value.low:.2g}" if value.low > 0 else "it begins at 0"
            return f"the 95 % interval is too wide to be of use: {ends}"
        return value


def growth(series: Series) -> Growth:
    x, y = series.arrays()
    if (y <= 0).any() or (x <= 0).any():
        positive = (x > 0) & (y > 0)
        x, y = x[positive], y[positive]
    scales = np.unique(x)
    medians = np.array([np.median(y[x == scale]) for scale in scales])
    choice = choose(series.laws, x, y) if len(scales) >= FEWEST_SCALES else None
    doubts = [series.objection] * bool(series.objection) + list(_doubts(x, y, scales, medians, choice))
    if choice and choice.fit.relative_error > LARGEST_ERROR:
        doubts.append(f"no model fits: values lie {_off(choice.fit.relative_error)} off the best one ({_name(choice)})")
        choice = None
    return Growth(series, tuple(scales), tuple(medians), _exponent(scales, medians), choice, doubts)


def _off(error: float) -> str:
    """Percent say nothing where values are off by factors."""
    return f"{100 * error:.0f} %" if error < 1 else f"by a factor of {1 + error:.2g}"


def _name(choice: LawChoice) -> str:
    return choice.fit.law.name


def _exponent(scales: Array, medians: Array) -> float | None:
    """The slope in logarithms over the last scales: 0 constant, 1 proportional."""
    if len(scales) < LAST_SCALES:
        return None
    last = np.log(scales[-LAST_SCALES:]), np.log(medians[-LAST_SCALES:])
    return float(np.polyfit(*last, 1)[0])


def _doubts(x: Array, y: Array, scales: Array, medians: Array, choice: LawChoice | None) -> Sequence[str]:
    if len(scales) < FEWEST_SCALES:
        return [f"only {len(scales)} scales: measure at least {FEWEST_SCALES}"]
    if choice is None:
        return ["no model fits these points"]
    doubts = []
    turns = _turns(medians, _scatter(x, y))
    if turns > 1:
        doubts.append(f"not monotone: the values turn {turns} times; measure again, with repeats")
    trend = abs(math.log(float(medians.max() / medians.min())))
    error = choice.fit.relative_error
    if choice.fit.law.name != "constant" and 2 * error > trend:
        doubts.append(f"values scatter by {100 * error:.0f} % around the model, as much as they grow")
    if choice.fit.law.name == "constant" and max(UNSTEADY, 1.5 * _scatter(x, y)) < error <= LARGEST_ERROR:
        doubts.append(
            f"values lie {_off(error)} from a constant, and no model of growth is certain: measure more scales"
        )
    return doubts


def _scatter(x: Array, y: Array) -> float:
    """Of values at one scale, relative: 0 where nothing was repeated."""
    logarithms, place = np.log(y), np.unique(x, return_inverse=True)[1]
    counts = np.bincount(place)
    if len(y) == len(counts):
        return 0.0
    means = np.bincount(place, logarithms) / counts
    return float(np.sqrt(((logarithms - means[place]) ** 2).sum() / (len(y) - len(counts))))


def _turns(medians: Array, scatter: float) -> int:
    """How often rising changes to falling or back, by more than the values scatter."""
    steps = np.diff(np.log(medians))
    signs = np.sign(steps[np.abs(steps) > max(TURN, 2 * scatter)])
    return int((np.diff(signs) != 0).sum())
