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
    made: dict[int, tuple[float, ...]] = {}
    for one in found.ranks:
        begins = one.begin_ns[found.steady(one)] - known.log.base_ns
        ends = begins + one.length_ns[found.steady(one)]
        if not known.splits or not len(begins) or one.rank not in known.log.ranks:
            continue
        place = known.log.ranks.index(one.rank)
        sums = np.zeros(3)
        oldest = np.inf
        for split in known.splits:
            column = np.flatnonzero(split.group.members == place)
            if not len(column):
                continue
            entered = split.group.enter_ns[:, column[0]]
            oldest = min(oldest, float(entered.min()))
            within = inside(entered, begins, ends)
            of_each = (split.wait_ns, split.transfer_ns, split.leaving_ns)
            sums += [values[within, column[0]].sum() for values in of_each]
        covered = int((begins >= oldest - one.length_ns.max()).sum())
        if covered:
            made[one.rank] = tuple((sums / covered).tolist())
    return made


def inside(moments: Array, begins: Array, ends: Array) -> Array:
    """Which moments lie in one of the intervals, which are in order and apart."""
    at = np.searchsorted(begins, moments, side="right") - 1
    inside_one: Array = (at >= 0) & (moments <= ends[np.maximum(at, 0)])
    return inside_one
