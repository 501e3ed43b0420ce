"""How much of a steady step are the collectives waiting, and how much moving data?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.analyse.step_times import StepTimes, step_times
from rankscope.model import Tables
from rankscope.questions.collectives.matching import Log
from rankscope.questions.collectives.wait_and_transfer import Split, collectives_of, usually_asked_of_steps
from rankscope.questions.steps.data import Steps

Array = Any  # of numpy
MANY = 256  # members
Waits = dict[int, tuple[float, ...]]


@dataclass(slots=True)
class _Sums:
    """Of the collectives of one split, by member."""

    places: Array
    oldest: Array  # when the first was entered
    inside: Array  # members × (waiting, moving data, leaving) in steady steps


_KEPT: WeakKeyDictionary[Tables, Waits] = WeakKeyDictionary()


def waits_per_step(tables: Tables, found: Steps) -> Waits:
    """Of each rank: waiting, moving data and leaving per steady step that the log reaches; overlapping ones add up."""
    if tables not in _KEPT:
        times = step_times(tables)
        _KEPT[tables] = _waits(tables, times, found) if times is not None else {}
    return _KEPT[tables]


def _waits(tables: Tables, times: StepTimes, found: Steps) -> Waits:
    known = collectives_of(tables)
    sums, oldest = np.zeros((len(known.log.ranks), 3)), np.full(len(known.log.ranks), np.inf)
    for one in known.of_each(_sums):
        sums[one.places] += one.inside
        oldest[one.places] = np.minimum(oldest[one.places], one.oldest)
    made: Waits = {}
    for place, steps in enumerate(times.ranks):
        if steps is None or not known.splits:
            continue
        begins, _ = times.of(place)
        steady = begins[found.steady(steps)]
        covered = int((steady >= oldest[place] - steps.length_ns.max()).sum()) if len(steady) else 0
        if covered:
            made[steps.rank] = tuple((sums[place] / covered).tolist())
    return made


@usually_asked_of_steps
def _sums(log: Log, split: Split) -> _Sums:
    times: StepTimes = log.steps
    inside = times.codes(split) >= times.first_steady
    by_member = np.stack([_inside(values, inside) for values in (split.wait_ns, split.transfer_ns, split.leaving_ns)])
    return _Sums(split.group.members, split.group.enter_ns.min(axis=0), by_member.T)


def _inside(values: Array, inside: Array) -> Array:
    """The sum of each column over the chosen rows, of a few columns to the last digit as if it were alone."""
    if values.shape[1] >= MANY:
        return values.sum(axis=0, where=inside)
    made = np.zeros(values.shape[1])
    whole = inside.all(axis=0)
    if whole.any():
        made[whole] = np.ascontiguousarray(values.T)[whole].sum(axis=1)
    for member in np.flatnonzero(inside.any(axis=0) & ~whole).tolist():
        made[member] = values[inside[:, member], member].sum()
    return made
