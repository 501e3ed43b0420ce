"""Which rank takes longer than its peers before it comes to the collectives, and in what?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.analyse.block_means import Estimate, estimate
from rankscope.analyse.step_data import RankSteps, Steps

Array = Any
FEWEST_STEPS = 12
NOTICEABLE = 0.04  # of the step
SIGMAS = 4.0
OUTSTANDING = 3.0  # times the spread of the other ranks
SYNCHRONOUS = 0.4  # of the excess that the others must be seen to wait


@dataclass(slots=True)
class Late:
    """A rank whose own time in a step is longer than that of its peers."""

    rank: int
    host: str
    excess: Estimate  # own ns per step more than the median of the peers
    waited_ns: float  # ns per step that its peers are blocked longer than it is
    step_ns: float
    steps: int
    components: dict[str, Estimate] = field(default_factory=dict)  # the excess of each component
    usual_ns: dict[str, float] = field(default_factory=dict)  # what the peers need for it
    counts: dict[str, Estimate] = field(default_factory=dict)


def late_ranks(found: Steps) -> list[Late]:
    """Ranks that stand out, the latest first; none where the difference may be chance."""
    common = found.common()
    if len(found.ranks) < 2 or len(common) < FEWEST_STEPS:
        return []
    chosen = [np.searchsorted(one.number, common) for one in found.ranks]
    own = np.stack([one.own_ns[at] for one, at in zip(found.ranks, chosen, strict=True)])
    exposed = np.stack([one.exposed_ns[at] for one, at in zip(found.ranks, chosen, strict=True)])
    step_ns = float(np.median(own + exposed))
    excess = [estimate(_beyond_peers(own, place)) for place in range(len(own))]
    late = []
    for place, one in enumerate(found.ranks):
        waited = -estimate(_beyond_peers(exposed, place)).value
        if _stands_out(excess, place, step_ns) and waited >= SYNCHRONOUS * excess[place].value:
            told = Late(one.rank, one.host, excess[place], waited, step_ns, len(common))
            _add_components(told, found.ranks, chosen, place)
            late.append(told)
    return sorted(late, key=lambda told: -told.excess.value)


def _beyond_peers(values: Array, place: int) -> Array:
    """Step by step, how much more than the median of the other ranks."""
    return values[place] - np.median(np.delete(values, place, axis=0), axis=0)


def _stands_out(excess: list[Estimate], place: int, step_ns: float) -> bool:
    one = excess[place]
    if one.value < max(NOTICEABLE * step_ns, SIGMAS * one.error):
        return False
    if len(excess) < 4:
        return True
    others = np.array([told.value for at, told in enumerate(excess) if at != place])
    spread = 1.4826 * float(np.median(np.abs(others - np.median(others))))
    return one.value >= OUTSTANDING * spread


def components_of(one: RankSteps) -> dict[str, Array]:
    """What a step's own time consists of, and what lies within it."""
    made = dict(one.own)
    if one.gaps_ns is not None:
        made = {f"before {slot} {at}": one.gaps_ns[:, at - 1] for at, slot in enumerate(one.slots, 1)}
    return made | {name: one.of_which[name] for name in ("gc", "runnable", "cpu") if name in one.of_which}


def _add_components(told: Late, ranks: list[RankSteps], chosen: list[Array], place: int) -> None:
    series = [
        {name: values[at] for name, values in components_of(one).items()} for one, at in zip(ranks, chosen, strict=True)
    ]
    for name in series[place]:
        if all(name in one for one in series):
            table = np.stack([one[name] for one in series])
            told.components[name] = estimate(_beyond_peers(table, place))
            told.usual_ns[name] = float(np.mean(np.median(np.delete(table, place, axis=0), axis=0)))
    for name in ranks[place].counts:
        table = np.stack([one.counts[name][at] for one, at in zip(ranks, chosen, strict=True)])
        told.counts[name] = estimate(_beyond_peers(table, place))
