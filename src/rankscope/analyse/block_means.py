"""By how much do two series differ, and how sure is that, where single values may be far off?"""

from __future__ import annotations

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
    count = max(1, min(BLOCKS, values.shape[1] // SHORTEST))
    means = np.stack([block.mean(axis=1) for block in np.array_split(values, count, axis=1)], axis=1)
    middle = np.median(means, axis=1)
    spread = TO_SIGMA * np.median(np.abs(means - middle[:, None]), axis=1)
    error = OF_MEDIAN * spread / count**0.5 if count > 2 else np.abs(middle)
    least = np.sort(means, axis=1)[:, 1] if count >= MANY else np.zeros(len(means))
    return [Estimate(*told) for told in zip(middle.tolist(), error.tolist(), least.tolist(), strict=True)]
