"""Which laws of growth are there, and how does one fit measured points best?

Errors of times grow with the times, so residuals are relative ones: what is least is the sum of ((y - f) / f)².
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
ROUNDS = 8  # of weighting anew by the fitted values


@dataclass(frozen=True, slots=True)
class Law:
    """A sum of terms, each a coefficient times a function of x; in logarithms where `of_logarithms`."""

    name: str
    formula: str
    terms: tuple[Callable[[Array], Array], ...]
    of_logarithms: bool = False

    def design(self, x: Array) -> Array:
        return np.stack([term(np.asarray(x, np.float64)) for term in self.terms], axis=1)


def _one(x: Array) -> Array:
    return np.ones_like(x)


CONSTANT = Law("constant", "a", (_one,))
LOGARITHMIC = Law("logarithmic", "a + b·log2(n)", (_one, np.log2))
LINEAR = Law("linear", "a + b·n", (_one, lambda x: x))
POWER = Law("power", "a·n^b", (_one, np.log), of_logarithms=True)
AMDAHL = Law("amdahl", "a + b/n", (_one, lambda x: 1 / x))
USL = Law("usl", "(a + b·(n-1) + c·n·(n-1)) / n", (lambda x: 1 / x, lambda x: (x - 1) / x, lambda x: x - 1))
BY_SCALE = (CONSTANT, LOGARITHMIC, LINEAR, POWER, AMDAHL, USL)
ALPHA_BETA = Law("alpha-beta", "a + b·bytes", (_one, lambda x: x))
BY_SIZE = (CONSTANT, ALPHA_BETA, POWER)


@dataclass(frozen=True, slots=True)
class Fit:
    """A law with its coefficients and what is needed to say how sure they are."""

    law: Law
    coefficients: Array
    covariance: Array  # of the coefficients, for relative errors of size 1
    relative_error: float  # of one measurement
    freedom: int

    def at(self, x: Array) -> Array:
        value = self.law.design(np.atleast_1d(x)) @ self.coefficients
        return np.exp(value) if self.law.of_logarithms else value

    def error_at(self, x: Array) -> Array:
        """Standard error of the fitted value, relative to it."""
        rows = self.law.design(np.atleast_1d(x))
        spread = np.sqrt(np.einsum("ij,jk,ik->i", rows, self.covariance, rows)) * self.relative_error
        return spread if self.law.of_logarithms else spread / self.at(x)


def fit(law: Law, x: Sequence[float] | Array, y: Sequence[float] | Array) -> Fit | None:
    """The law through these points, or None where there are too few or it would need a negative part."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if len(np.unique(x)) <= len(law.terms) or len(x) <= len(law.terms):
        return None
    return _of_logarithms(law, x, y) if law.of_logarithms else _of_sums(law, x, y)


def _of_logarithms(law: Law, x: Array, y: Array) -> Fit:
    rows = law.design(x)
    coefficients = np.linalg.lstsq(rows, np.log(y), rcond=None)[0]
    freedom = len(y) - rows.shape[1]
    error = float(np.sqrt(((np.log(y) - rows @ coefficients) ** 2).sum() / freedom))
    return Fit(law, coefficients, np.linalg.inv(rows.T @ rows), error, freedom)


def _of_sums(law: Law, x: Array, y: Array) -> Fit | None:
    """None where a coefficient is not positive: a law with fewer terms says the same."""
    rows, weight = law.design(x), 1 / y
    scaled, coefficients = rows, y
    for _ in range(ROUNDS):
        scaled = rows * weight[:, None]
        coefficients = np.linalg.lstsq(scaled, y * weight, rcond=None)[0]
        if (coefficients <= 0).any():
            return None
        before, weight = weight, 1 / (rows @ coefficients)
        if np.allclose(before, weight, rtol=1e-4):
            break
    freedom = len(y) - rows.shape[1]
    error = float(np.sqrt(((y * weight - 1) ** 2).sum() / freedom))
    return Fit(law, coefficients, np.linalg.inv(scaled.T @ scaled), error, freedom)


