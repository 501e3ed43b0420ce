"""By how much do two series differ, and how sure is that, where single values may be far off?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
BLOCKS = 12
SHORTEST = 4  # steps in a block
MANY = 8  # blocks: of so many that all lie on one side by chance is rarer than 1 in 100
TO_SIGMA = 1.4826  # of a MAD, where values are normally distributed
OF_MEDIAN = 1.2533  # standard error of a median ÷ that of a mean


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean that one stall cannot move, its standard error, and what nearly all of its blocks reach."""

    value: float
    error: float
    least: float = 0.0  # the smallest but one of the means; 0 with few blocks


def estimate(values: Array) -> Estimate:
    """The median of the means of consecutive blocks, and its error by the spread of those means."""
    return estimates(np.asarray(values, np.float64)[None, :])[0]


def estimates(values: Array) -> list[Estimate]:
    """The same for each row."""
    return list(estimated([block.mean(axis=1) for block in np.array_split(values, blocks(values.shape[1]), axis=1)]))


def blocks(count: int) -> int:
    """Into how many blocks so many values are cut."""
    return max(1, min(BLOCKS, count // SHORTEST))


@dataclass(frozen=True, slots=True)
class Estimates:
    """Those of many series."""

    value: Array
    error: Array
    least: Array

    def __getitem__(self, at: int) -> Estimate:
        return Estimate(float(self.value[at]), float(self.error[at]), float(self.least[at]))

    def __iter__(self) -> Iterator[Estimate]:
        return (self[at] for at in range(len(self.value)))


def estimated(block_means: Sequence[Array]) -> Estimates:
    """Of each series, given the means of their blocks one block after the other."""
    means, count = np.stack(block_means, axis=1), len(block_means)
    middle = np.median(means, axis=1)
    spread = TO_SIGMA * np.median(np.abs(means - middle[:, None]), axis=1)
    error = OF_MEDIAN * spread / count**0.5 if count > 2 else np.abs(middle)
    least = np.sort(means, axis=1)[:, 1] if count >= MANY else np.zeros(len(means))
    return Estimates(middle, error, least)
