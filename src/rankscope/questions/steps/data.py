"""The steps of a run as arrays, one set per rank: as recorded, or else as the log of collectives gives them away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.analyse.steps_recorded import recorded_steps
from rankscope.analyse.warmup import warmup_steps
from rankscope.model import Tables
from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.inferred import pattern_steps

Array = Any  # of numpy
TITLES = {
    "data": "data wait",
    "zero_grad": "zero_grad",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "checkpoint": "checkpoint",
    "compute": "compute",
    "other": "other",
    "exposed": "communication, exposed",
    "wait": "waiting for others",
    "transfer": "moving data",
    "hidden": "communication, hidden",
    "gc": "garbage collection",
    "runnable": "waiting for a CPU",
    "cpu": "CPU time of the thread",
    "process_cpu": "CPU time of the process",
}


@dataclass(slots=True)
class Steps:
    """All ranks' steps, and which of them are the steady ones."""

    ranks: list[RankSteps]  # in the order of ranks
    source: str  # "recorded", "pattern" or ""
    left_out: int = 0  # warm-up steps, by number: those before the first steady one
    first_steady: int = 0
    notes: list[str] = field(default_factory=list)

    def steady(self, one: RankSteps) -> Array:
        return one.number >= self.first_steady

    def pooled(self, ranks: Sequence[RankSteps], ask: Callable[[RankSteps], Array]) -> Array:
        """What the ranks answer of their steady steps, one after the other."""
        chosen = [self.steady(one) for one in ranks]
        made = np.empty(sum(int(mask.sum()) for mask in chosen))
        at = 0
        for one, mask in zip(ranks, chosen, strict=True):
            own = ask(one)[mask]
            made[at : at + len(own)] = own
            at += len(own)
        return made

    def common(self) -> Array:
        """The numbers of the steady steps that every rank has."""
        found = list({id(one.number): one.number for one in self.ranks}.values())
        shared = np.unique(found[0]) if found else np.zeros(0, np.int64)
        for numbers in found[1:]:
            shared = np.intersect1d(shared, numbers)
        return shared[shared >= self.first_steady]

    def between(self, first: int, last: int) -> Steps:
        """Only the steps of these numbers, all of them taken as steady."""
        return Steps([_cut(one, (one.number >= first) & (one.number <= last)) for one in self.ranks], self.source)


def _cut(one: RankSteps, kept: Array) -> RankSteps:
    values = {name: column[kept] for name, column in one.values.items()}
    return replace(one, number=one.number[kept], flagged=one.flagged[kept], values=values)


_KEPT: WeakKeyDictionary[Tables, Steps] = WeakKeyDictionary()


def steps_of(tables: Tables) -> Steps:
    """Worked out once for each run that is open."""
    if tables not in _KEPT:
        _KEPT[tables] = _steps_of(tables)
    return _KEPT[tables]


def _steps_of(tables: Tables) -> Steps:
    ranks = recorded_steps(tables)
    if ranks:
        made = Steps(ranks, "recorded", notes=_losses(tables))
    else:
        found, notes = pattern_steps(tables)
        made = Steps(found, "pattern" if found else "", notes=notes)
    if made.ranks:
        made.first_steady, made.left_out = _first_steady(made.ranks)
    return made


def _first_steady(ranks: list[RankSteps]) -> tuple[int, int]:
    """The number of the first steady step and how many before it are left out, judged by the slowest rank of each."""
    distinct = {id(one.number): one.number for one in ranks}
    numbers = np.unique(np.concatenate(list(distinct.values())))
    places = {key: np.searchsorted(numbers, own) for key, own in distinct.items()}
    longest, flagged = np.zeros(len(numbers)), np.zeros(len(numbers), bool)
    for one in ranks:
        at = places[id(one.number)]
        longest[at] = np.maximum(longest[at], one.length_ns)
        flagged[at] |= one.flagged
    left_out = warmup_steps(longest, flagged)
    return (int(numbers[left_out]) if left_out < len(numbers) else int(numbers[-1]) + 1), left_out


def _losses(tables: Tables) -> list[str]:
    sql = """SELECT text, list(rank ORDER BY rank) FROM notes JOIN ranks USING (process)
        WHERE role = 'rank' AND contains(text, 'steps were overwritten') GROUP BY text ORDER BY text"""
    return [f"Rank {', '.join(map(str, ranks[:8]))}: {text}." for text, ranks in tables.query(sql)]
