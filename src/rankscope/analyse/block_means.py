"""By how much do two series differ, and how sure is that, where single values may be far off?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
BLOCKS = 12
SHORTEST = 4  # steps in a block
TO_SIGMA = 1.4826  # of a MAD, where values are normally distributed
OF_MEDIAN = 1.2533  # standard error of a median ÷ that of a mean


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean that one stall cannot move, and its standard error."""

    value: float
    error: float


def estimate(values: Array) -> Estimate:
    """The median of the means of consecutive blocks, and its error by the spread of those means."""
    count = max(1, min(BLOCKS, len(values) // SHORTEST))
    means = np.array([float(block.mean()) for block in np.array_split(np.asarray(values, np.float64), count)])
    middle = float(np.median(means))
    spread = TO_SIGMA * float(np.median(np.abs(means - middle)))
    return Estimate(middle, OF_MEDIAN * spread / max(1, count) ** 0.5 if count > 2 else abs(middle))