# ---------------------------------------------------------------------------------------------------------------------
# How sure is what a fitted law says at a scale, and may it be asked at all?
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class LawEstimate:
    """The law's value at a scale, and between which values it lies with the given confidence."""

    value: float
    low: float
    high: float


def estimate(fit: Fit, x: float, confidence: float = CONFIDENCE) -> LawEstimate:
    """Of the law itself, not of a single further measurement."""
    value, error = float(fit.at(x)[0]), float(fit.error_at(x)[0])
    reach = student_quantile((1 + confidence) / 2, fit.freedom) * error
    if fit.law.of_logarithms:
        return LawEstimate(value, value * math.exp(-reach), value * math.exp(reach))
    return LawEstimate(value, max(0.0, value * (1 - reach)), value * (1 + reach))


def coefficient_intervals(fit: Fit, confidence: float = CONFIDENCE) -> list[tuple[float, float]]:
    """Between which values each coefficient lies; the first of a power law is the logarithm of its factor."""
    reach = student_quantile((1 + confidence) / 2, fit.freedom) * fit.relative_error
    errors = np.sqrt(np.diag(fit.covariance)) * reach
    return [(float(c - e), float(c + e)) for c, e in zip(fit.coefficients, errors, strict=True)]


def student_quantile(share: float, freedom: int) -> float:
    """Of Student's t distribution, by bisection of its integral."""
    low, high = 0.0, 1.0
    while student_share(high, freedom) < share:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_share(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def student_share(t: float, freedom: int) -> float:
    """How much of the distribution lies below t >= 0: the closed form for whole degrees of freedom."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine2 = math.cos(angle) ** 2
    if freedom % 2:
        term, total = math.cos(angle), 0.0
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= cosine2 * 2 * k / (2 * k + 1)
        both = (angle + math.sin(angle) * total) * 2 / math.pi
    else:
        term, total = 1.0, 0.0
        for k in range(1, freedom // 2 + 1):
            total += term
            term *= cosine2 * (2 * k - 1) / (2 * k)
        both = math.sin(angle) * total
    return 0.5 + both / 2


# ---------------------------------------------------------------------------------------------------------------------
# Which law does a series follow, judged by how well each predicts a scale that it has not seen?
ERRORS = 1.7  # by how many standard errors a simpler law must miss more to be given up
SURE = 0.995  # of Student's distribution: how sure a trend must be that few scales show
SLIGHT = 1.05  # a factor over all scales that is as good as none


@dataclass(frozen=True, slots=True)
class LawChoice:
    """The law chosen, and how far off each of them is at scales left out (mean square of the logarithms)."""

    fit: Fit
    misses: dict[str, float]


def choose(laws: Sequence[Law], x: Sequence[float] | Array, y: Sequence[float] | Array) -> LawChoice | None:
    """The law that predicts best; a simpler one where the two cannot be told apart."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    fits = {law.name: fitted for law in laws if (fitted := fit(law, x, y))}
    misses = {name: fitted for name in fits if (fitted := _misses(fits[name].law, x, y)) is not None}
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
    return LawChoice(fits[chosen], {name: float(miss.mean()) for name, miss in misses.items()})


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
    best_fit = fits[min(sloped, key=lambda name: float(misses[name].mean()))]
    ends = best_fit.at(np.array([x.min(), x.max()]))
    if max(ends) / min(ends) < SLIGHT:
        return False
    left, before = best_fit.relative_error**2 * best_fit.freedom, constant.relative_error**2 * constant.freedom
    if left <= 0:
        return before > 0
    explained = (before - left) / (left / best_fit.freedom)
    return bool(explained > student_quantile(SURE, best_fit.freedom) ** 2)


def _misses(law: Law, x: Array, y: Array) -> Array | None:
    """Of each scale: the mean square of the logarithms between what the others predict and what was measured."""
    errors = []
    for scale in np.unique(x):
        there = x == scale
        others = fit(law, x[~there], y[~there])
        value = others.at(scale)[0] if others else 0.0
        if not value > 0:
            return None
        errors.append(float(((np.log(y[there]) - np.log(value)) ** 2).mean()))
    return np.array(errors)
