"""Which cases a job goes through, window by window of its steps: program and test know them by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

CAUSES = {
    "data": "data loading",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "gc": "garbage collection",
    "hog": "preemption",
}
NONE_SHARE = 0.25
SETTLING_STEPS = 4  # of a window, in which a cause comes and the one before goes


@dataclass(frozen=True)
class Window:
    """Steps first to last (from 1) with one thing wrong with one rank; cause "" for nothing."""

    first: int
    last: int
    cause: str
    rank: int
    delay_ms: float

    @property
    def told(self) -> tuple[int, str] | None:
        """What the analysis should say."""
        return (self.rank, CAUSES[self.cause]) if self.cause else None


def windows_of(seed: int, ranks: int, cases: int, steps: int, none_share: float = NONE_SHARE) -> list[Window]:
    """The cases of one job; each has so many steps."""
    chance = random.Random(f"{seed} {ranks}")
    made = []
    for case in range(cases):
        cause = "" if chance.random() < none_share else chance.choice(list(CAUSES))
        rank, delay = chance.randrange(ranks), chance.uniform(4.0, 15.0)
        made.append(Window(1 + case * steps, (case + 1) * steps, cause, rank if cause else -1, delay if cause else 0.0))
    return made
