"""Since when are steps slower than before, by how much, and because of which rank, host or part?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.data import TITLES, Steps, steps_of
from rankscope.questions.wording import ranges

Array = Any  # of numpy

# ---------------------------------------------------------------- where does the level of a series change?
FEWEST = 10  # steps of a level
BOUND = 3.0  # of the largest distance of a Brownian bridge from 0: exceeded by chance once in 33 million
NOTICEABLE = 0.05  # of the level before
SPREADS = 1.0  # of the levels' own median absolute deviations
MOST_LEVELS = 64
LONGEST_BLOCK, FEWEST_BLOCKS = 32, 25  # steps: those farther apart are taken to be independent
SHORTEST = 60  # steps of a window: in fewer even the clearest change stays below the bound


@dataclass(frozen=True, slots=True)
class Level:
    """Steps [first, last) of a series, of one typical length."""

    first: int
    last: int
    median: float


def levels_of(values: Array) -> list[Level]:
    """The series cut wherever its level changes for good or for a while; by ranks of the values, so that single long
    steps are nothing to it."""
    edges = {0, len(values)}
    inertia = inertia_of(values)
    waiting = [(0, len(values))]
    while waiting and len(edges) < MOST_LEVELS:
        first, last = waiting.pop()
        at = _change_in(values[first:last], inertia)
        if at:
            edges.add(first + at)
            waiting += [(first, first + at), (first + at, last)]
    ordered = sorted(edges)
    made = [Level(a, b, float(np.median(values[a:b]))) for a, b in pairwise(ordered)]
    return _joined(values, made)


def _change_in(values: Array, inertia: float) -> int:
    """Where the level changes most surely; 0: nowhere. A change that passes is lost in a long series: it is looked for
    in ever shorter windows, each overlapping the next by half."""
    length = len(values)
    while length >= SHORTEST or length == len(values):
        found = [
            (surely, first + at)
            for first in range(0, len(values) - length // 2, max(1, length // 2))
            for at, surely in [_change_in_window(values[first : first + length], inertia)]
            if at
        ]
        if found:
            return max(found)[1]
        length //= 2
    return 0


def _change_in_window(values: Array, inertia: float) -> tuple[int, float]:
    """Where, 0 for nowhere, and how many times the bound it is."""
    count = len(values)
    if count < 2 * FEWEST:
        return 0, 0.0
    summed = np.cumsum(_places(values))[FEWEST - 1 : count - FEWEST]
    at = int(np.argmax(np.abs(summed)))
    surely = float(abs(summed[at]) / (BOUND * inertia * _independent(count) * np.sqrt(count)))
    return (at + FEWEST, surely) if surely >= 1 else (0, 0.0)


def _places(values: Array) -> Array:
    """In the order of size, around 0."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable") - (len(values) - 1) / 2


def _independent(count: int) -> float:
    """The standard deviation of so many places."""
    return count / float(np.sqrt(12))


def inertia_of(values: Array) -> float:
    """How many times more sums of neighbours vary than those of independent values, whatever the law of the values."""
    return _inertia(_places(values))


