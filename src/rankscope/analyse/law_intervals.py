"""How sure is what a fitted law says at a scale, and may it be asked at all?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rankscope.questions.scaling.models import Fit

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """The law's value at a scale, and between which values it lies with the given confidence."""

    value: float
    low: float
    high: float


def estimate(fit: Fit, x: float, confidence: float = CONFIDENCE) -> Estimate:
    """Of the law itself, not of a single further measurement."""
    value, error = float(fit.at(x)[0]), float(fit.error_at(x)[0])
    reach = student_quantile((1 + confidence) / 2, fit.freedom) * error
    if fit.law.of_logarithms:
        return Estimate(value, value * math.exp(-reach), value * math.exp(reach))
    return Estimate(value, max(0.0, value * (1 - reach)), value * (1 + reach))


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
