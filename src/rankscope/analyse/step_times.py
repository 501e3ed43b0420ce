"""In which step of each rank does each collective begin?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.analyse.matching import Log
from rankscope.analyse.rank_steps import RankSteps
from rankscope.analyse.splitting import Split, collectives_of
from rankscope.analyse.step_data import Steps, steps_of
from rankscope.model import Tables

Array = Any  # of numpy
HELD_STEPS = 4_000_000


@dataclass(slots=True)
class StepTimes:
    """When the steps of each rank begin and end, by its own clock, since Log.base_ns."""

    numbers: Array  # of all steps of any rank, in order
    ranks: Sequence[RankSteps | None]  # by place in Log.ranks
    places: Sequence[Array]  # of each one's steps among the numbers
    base_ns: int
    first_steady: int  # its place among the numbers
    recorded: bool
    _held: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    def of(self, place: int) -> tuple[Array, Array]:
        """Beginnings and ends of one rank's steps; of so many of the ranks as there is room for they stay in memory."""
        if place in self._held:
            return self._held[place]
        one = self.ranks[place]
        if one is None:
            return np.zeros(0), np.zeros(0)
        begin = (one.begin_ns - self.base_ns).astype(np.float64)
        made = begin, begin + one.length_ns
        if len(self._held) * len(self.numbers) < HELD_STEPS:
            self._held[place] = made
        return made

    def codes(self, split: Split) -> Array:
        """Collectives × members: the place of the step among the numbers, -1 where there is none."""
        if split.steps is None:
            split.steps = self._codes(split)
        return split.steps

    def _codes(self, split: Split) -> Array:
        entered = np.ascontiguousarray(split.group.enter_ns.T)
        made = np.full(entered.shape, -1, np.int32)
        for own, times, place in zip(made, entered, split.group.members.tolist(), strict=True):
            begins, ends = self.of(place)
            if len(begins):
                at = np.searchsorted(begins, times, side="right") - 1
                inside = (at >= 0) & (times <= ends[at])
                own[:] = np.where(inside, self.places[place][at], -1)
        return made.T


def step_times(tables: Tables) -> StepTimes | None:
    """Of the collectives of a run; None where it has no steps. Worked out once for each run that is open."""
    known = collectives_of(tables)
    if known.log.steps is None:
        known.log.steps = _step_times(known.log, steps_of(tables)) or ()
    found: StepTimes | None = known.log.steps or None
    return found


def _step_times(log: Log, found: Steps) -> StepTimes | None:
    if not found.ranks:
        return None
    of_rank = {one.rank: one for one in found.ranks}
    ranks = [of_rank.get(rank) for rank in log.ranks]
    distinct = {id(one.number): one.number for one in ranks if one is not None}
    numbers = np.unique(np.concatenate([np.zeros(0, np.int64), *distinct.values()]))
    places = {key: np.searchsorted(numbers, own) for key, own in distinct.items()}
    none = np.zeros(0, np.int64)
    own = [none if one is None else places[id(one.number)] for one in ranks]
    first = int(np.searchsorted(numbers, found.first_steady))
    return StepTimes(numbers, ranks, own, log.base_ns, first, found.source == "recorded")
