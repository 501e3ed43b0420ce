"""How much of a steady step is wait in collectives, and how much transfer?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Tables
from rankscope.questions.collectives.matching import CollectiveLog
from rankscope.questions.collectives.wait_and_transfer import Split, collectives_of, usually_asked_of_steps
from rankscope.questions.disk_matrix import ITEM_BYTES, Scratch, read_at, write_at
from rankscope.questions.steps.arrays import RankSteps, some_of
from rankscope.questions.steps.data import Steps, steps_of

# ---------------------------------------------------------------------------------------------------------------------
# In which step of each rank does each collective begin?
Array = Any  # of numpy
CELLS = 1 << 22  # ranks × steps that are held in memory while the table below is made


@dataclass(slots=True)
class StepTimes:
    """When the steps of each rank begin and end, by its own clock, since Log.base_ns."""

    numbers: Array  # of all steps of any rank, in order
    ranks: Sequence[RankSteps | None]  # by place in Log.ranks
    places: Sequence[Array]  # of each one's steps among the numbers
    base_ns: int
    first_steady: int  # its place among the numbers
    recorded: bool
    _across: Across | None = None

    def of(self, place: int) -> tuple[Array, Array]:
        """Beginnings and ends of one rank's steps."""
        rank_steps = self.ranks[place]
        if rank_steps is None:
            return np.zeros(0), np.zeros(0)
        begin = (rank_steps.begin_ns - self.base_ns).astype(np.float64)
        return begin, begin + rank_steps.length_ns

    def codes(self, split: Split) -> Array:
        """Collectives × members: the place of the step among the numbers, -1 where there is none."""
        if split.steps is None:
            split.steps = self._codes(split)
        return split.steps

    def _codes(self, split: Split) -> Array:
        """Nearly always all ranks are in the same step: that of one of them is looked up, and tried for all others."""
        members, entered = split.group.members, split.group.enter_ns
        codes = np.full(entered.shape, -1, np.int32)
        having = [column for column, place in enumerate(members.tolist()) if self.ranks[place] is not None]
        if not having:
            return codes
        first = members[having[0]]
        begins, _ = self.of(first)
        steps_entered = np.searchsorted(begins, entered[:, having[0]], side="right") - 1
        tried = np.where(steps_entered >= 0, self.places[first][steps_entered], -1)
        assert self._across is not None
        begin, end, following = self._across.around(tried, members)
        fits = (begin <= entered) & (entered < following)
        codes[:] = np.where(fits & (entered <= end), tried[:, None], -1)
        for column in np.flatnonzero(~fits.all(axis=0)).tolist():
            codes[:, column] = self._looked_up(members[column], entered[:, column])
        return codes

    def _looked_up(self, place: int, entered: Array) -> Array:
        begins, ends = self.of(place)
        if not len(begins):
            return -1
        at = np.searchsorted(begins, entered, side="right") - 1
        inside = (at >= 0) & (entered <= ends[at])
        return np.where(inside, self.places[place][at], -1)


