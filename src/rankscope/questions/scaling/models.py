"""Which laws of growth are there, and how does one fit measured points best?

Errors of times grow with the times, so residuals are relative ones: what is least is the sum of ((y - f) / f)².
"""

from __future__ import annotations

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
