"""Which of the first steps are warm-up?"""

from __future__ import annotations

from typing import Any

import numpy as np

WINDOW = 3  # steps that must be at the steady level one after the other
SPREADS = 5.0  # in MADs of the second half
NOTICEABLE = 0.2  # of the steady level
FEWEST = 8  # fewer steps tell no level


def warmup_steps(length_ns: Any, flagged: Any) -> int:
    """How many to leave out: those flagged by the recorder, then those before the step time reaches its later level."""
    told = int(np.flatnonzero(flagged)[-1]) + 1 if flagged.any() else 0
    count = len(length_ns)
    if count - told < FEWEST:
        return min(told, count - 1) if count else 0
    later = length_ns[told + (count - told) // 2 :]
    level = float(np.median(later))
    spread = 1.4826 * float(np.median(np.abs(later - level)))
    bound = level + max(SPREADS * spread, NOTICEABLE * level)
    for first in range(told, told + (count - told) // 2):
        if (length_ns[first : first + WINDOW] <= bound).sum() >= min(WINDOW - 1, count - first) and (
            length_ns[first] <= bound
        ):
            return first
    return told
