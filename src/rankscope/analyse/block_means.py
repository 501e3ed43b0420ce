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
    count = max(1, min(BLOCKS, len(values) // SHORTEST))
    means = np.array([float(block.mean()) for block in np.array_split(np.asarray(values, np.float64), count)])
    middle = float(np.median(means))
    spread = TO_SIGMA * float(np.median(np.abs(means - middle)))
    error = OF_MEDIAN * spread / count**0.5 if count > 2 else abs(middle)
    return Estimate(middle, error, float(np.sort(means)[1]) if count >= MANY else 0.0)
