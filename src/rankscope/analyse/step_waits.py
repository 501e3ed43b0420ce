"""How much of a steady step are the collectives waiting, and how much moving data?"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankscope.analyse.splitting import collectives_of
from rankscope.analyse.step_data import Steps
from rankscope.model import Tables

Array = Any


def waits_per_step(tables: Tables, found: Steps) -> dict[int, tuple[float, ...]]:
    """Of each rank: waiting, moving data and leaving per steady step that the log reaches; overlapping ones add up."""
    known = collectives_of(tables)
    place_of = {rank: place for place, rank in enumerate(known.log.ranks)}
    steady: dict[int, tuple[Array, Array]] = {}  # by place: where the steps begin and end
    for one in found.ranks:
        begins = one.begin_ns[found.steady(one)] - known.log.base_ns
        if len(begins) and one.rank in place_of:
            steady[place_of[one.rank]] = begins, begins + one.length_ns[found.steady(one)]
    sums, oldest = np.zeros((len(place_of), 3)), np.full(len(place_of), np.inf)
    for split in known.splits if steady else ():
        of_each = (split.wait_ns, split.transfer_ns, split.leaving_ns)
        for column, place in enumerate(split.group.members.tolist()):
            if place in steady:
                entered = split.group.enter_ns[:, column]
                oldest[place] = min(oldest[place], float(entered.min()))
                within = inside(entered, *steady[place])
                sums[place] += [values[within, column].sum() for values in of_each]
    made: dict[int, tuple[float, ...]] = {}
    for one in found.ranks:
        place = place_of.get(one.rank, -1)
        if place in steady and known.splits:
            covered = int((steady[place][0] >= oldest[place] - one.length_ns.max()).sum())
            if covered:
                made[one.rank] = tuple((sums[place] / covered).tolist())
    return made


def inside(moments: Array, begins: Array, ends: Array) -> Array:
    """Which moments lie in one of the intervals, which are in order and apart."""
    at = np.searchsorted(begins, moments, side="right") - 1
    inside_one: Array = (at >= 0) & (moments <= ends[np.maximum(at, 0)])
    return inside_one