class Across:
    """Beginnings and ends by step, those of all ranks together: on disk, a row for each number."""

    def __init__(self, times: StepTimes) -> None:
        self._scratch, self._ranks, self._rows = Scratch(), len(times.ranks), len(times.numbers)
        self._place = {name: self._scratch.room(self._ranks * self._rows * ITEM_BYTES) for name in ("begin", "end")}
        height = max(1, CELLS // max(1, self._ranks))
        for first in range(0, self._rows, height):
            last = min(first + height, self._rows)
            begin, end = np.full((2, self._ranks, last - first), np.nan)
            for place, rank_steps in enumerate(times.ranks):
                if rank_steps is not None:
                    _fill(rank_steps, times.places[place], first, last, times.base_ns, begin[place], end[place])
            for name, values in (("begin", begin), ("end", end)):
                data = np.ascontiguousarray(values.T).reshape(-1).view(np.uint8).data
                write_at(self._scratch.number, data, self._place[name] + first * self._ranks * ITEM_BYTES)

    def around(self, steps: Array, members: Array) -> tuple[Array, Array, Array]:
        """Of each of the steps (-1: before the first) × members: beginning, end, and beginning of the next."""
        first, last = max(0, int(steps.min())), min(int(steps.max()) + 2, self._rows)
        none = np.full((1, len(members)), np.inf)
        begin = np.concatenate([-none, self._read("begin", first, last)[:, members], none])
        end = np.concatenate([-none, self._read("end", first, last)[:, members]])
        at = np.where(steps >= 0, steps - first + 1, 0)
        return begin[at], end[at], begin[at + 1]

    def _read(self, name: str, first: int, last: int) -> Array:
        values = np.empty((last - first, self._ranks))
        place = self._place[name] + first * self._ranks * ITEM_BYTES
        read_at(self._scratch.number, values.reshape(-1).view(np.uint8).data, place)
        return values


def _fill(rank_steps: RankSteps, places: Array, first: int, last: int, base_ns: int, begin: Array, end: Array) -> None:
    """The steps of one rank from the first number to the last, where it has them."""
    low, high = np.searchsorted(places, (first, last)).tolist()
    if low < high:
        at = places[low:high] - first
        begin[at] = (some_of(rank_steps.values, "begin_ns", low, high) - base_ns).astype(np.float64)
        end[at] = begin[at] + some_of(rank_steps.values, "length_ns", low, high)


def step_times(tables: Tables) -> StepTimes | None:
    """Of the collectives of a run; None where it has no steps. Worked out once for each run that is open."""
    known = collectives_of(tables)
    if known.log.steps is None:
        known.log.steps = times_of(known.log, steps_of(tables)) or ()
    times: StepTimes | None = known.log.steps or None
    return times


def times_of(log: CollectiveLog, steps: Steps) -> StepTimes | None:
    """When these steps were, for the collectives of this log."""
    if not steps.ranks:
        return None
    of_rank = {rank_steps.rank: rank_steps for rank_steps in steps.ranks}
    ranks = [of_rank.get(rank) for rank in log.ranks]
    distinct = {id(rank_steps.number): rank_steps.number for rank_steps in ranks if rank_steps is not None}
    numbers = np.unique(np.concatenate([np.zeros(0, np.int64), *distinct.values()]))
    places = {key: np.searchsorted(numbers, own_numbers) for key, own_numbers in distinct.items()}
    none = np.zeros(0, np.int64)
    own_places = [none if rank_steps is None else places[id(rank_steps.number)] for rank_steps in ranks]
    first = int(np.searchsorted(numbers, steps.first_steady))
    times = StepTimes(numbers, ranks, own_places, log.base_ns, first, steps.source in ("recorded", "traced"))
    times._across = Across(times)
    return times


# ---------------------------------------------------------------- waits
# of numpy
MANY = 256  # members
Waits = dict[int, "StepWaits"]


@dataclass(slots=True)
class _Sums:
    """Of the collectives of one split, by member."""

    places: Array
    oldest: Array  # when the first was entered
    inside: Array  # members × what StepWaits has, in steady steps


_KEPT: WeakKeyDictionary[Tables, Waits] = WeakKeyDictionary()


def waits_per_step(tables: Tables, steps: Steps) -> Waits:
    """Of each rank: wait, transfer and exit skew per steady step that the log reaches; overlapping ones add up."""
    if tables not in _KEPT:
        times = step_times(tables)
        _KEPT[tables] = _waits(tables, times, steps) if times is not None else {}
    return _KEPT[tables]


@dataclass(frozen=True, slots=True)
class StepWaits:
    """Of the collectives of a mean steady step, in ns: all of them, and those of them that block the rank."""

    wait_ns: float
    transfer_ns: float
    leaving_ns: float
    blocking_wait_ns: float
    blocking_after_ns: float  # transfer and exit skew

    def exposed(self, exposed_ns: float) -> tuple[float, float, float]:
        """Exposed wait, exposed transfer, and what of the exposed time no matched collective explains.

        Blocking ones are exposed whole. What is left was spent on nonblocking ones: wait comes first in a collective,
        so what holds up the rank is the end of it as far as that goes.
        """
        after_ns = min(exposed_ns, self.blocking_after_ns)
        wait_ns = min(exposed_ns - after_ns, self.blocking_wait_ns)
        left_ns = exposed_ns - after_ns - wait_ns
        end_ns = min(left_ns, max(0.0, self.transfer_ns + self.leaving_ns - self.blocking_after_ns))
        begin_ns = min(left_ns - end_ns, max(0.0, self.wait_ns - self.blocking_wait_ns))
        return wait_ns + begin_ns, after_ns + end_ns, left_ns - end_ns - begin_ns


def _waits(tables: Tables, times: StepTimes, measured: Steps) -> Waits:
    known = collectives_of(tables)
    sums, oldest = np.zeros((len(known.log.ranks), 5)), np.full(len(known.log.ranks), np.inf)
    for group_sums in known.of_each(_sums):
        sums[group_sums.places] += group_sums.inside
        oldest[group_sums.places] = np.minimum(oldest[group_sums.places], group_sums.oldest)
    waits: Waits = {}
    for place, steps in enumerate(times.ranks):
        if steps is None or not known.splits:
            continue
        begins, _ = times.of(place)
        steady = begins[measured.steady(steps)]
        covered = int((steady >= oldest[place] - steps.length_ns.max()).sum()) if len(steady) else 0
        if covered:
            waits[steps.rank] = StepWaits(*(sums[place] / covered).tolist())
    return waits


@usually_asked_of_steps
def _sums(log: CollectiveLog, split: Split) -> _Sums:
    times: StepTimes = log.steps
    inside = times.codes(split) >= times.first_steady
    values = [_inside(values, inside) for values in (split.wait_ns, split.transfer_ns, split.leaving_ns)]
    if split.group.progress.any():
        blocking = inside & ~split.group.progress[:, None]
        after_ns = split.stay_ns - split.wait_ns
        values += [_inside(split.wait_ns, blocking), _inside(after_ns, blocking)]
    else:
        values += [values[0], values[1] + values[2]]
    return _Sums(split.group.members, split.group.enter_ns.min(axis=0), np.stack(values).T)


def _inside(values: Array, inside: Array) -> Array:
    """The sum of each column over the chosen rows, of a few columns to the last digit as if it were alone."""
    if values.shape[1] >= MANY:
        return values.sum(axis=0, where=inside)
    sums = np.zeros(values.shape[1])
    always = inside.all(axis=0)
    if always.any():
        sums[always] = np.ascontiguousarray(values.T)[always].sum(axis=1)
    for member in np.flatnonzero(inside.any(axis=0) & ~always).tolist():
        sums[member] = values[inside[:, member], member].sum()
    return sums