def _inertia(places: Array) -> float:
    """How many times more sums of neighbours vary than if each step were independent of those before; at least 1. By
    differences of neighbouring blocks, of which a change of level touches few."""
    length = min(LONGEST_BLOCK, len(places) // FEWEST_BLOCKS)
    if length < 2:
        return 1.0
    sums = places[: len(places) // length * length].reshape(-1, length).sum(axis=1)
    spread = float(np.median(np.abs(np.diff(sums)))) / 0.6745 / np.sqrt(2 * length)
    return max(1.0, float(spread) / _independent(len(places)))


def _joined(values: Array, levels: Sequence[Level]) -> list[Level]:
    """Neighbours that hardly differ are one level."""
    made: list[Level] = []
    for level in levels:
        if made and not _differs(values, made[-1], level):
            first = made.pop().first
            level = Level(first, level.last, float(np.median(values[first : level.last])))
        made.append(level)
    return made


def _differs(values: Array, before: Level, after: Level) -> bool:
    spread = max(
        1.4826 * float(np.median(np.abs(values[one.first : one.last] - one.median))) for one in (before, after)
    )
    by = abs(after.median - before.median)
    return by >= NOTICEABLE * before.median and by >= SPREADS * spread


# ---------------------------------------------------------------- who and what is it?
MOST = 0.5  # of the growth of a step: what a rank, or a part, must explain
AS_MUCH = 0.5  # of the growth of the rank that grew most: who is as slow
WITHIN = {"gc": "garbage collection", "runnable": "waiting for a CPU"}
EVERYWHERE = 0.75  # of the ranks: no single one is to blame


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Steps that took longer than those before them."""

    first: int  # its number
    last: int
    goes_on: bool  # until the last step that there is
    since_ns: int  # Unix time
    before_ns: float
    after_ns: float
    ranks: tuple[int, ...]  # (): all, or none in particular
    host: str  # "": not one host
    part: str
    grew_ns: float  # that part, a step

    @property
    def steps(self) -> int:
        return self.last - self.first + 1

    @property
    def lost_ns(self) -> float:
        return (self.after_ns - self.before_ns) * self.steps


_KEPT: WeakKeyDictionary[Tables, list[Slowdown]] = WeakKeyDictionary()


def slowdowns_of(tables: Tables) -> list[Slowdown]:
    """In the order of time; worked out once for each run that is open."""
    if tables not in _KEPT:
        _KEPT[tables] = list(_slowdowns(steps_of(tables)))
    return _KEPT[tables]


def _slowdowns(found: Steps) -> Iterator[Slowdown]:
    common = found.common()
    if len(common) < 2 * FEWEST or not found.ranks:
        return
    rows: list[Array] = [np.searchsorted(one.number, common) for one in found.ranks]
    lengths = np.median(
        np.stack([np.asarray(one.length_ns)[at] for one, at in zip(found.ranks, rows, strict=True)]), axis=0
    )
    levels = levels_of(lengths)
    usual = levels[0]
    for at, level in enumerate(levels[1:], 1):
        if level.median <= usual.median * (1 + NOTICEABLE):
            usual = level  # as fast as before, or faster: later ones are compared with it
            continue
        told = _told(found.ranks, rows, usual, level)
        begin = int(np.asarray(found.ranks[0].begin_ns)[rows[0][level.first]])
        yield replace(
            told,
            first=int(common[level.first]),
            last=int(common[level.last - 1]),
            goes_on=at == len(levels) - 1,
            since_ns=begin,
        )


def _told(ranks: Sequence[RankSteps], rows: Sequence[Array], before: Level, after: Level) -> Slowdown:
    """Whose own time grew, in which part; else it is communication."""

    def growth(values: Array, at: Array) -> float:
        chosen = np.asarray(values)[at]
        return float(np.mean(chosen[after.first : after.last]) - np.mean(chosen[before.first : before.last]))

    grew_by = after.median - before.median
    own = [growth(one.own_ns, at) for one, at in zip(ranks, rows, strict=True)]
    made = Slowdown(0, 0, False, 0, before.median, after.median, (), "", TITLES["exposed"], grew_by)
    most = max(own)
    if most < MOST * grew_by:
        return made
    slow = [at for at, value in enumerate(own) if value >= AS_MUCH * most]
    parts = {name: median(growth(ranks[at].own[name], rows[at]) for at in slow) for name in ranks[slow[0]].own}
    longest = max(parts, key=lambda name: parts[name])
    shown, grew_ns = TITLES.get(longest, longest), parts[longest]
    for name, title in WITHIN.items():
        if all(name in ranks[at].of_which for at in slow):
            inside = median(growth(ranks[at].of_which[name], rows[at]) for at in slow)
            if inside >= MOST * most:
                shown, grew_ns = title, inside
    made = replace(made, part=shown, grew_ns=grew_ns)
    if len(slow) >= max(2, EVERYWHERE * len(ranks)):
        return made
    hosts = {ranks[at].host for at in slow}
    is_host = len(slow) > 1 and len(hosts) == 1 and sum(one.host in hosts for one in ranks) == len(slow)
    return replace(made, ranks=tuple(ranks[at].rank for at in slow), host=hosts.pop() if is_host else "")


# ---------------------------------------------------------------- the table
SLOWDOWN_COLUMNS = (
    Column("step", Unit.NUMBER, "Since step", "number of the first slower step"),
    Column("until", Unit.NUMBER, "Until step", "number of the last one"),
    Column("goes_on", Unit.NAME, "Goes on", "yes where the last step of the run is one of them"),
    Column("since", Unit.NAME, "Since (UTC)", "when that step began"),
    Column("before_ns", Unit.NS, "Step before", "median step of the last level that was not slower"),
    Column("after_ns", Unit.NS, "Step since", "median step of the slower ones; median of the ranks in each step"),
    Column("share", Unit.SHARE, "Longer by", "(`after_ns` − `before_ns`) ÷ `before_ns`"),
    Column("who", Unit.NAME, "Who", "ranks whose own time grew, or their host where they are all of its ranks; or all"),
    Column(
        "part",
        Unit.NAME,
        "What",
        "the part of the step that grew most on them, garbage collection or waiting for a CPU where those explain half "
        "of it, or exposed communication where no rank's own time explains half of the growth",
    ),
    Column("grew_ns", Unit.NS, "Grew by", "growth of `part` a step: mean since, less mean before; median of the ranks"),
    Column("lost_ns", Unit.NS, "Lost", "(`after_ns` − `before_ns`) × steps"),
)


def slowdowns(tables: Tables, selection: Selection = ALL) -> Table:
    """Stretches of steps that are slower than those before, with who and what is slower."""
    table = Table("slowdowns", "Slow-downs", SLOWDOWN_COLUMNS, [])
    table.rows = [row_of(one) for one in slowdowns_of(tables)]
    return arranged(table, selection)


def row_of(one: Slowdown) -> tuple[Cell, ...]:
    """As the table has it."""
    since = str(np.datetime64(one.since_ns, "ns").astype("datetime64[s]")).replace("T", " ")
    share = (one.after_ns - one.before_ns) / one.before_ns if one.before_ns else None
    who = f"host {one.host}" if one.host else f"rank {ranges(one.ranks)}" if one.ranks else "all ranks"
    goes_on = "yes" if one.goes_on else "no"
    return (
        *(one.first, one.last, goes_on, since, one.before_ns, one.after_ns, share),
        *(who, one.part, one.grew_ns, one.lost_ns),
    )


def told(one: Slowdown) -> str:
    """In one sentence."""
    who = str(row_of(one)[7])
    span = f"since step {one.first}" if one.goes_on else f"from step {one.first} to {one.last}"
    grown = (one.after_ns - one.before_ns) / one.before_ns if one.before_ns else 0.0
    return (
        f"Steps take {one.after_ns / 1e6:.4g} ms instead of {one.before_ns / 1e6:.4g} ms {span} (+{grown:.0%}): "
        f"{one.part} of {who}, +{one.grew_ns / 1e6:.3g} ms a step"
    )
