"""Which law does a series follow, told by how well each foretells a scale that it has not seen?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.analyse.law_intervals import student_quantile
from rankscope.questions.scaling.models import Array, Fit, Law, fit

ERRORS = 1.7  # by how many standard errors a simpler law must miss more to be given up
SURE = 0.995  # of Student's distribution: how sure a trend must be that few scales show
SLIGHT = 1.05  # a factor over all scales that is as good as none


@dataclass(frozen=True, slots=True)
class Choice:
    """The law chosen, and how far off each of them is at scales left out (mean square of the logarithms)."""

    fit: Fit
    misses: dict[str, float]


def choose(laws: Sequence[Law], x: Sequence[float] | Array, y: Sequence[float] | Array) -> Choice | None:
    """The law that foretells best; a simpler one where it does so as well as can be told."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    fits = {law.name: found for law in laws if (found := fit(law, x, y))}
    misses = {name: found for name in fits if (found := _misses(fits[name].law, x, y)) is not None}
    if not misses:
        return None
    best = min(misses, key=lambda name: float(misses[name].mean()))
    chosen = best
    for name in sorted(misses, key=lambda name: len(fits[name].law.terms)):
        if len(fits[name].law.terms) >= len(fits[best].law.terms) or _is_worse(misses[name], misses[best]):
            continue
        if len(fits[name].law.terms) == 1 and _is_trend(fits[name], fits, misses, x):
            continue
        chosen = name
        break
    return Choice(fits[chosen], {name: float(found.mean()) for name, found in misses.items()})


def _is_worse(misses: Array, best: Array) -> bool:
    """Whether the difference is larger than its mean's error explains."""
    difference = misses - best
    return bool(difference.mean() > ERRORS * difference.std(ddof=1) / np.sqrt(len(difference)))


def _is_trend(constant: Fit, fits: dict[str, Fit], misses: dict[str, Array], x: Array) -> bool:
    """Whether a law with one coefficient more leaves so much less that chance does not explain it.

    With few scales a left-out one at an end is missed so much more than the others that their mean tells nothing.
    """
    sloped = [name for name in misses if len(fits[name].law.terms) == 2]
    if not sloped:
        return False
    found = fits[min(sloped, key=lambda name: float(misses[name].mean()))]
    ends = found.at(np.array([x.min(), x.max()]))
    if max(ends) / min(ends) < SLIGHT:
        return False
    left, before = found.relative_error**2 * found.freedom, constant.relative_error**2 * constant.freedom
    if left <= 0:
        return before > 0
    explained = (before - left) / (left / found.freedom)
    return bool(explained > student_quantile(SURE, found.freedom) ** 2)


def _misses(law: Law, x: Array, y: Array) -> Array | None:
    """Of each scale: the mean square of the logarithms between what the others foretell and what was measured."""
    found = []
    for scale in np.unique(x):
        there = x == scale
        others = fit(law, x[~there], y[~there])
        value = others.at(scale)[0] if others else 0.0
        if not value > 0:
            return None
        found.append(float(((np.log(y[there]) - np.log(value)) ** 2).mean()))
    return np.array(found)
