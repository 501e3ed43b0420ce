"""Which rank takes longer than its peers before it comes to the collectives, and in what?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.data import Steps

# ---------------------------------------------------------------------------------------------------------------------
# By how much do two series differ, and how sure is that, where single values may be far off?
Array = Any
BLOCKS = 12
SHORTEST = 4  # steps in a block
MANY = 8  # blocks: of so many that all lie on one side by chance is rarer than 1 in 100
TO_SIGMA = 1.4826  # of a MAD, where values are normally distributed
OF_MEDIAN = 1.2533  # standard error of a median ÷ that of a mean


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean that one stall cannot move, its standard error, and what nearly all of its blocks reach."""

    value: float
    error: float
    least: float = 0.0  # the smallest but one of the means; 0 with few blocks


def estimate(values: Array) -> Estimate:
    """The median of the means of consecutive blocks, and its error by the spread of those means."""
    return estimates(np.asarray(values, np.float64)[None, :])[0]


def estimates(values: Array) -> list[Estimate]:
    """The same for each row."""
    return list(estimated([block.mean(axis=1) for block in np.array_split(values, blocks(values.shape[1]), axis=1)]))


def blocks(count: int) -> int:
    """Into how many blocks so many values are cut."""
    return max(1, min(BLOCKS, count // SHORTEST))


@dataclass(frozen=True, slots=True)
class Estimates:
    """Those of many series."""

    value: Array
    error: Array
    least: Array

    def __getitem__(self, at: int) -> Estimate:
        return Estimate(float(self.value[at]), float(self.error[at]), float(self.least[at]))

    def __iter__(self) -> Iterator[Estimate]:
        return (self[at] for at in range(len(self.value)))


def estimated(block_means: Sequence[Array]) -> Estimates:
    """Of each series, given the means of their blocks one block after the other."""
    means, count = np.stack(block_means, axis=1), len(block_means)
    middle = np.median(means, axis=1)
    spread = TO_SIGMA * np.median(np.abs(means - middle[:, None]), axis=1)
    error = OF_MEDIAN * spread / count**0.5 if count > 2 else np.abs(middle)
    least = np.sort(means, axis=1)[:, 1] if count >= MANY else np.zeros(len(means))
    return Estimates(middle, error, least)


# ---------------------------------------------------------------- lateness
FEWEST_STEPS = 12
NOTICEABLE = 0.04  # of the step
SIGMAS = 5.0
OUTSTANDING = 3.0  # times the spread of the other ranks
# Waiting for a CPU comes and goes with whatever else a host does: it must be more of the step,
NOTICEABLE_PREEMPTION = 0.1
MORE_PREEMPTION = 0.5  # and so much more than what the peers wait
NOTICEABLE_LEFT = 0.1  # of the step, without it
MORE_WORK = 0.5  # of the peers' CPU time: who has so much more to compute is late for that, whoever else wants a CPU
MOST = 0.5
SYNCHRONOUS = 0.3  # of the excess that the others must be seen to wait
MOST_CELLS = 1 << 21  # ranks × steps that are compared at a time
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
    components: dict[str, Estimate]  # the excess of each component
    usual_ns: dict[str, float]  # what the peers need for it
    counts: dict[str, Estimate]
    outstanding: list[str]  # components that stand out, largest first


@dataclass(slots=True)
class _Compared:
    """Something of the steps of every rank, against the median of its peers."""

    excess: Estimates  # by rank, per step
    usual: Array  # the peers' mean


def late_ranks(steps: Steps) -> list[Late]:
    """Ranks that stand out, the latest first; none where the difference may be chance."""
    common = steps.common()
    if len(steps.ranks) < 2 or len(common) < FEWEST_STEPS:
        return []
    chosen = Chosen(steps.ranks, common)
    step_ns = float(
        np.median(chosen.table(lambda rank_steps: rank_steps.own_ns + rank_steps.exposed_ns), overwrite_input=True)
    )
    own_times, exposed = (
        chosen.compared(lambda rank_steps: rank_steps.own_ns),
        chosen.compared(lambda rank_steps: rank_steps.exposed_ns),
    )
    by_own_time = _stand_out(own_times.excess, step_ns)
    components = {name: chosen.compared(partial(_component, name=name)) for name in _components(steps.ranks)}
    outstanding = {name: _outstanding(name, component, step_ns) for name, component in components.items()}
    places = sorted({place for places in (by_own_time, *outstanding.values()) for place in places})
    counts = {name: chosen.compared(partial(_count, name=name)) for name in steps.ranks[0].counts} if places else {}
    candidates = []
    for place in places:
        late = Late(
            steps.ranks[place].rank,
            steps.ranks[place].host,
            own_times.excess[place],
            -exposed.excess[place].value,
            step_ns,
            len(common),
            place in by_own_time,
            {name: component.excess[place] for name, component in components.items()},
            {name: float(component.usual[place]) for name, component in components.items()},
            {name: count.excess[place] for name, count in counts.items()},
            [name for name, standing in outstanding.items() if place in standing],
        )
        late.outstanding.sort(key=lambda name: -late.components[name].value)
        candidates.append(late)
    return sorted(
        (late_rank for late_rank in candidates if _is_late(late_rank)), key=lambda late_rank: -lateness_ns(late_rank)
    )


def lateness_ns(late: Late) -> float:
    """By how much: all its own time if that stands out, else what does."""
    largest = late.components[late.outstanding[0]].value if late.outstanding else 0.0
    return max(late.excess.value, largest)


def _is_late(late: Late) -> bool:
    """Something must stand out, not be made up for elsewhere in the step, and make the others wait."""
    if not (late.outstanding or late.whole) or _is_contention(late):
        return False
    enough = SYNCHRONOUS * lateness_ns(late)
    return late.excess.value >= enough and late.waited_ns >= enough


def preempted_ns(late: Late) -> float:
    """How much longer it waits for a CPU than its peers would, had they as much to compute."""
    if "runnable" not in late.components:
        return 0.0
    excess_ns, usual_ns = late.components["runnable"].value, late.usual_ns["runnable"]
    cpu, usual_cpu_ns = late.components.get("cpu"), late.usual_ns.get("cpu", 0.0)
    more = max(0.0, cpu.value) / usual_cpu_ns if cpu is not None and usual_cpu_ns > 0 else 0.0
    return excess_ns - more * max(0.0, usual_ns) if more < MORE_WORK else 0.0


def _is_contention(late: Late) -> bool:
    """Whether most of it may be waiting for a CPU, no more than any rank may have to, and little is left without."""
    late_ns, waits_ns = lateness_ns(late), preempted_ns(late)
    left_ns = late_ns - waits_ns
    return (
        "runnable" not in late.outstanding and waits_ns >= MOST * late_ns and left_ns < NOTICEABLE_LEFT * late.step_ns
    )


def peers_medians(values: Array) -> Array:
    """For each rank (row) the median of the other ranks, step by step.

    Leaving a value out moves the middle of the sorted ones by at most one place.
    """
    peers = len(values) - 1
    low, high = (peers - 1) // 2, peers // 2
    middle = np.partition(values, sorted({low, low + 1, high, high + 1}), axis=0)[low : high + 2]
    lower = np.where(values > middle[0], middle[0], middle[1])
    return (lower + np.where(values > middle[high - low], middle[high - low], middle[high - low + 1])) / 2


@dataclass(slots=True)
class Chosen:
    """The steps that all ranks have."""

    ranks: Sequence[RankSteps]
    common: Array
    _places: dict[int, Array] = field(default_factory=dict)

    def of(self, rank_steps: RankSteps, values: Array) -> Array:
        """Of the values of all steps of a rank those of these."""
        key = id(rank_steps.number)
        if key not in self._places:
            self._places[key] = np.searchsorted(rank_steps.number, self.common)
        return values[self._places[key]]

    def table(self, ask: Callable[[RankSteps], Array]) -> Array:
        """Ranks × steps: what each rank answers."""
        values = np.empty((len(self.ranks), len(self.common)))
        for row, rank in zip(values, self.ranks, strict=True):
            row[:] = self.of(rank, ask(rank))
        return values

    def compared(self, ask: Callable[[RankSteps], Array]) -> _Compared:
        """What each rank answers (a value for each of its steps), as a whole or some steps at a time."""
        table = self.table(ask)
        edges = np.array_split(np.arange(len(self.common)), blocks(len(self.common)))
        cuts = [slice(int(edge[0]), int(edge[-1]) + 1) for edge in edges]
        if table.size <= MOST_CELLS:
            medians = peers_medians(table)
            table -= medians
            return _Compared(estimated([table[:, cut].mean(axis=1) for cut in cuts]), medians.mean(axis=1))
        means, usual = [], np.zeros(len(self.ranks))
        for cut in cuts:
            part = table[:, cut]
            medians = peers_medians(part)
            usual += medians.sum(axis=1)
            means.append((part - medians).mean(axis=1))
        return _Compared(estimated(means), usual / len(self.common))


def _stand_out(excess: Estimates, step_ns: float, least_ns: Array | float = 0.0) -> set[int]:
    """The places of the ranks whose excess is noticeable, sure, and far from that of the others."""
    value, noticeable = excess.value, NOTICEABLE * step_ns
    # what comes and goes has a large error and yet is there in nearly every block
    sure = (value >= SIGMAS * excess.error) | (excess.least >= noticeable)
    sure = sure & (value >= noticeable) & (value >= least_ns)
    places = np.flatnonzero(sure).tolist()
    return {place for place in places if len(value) < 4 or value[place] >= OUTSTANDING * _spread(value, place)}


def _spread(value: Array, place: int) -> float:
    others = np.delete(value, place)
    return TO_SIGMA * float(np.median(np.abs(others - np.median(others))))


def _components(ranks: Sequence[RankSteps]) -> list[str]:
    """What a step's own time consists of, and what lies within it, where all ranks have it."""
    of_each = {tuple(_names(rank)) for rank in ranks}
    return [name for name in _names(ranks[0]) if all(name in names for names in of_each)]


def _names(rank_steps: RankSteps) -> list[str]:
    names = (
        [f"before {slot} {at}" for at, slot in enumerate(rank_steps.slots, 1)]
        if rank_steps.slots
        else list(rank_steps.own)
    )
    return names + [name for name in WITHIN if name in rank_steps.of_which]


def _component(rank_steps: RankSteps, name: str) -> Array:
    if name in WITHIN:
        return rank_steps.of_which[name]
    return rank_steps.gaps[name.rpartition(" ")[2]] if rank_steps.slots else rank_steps.own[name]


def _count(rank_steps: RankSteps, name: str) -> Array:
    return rank_steps.counts[name]


def _outstanding(name: str, compared: _Compared, step_ns: float) -> set[int]:
    if name == "cpu":
        return set()
    if name != "runnable":
        return _stand_out(compared.excess, step_ns)
    return _stand_out(
        compared.excess, step_ns, np.maximum(MORE_PREEMPTION * compared.usual, NOTICEABLE_PREEMPTION * step_ns)
    )
