"""Which rank takes longer than its peers before it comes to the collectives, and in what?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.analyse.block_means import TO_SIGMA, Estimate, estimates
from rankscope.analyse.rank_steps import RankSteps
from rankscope.analyse.step_data import Steps

Array = Any
FEWEST_STEPS = 12
NOTICEABLE = 0.04  # of the step
SIGMAS = 5.0
OUTSTANDING = 3.0  # times the spread of the other ranks
# Waiting for a CPU comes and goes with whatever else a host does: it must be more of the step,
NOTICEABLE_PREEMPTION = 0.1
MORE_PREEMPTION = 0.5  # and so much more than what the peers wait
MOST = 0.5
SYNCHRONOUS = 0.3  # of the excess that the others must be seen to wait
WITHIN = ("gc", "runnable", "cpu")  # lie within the parts and are no parts themselves


@dataclass(slots=True)
class Late:
    """A rank whose own time in a step is longer than that of its peers."""

    rank: int
    host: str
    excess: Estimate  # own ns per step more than the median of the peers
    waited_ns: float  # ns per step that its peers are blocked longer than it is
    step_ns: float
    steps: int
    whole: bool  # all its own time stands out, not only a component of it
    components: dict[str, Estimate] = field(default_factory=dict)  # the excess of each component
    usual_ns: dict[str, float] = field(default_factory=dict)  # what the peers need for it
    counts: dict[str, Estimate] = field(default_factory=dict)
    outstanding: list[str] = field(default_factory=list)  # components that stand out, largest first


def late_ranks(found: Steps) -> list[Late]:
    """Ranks that stand out, the latest first; none where the difference may be chance."""
    common = found.common()
    if len(found.ranks) < 2 or len(common) < FEWEST_STEPS:
        return []
    chosen = [np.searchsorted(one.number, common) for one in found.ranks]
    own = _table([one.own_ns for one in found.ranks], chosen)
    exposed = _table([one.exposed_ns for one in found.ranks], chosen)
    step_ns = float(np.median(own + exposed))
    excess, blocked = _excesses(own), _excesses(exposed)
    told = [
        Late(
            one.rank,
            one.host,
            excess[place],
            -blocked[place].value,
            step_ns,
            len(common),
            _stands_out(excess, place, step_ns),
        )
        for place, one in enumerate(found.ranks)
    ]
    _add_components(told, found.ranks, chosen)
    return sorted((one for one in told if _is_late(one)), key=lambda one: -lateness_ns(one))


def lateness_ns(one: Late) -> float:
    """By how much: all its own time if that stands out, else what does."""
    largest = one.components[one.outstanding[0]].value if one.outstanding else 0.0
    return max(one.excess.value, largest)


def _is_late(one: Late) -> bool:
    """Something must stand out, not be made up for elsewhere in the step, and make the others wait."""
    if not (one.outstanding or one.whole) or _is_contention(one):
        return False
    enough = SYNCHRONOUS * lateness_ns(one)
    return one.excess.value >= enough and one.waited_ns >= enough


def _is_contention(one: Late) -> bool:
    """Whether most of it is waiting for a CPU, and no more than any rank may have to."""
    waits = one.components.get("runnable")
    return waits is not None and "runnable" not in one.outstanding and waits.value >= MOST * lateness_ns(one)


def peers_medians(values: Array) -> Array:
    """For each rank (row) the median of the other ranks, step by step.

    From one sorting: leaving a value out moves the middle of the sorted ones by at most one place.
    """
    order = np.argsort(values, axis=0, kind="stable")
    position = np.empty_like(order)
    np.put_along_axis(position, order, np.arange(len(values))[:, None], axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    peers = len(values) - 1
    low, high = (peers - 1) // 2, peers // 2
    return (
        np.where(position > low, ordered[low], ordered[low + 1])
        + np.where(position > high, ordered[high], ordered[high + 1])
    ) / 2


def _table(series: list[Array], chosen: list[Array]) -> Array:
    return np.stack([values[at] for values, at in zip(series, chosen, strict=True)])


def _excesses(table: Array) -> list[Estimate]:
    return estimates(table - peers_medians(table))


def _stands_out(excess: list[Estimate], place: int, step_ns: float) -> bool:
    one, noticeable = excess[place], NOTICEABLE * step_ns
    # what comes and goes has a large error and yet is there in nearly every block
    if one.value < noticeable or (one.value < SIGMAS * one.error and one.least < noticeable):
        return False
    if len(excess) < 4:
        return True
    others = np.array([told.value for at, told in enumerate(excess) if at != place])
    spread = TO_SIGMA * float(np.median(np.abs(others - np.median(others))))
    return one.value >= OUTSTANDING * spread


def components_of(one: RankSteps) -> dict[str, Array]:
    """What a step's own time consists of, and what lies within it."""
    made = dict(one.own)
    if one.slots:
        made = {f"before {slot} {at}": one.gaps[str(at)] for at, slot in enumerate(one.slots, 1)}
    return made | {name: one.of_which[name] for name in WITHIN if name in one.of_which}


def _add_components(told: list[Late], ranks: list[RankSteps], chosen: list[Array]) -> None:
    series = [components_of(one) for one in ranks]
    for name in series[0]:
        if all(name in one for one in series):
            _add_component(told, name, _table([one[name] for one in series], chosen))
    for name in ranks[0].counts:
        excess = _excesses(_table([one.counts[name] for one in ranks], chosen))
        for late, one in zip(told, excess, strict=True):
            late.counts[name] = one
    for late in told:
        late.outstanding.sort(key=lambda name: -late.components[name].value)


def _add_component(told: list[Late], name: str, table: Array) -> None:
    medians = peers_medians(table)
    excess = estimates(table - medians)
    for place, late in enumerate(told):
        usual = float(medians[place].mean())
        late.components[name], late.usual_ns[name] = excess[place], usual
        least = max(MORE_PREEMPTION * usual, NOTICEABLE_PREEMPTION * late.step_ns) if name == "runnable" else 0.0
        enough = excess[place].value >= least
        if name != "cpu" and enough and _stands_out(excess, place, late.step_ns):
            late.outstanding.append(name)
