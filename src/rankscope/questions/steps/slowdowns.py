"""Since when are steps slower than before, by how much, and because of which rank, host or part?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.blocks import (
    LEAST_SPREAD,
    QUARTILES_APART,
    Bounds,
    RankBlocks,
    Span,
    blocks_of,
    joined,
    spans_of,
    sureness,
)
from rankscope.questions.steps.data import TITLES, Steps, steps_of
from rankscope.questions.wording import ranges, seconds

Array = Any  # of numpy

# ---------------------------------------------------------------- where does the level of a series change?
FEWEST = 10  # steps of a level
BOUND = 5.5  # standard deviations of a sum of steps
FARTHEST = 2.0  # spreads that a step counts as at most: a single long one is not a level
NOTICEABLE = 0.05  # of the level before
SPREADS = 0.6  # of the levels' own median absolute deviations
MOST_LEVELS = 64
BOUNDS = Bounds(BOUND, NOTICEABLE, SPREADS, MOST_LEVELS)
SHORTEST = 4 * FEWEST  # steps of a window
LONGEST_BLOCK, FEWEST_BLOCKS = 16, 25  # steps; neighbouring blocks tell how much steps resemble those before
MOST_ALIKE = 0.97  # the largest correlation of neighbours that is reckoned with


@dataclass(frozen=True, slots=True)
class Level:
    """Steps [first, last) of a series, of one typical length."""

    first: int
    last: int
    median: float


def levels_of(values: Array) -> list[Level]:
    """The series cut wherever its level changes for good or for a while; a single long step is as nothing to it."""
    series = _Series.of(values)
    edges = {0, len(values)}
    waiting = [(0, len(values))]
    while waiting and len(edges) < MOST_LEVELS:
        first, last = waiting.pop()
        at = _change_in(series, first, last)
        if at:
            edges.add(at)
            waiting += [(first, at), (at, last)]
    ordered = _placed(values, _settled(series, sorted(edges)))
    levels = [Level(a, b, float(np.median(values[a:b]))) for a, b in pairwise(ordered)]
    return _joined(values, levels)


@dataclass(frozen=True, slots=True)
class _Series:
    """Steps in multiples of how much single ones vary."""

    spreads: Array
    inertia: float  # how many times more sums of many steps vary than if each were independent of those before

    @classmethod
    def of(cls, values: Array) -> _Series:
        logs = np.log(np.maximum(values, 1))
        length = min(LONGEST_BLOCK, len(logs) // FEWEST_BLOCKS)
        if length < 2:
            return cls(logs / max(LEAST_SPREAD, _spread(np.diff(logs)) if len(logs) > 1 else 0.0), 1.0)
        scaled = logs / max(LEAST_SPREAD, _spread(logs[2 * length :] - logs[: -2 * length]))
        return cls(scaled, _inertia(scaled, length))

    def likeliest(self, first: int, last: int) -> tuple[int, float]:
        """Where between two steps the level changes, if it does, and how many times the bound that is: the sum of the
        steps before it, in its standard deviations where there is no change."""
        count = last - first
        if count < 2 * FEWEST:
            return 0, 0.0
        near = self.spreads[first:last]
        near = np.clip(near - np.median(near), -FARTHEST, FARTHEST)
        before = np.arange(FEWEST, count - FEWEST + 1)
        summed = np.abs(np.cumsum(near - near.mean())[before - 1])
        surely = summed / np.sqrt(before * (count - before) / count) / (BOUND * self.inertia)
        at = int(np.argmax(surely))
        return first + FEWEST + at, float(surely[at])


def _spread(differences: Array) -> float:
    """The standard deviation of what they are differences of, by most of them."""
    return float(np.median(np.abs(differences))) / 0.6745 / float(np.sqrt(2)) if len(differences) else 0.0


def _change_in(series: _Series, first: int, last: int) -> int:
    """Where the level changes most surely; 0: nowhere. A change that passes is lost in a long series: it is looked for
    in ever shorter windows, each overlapping the next by three quarters."""
    length = last - first
    while length >= SHORTEST or length == last - first:
        starts = {*range(first, last - length + 1, max(1, length // 4)), last - length}
        surely, at = max(series.likeliest(start, start + length)[::-1] for start in sorted(starts))
        if surely >= 1:
            return at
        length = int(length / 1.5)
    return 0


def _settled(series: _Series, edges: list[int]) -> list[int]:
    """Each edge where its two neighbours leave it; the least sure one goes while there is one below the bound."""
    for _ in range(MOST_LEVELS):
        for place in range(1, len(edges) - 1):
            at, _ = series.likeliest(edges[place - 1], edges[place + 1])
            edges[place] = at or edges[place]
        sure = [series.likeliest(a, b)[1] for a, b in zip(edges, edges[2:], strict=False)]
        if not sure or min(sure) >= 1:
            break
        del edges[sure.index(min(sure)) + 1]
    return edges


def _placed(values: Array, edges: list[int]) -> list[int]:
    """Each edge where the steps before it are nearest to the level before, and those after it to the level after: the
    order alone would take in what happens to be a little longer before a large change."""
    levels = [float(np.median(values[a:b])) for a, b in pairwise(edges)]
    placed = [0]
    for at, (before, after) in enumerate(pairwise(levels), 1):
        first, last = placed[-1], edges[at + 1]
        if before != after and last - first > 2 * FEWEST:
            near = np.clip((values[first:last] - (before + after) / 2) / (after - before), -0.5, 0.5)
            placed.append(first + FEWEST + int(np.argmin(np.cumsum(near)[FEWEST - 1 : last - first - FEWEST])))
        else:
            placed.append(edges[at])
    return [*placed, edges[-1]]


def _inertia(spreads: Array, length: int) -> float:
    """At least 1; told by the differences of neighbouring blocks, of which changes of level touch few: steps of which
    each resembles the one before so much (AR 1) are taken to go on so."""
    blocks = spreads[: len(spreads) // length * length].reshape(-1, length)
    pairs = np.concatenate([blocks[:-1], blocks[1:]], axis=1)
    near = np.clip(pairs - np.median(pairs, axis=1, keepdims=True), -FARTHEST, FARTHEST)
    ratio = _spread(near[:, :length].sum(axis=1) - near[:, length:].sum(axis=1)) / float(np.sqrt(length))
    alike = np.linspace(0, MOST_ALIKE, 98)
    correlation = float(np.interp(ratio, _ratios(alike, length), alike))
    return float(np.sqrt((1 + correlation) / (1 - correlation)))


def _ratios(alike: Array, length: int) -> Array:
    """What the differences of neighbouring sums of steps vary, as multiples of independent ones."""
    variance = length * (1 + alike) / (1 - alike) - 2 * alike * (1 - alike**length) / (1 - alike) ** 2
    shared = alike * ((1 - alike**length) / (1 - alike)) ** 2
    return np.maximum.accumulate(np.sqrt((variance - shared) / length))


def inertia_of(values: Array) -> float:
    """How many times more sums of neighbours vary than those of independent values, whatever the law of the values: by
    their places in the order of size, and by differences of neighbouring blocks, of which a change of level touches
    few; at least 1."""
    places = np.argsort(np.argsort(values, kind="stable"), kind="stable") - (len(values) - 1) / 2
    length = min(2 * LONGEST_BLOCK, len(places) // FEWEST_BLOCKS)
    if length < 2:
        return 1.0
    sums = places[: len(places) // length * length].reshape(-1, length).sum(axis=1)
    return max(1.0, _spread(np.diff(sums)) / float(np.sqrt(length)) / (len(places) / float(np.sqrt(12))))


def _joined(values: Array, levels: Sequence[Level]) -> list[Level]:
    """Neighbours that hardly differ are one level."""
    joined: list[Level] = []
    for level in levels:
        if joined and not _differs(values, joined[-1], level):
            first = joined.pop().first
            level = Level(first, level.last, float(np.median(values[first : level.last])))
        joined.append(level)
    return joined


def _differs(values: Array, before: Level, after: Level) -> bool:
    spread = max(
        1.4826 * float(np.median(np.abs(values[level.first : level.last] - level.median))) for level in (before, after)
    )
    by = abs(after.median - before.median)
    return by >= NOTICEABLE * before.median and by >= SPREADS * spread


# ---------------------------------------------------------------- who and what is it?
MOST = 0.5  # of the growth of a step: what a rank, or a part, must explain
AS_MUCH = 0.5  # of the growth of the rank that grew most: who is as slow
# in this order: where CPUs are scarce, who collects garbage waits for one meanwhile
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
        steps = steps_of(tables)
        _KEPT[tables] = list(_slowdowns(_Life.of(steps, blocks_of(tables) if steps.is_cut else {})))
    return _KEPT[tables]


@dataclass(frozen=True, slots=True)
class _Life:
    """All steps of the ranks but the warm-up: those that the rank files still hold one by one, and before them those
    that they hold in blocks."""

    ranks: Sequence[RankSteps]
    blocks: Sequence[RankBlocks]  # of the ranks; (): no step is in blocks only
    begin: int  # number of the first step that is in blocks only
    common: Array  # numbers of the steps that all ranks hold
    rows: Sequence[Array]  # of each rank: which of its steps those are

    @classmethod
    def of(cls, steps: Steps, blocks: Mapping[int, RankBlocks]) -> _Life:
        common = steps.common()
        rows = [np.searchsorted(rank_steps.number, common) for rank_steps in steps.ranks]
        known = [blocks[rank_steps.rank] for rank_steps in steps.ranks if rank_steps.rank in blocks]
        begin = max((int(of_rank.edges[0]) for of_rank in known), default=0)
        until = min((int(of_rank.edges[-1]) for of_rank in known), default=0)
        meets = len(known) == len(rows) and len(common) and begin + FEWEST <= common[0] <= until
        return cls(steps.ranks, known if meets else [], begin, common, rows)

    def levels(self) -> list[Span]:
        """Cut wherever the level changes."""
        lengths = np.median(
            [np.asarray(rank_steps.length_ns)[at] for rank_steps, at in zip(self.ranks, self.rows, strict=True)],
            axis=0,
        )
        last = self.common[-1] + 1
        numbers = np.append(self.common, last)
        held = [Span(int(numbers[a.first]), int(numbers[a.last]), a.median) for a in levels_of(lengths)]
        if not self.blocks:
            return held
        inertia = _Series.of(lengths).inertia
        earlier = spans_of(self.blocks, self.begin, int(self.common[0]), inertia, BOUNDS)
        first = replace(held[0], spread=_spread_of(lengths[: held[0].steps]))
        if sureness(earlier[-1], first, inertia, BOUNDS) < 1:
            return [*earlier[:-1], joined(earlier[-1], first), *held[1:]]
        return [*earlier, *held]

    def mean(self, rank: int, name: str, span: Span) -> float:
        """Of a step of one of the ranks, counted from 0."""
        a, b = np.searchsorted(self.common, (span.first, span.last))
        held = self._values(rank, name)[self.rows[rank]][a:b]
        until = min(span.last, int(self.common[0]))
        in_blocks = max(0, until - span.first) if self.blocks else 0
        if not in_blocks:
            return float(np.mean(held))
        before = self.blocks[rank].mean(name, span.first, until) * in_blocks
        return (before + float(np.sum(held))) / (in_blocks + len(held))

    def _values(self, rank: int, name: str) -> Array:
        rank_steps = self.ranks[rank]
        return rank_steps.own_ns if name == "own_ns" else np.asarray(rank_steps.values[name])

    def began_ns(self, number: int) -> int:
        """When the first rank began a step."""
        if self.blocks and number < self.common[0]:
            return self.blocks[0].began_ns(number)
        return int(np.asarray(self.ranks[0].begin_ns)[self.rows[0][np.searchsorted(self.common, number)]])


def _spread_of(lengths: Array) -> float:
    """Of single steps, as a share."""
    low, high = np.quantile(np.maximum(lengths, 1.0), (0.25, 0.75))
    return max(LEAST_SPREAD, float(np.log(high / low)) / QUARTILES_APART)


def _slowdowns(life: _Life) -> Iterator[Slowdown]:
    if len(life.common) < 2 * FEWEST or not life.ranks:
        return
    levels = life.levels()
    usual = levels[0]
    for at, level in enumerate(levels[1:], 1):
        if level.median <= usual.median * (1 + NOTICEABLE):
            usual = _reference(usual, level)
            continue
        yield replace(
            _told(life, usual, level),
            first=level.first,
            last=level.last - 1,
            goes_on=at == len(levels) - 1,
            since_ns=life.began_ns(level.first),
        )


def _reference(usual: Span, level: Span) -> Span:
    """What later levels are compared with: this one where it is clearly faster, else the longer of the two, so that
    many small differences do not add up."""
    is_faster = level.median < usual.median * (1 - NOTICEABLE)
    return level if is_faster or level.steps > usual.steps else usual


def _told(life: _Life, before: Span, after: Span) -> Slowdown:
    """Whose own time grew, in which part; else it is communication."""

    def growth(at: int, name: str) -> float:
        return life.mean(at, name, after) - life.mean(at, name, before)

    ranks = life.ranks
    grew_by = after.median - before.median
    held_up = [_held_up(rank_steps, partial(growth, at)) for at, rank_steps in enumerate(ranks)]
    slowdown = Slowdown(0, 0, False, 0, before.median, after.median, (), "", TITLES["exposed"], grew_by)
    most = max(held_up)
    if most < MOST * grew_by:
        return slowdown
    slow = [at for at, value in enumerate(held_up) if value >= AS_MUCH * most]
    parts = {name: median(growth(at, f"own {name}") for at in slow) for name in ranks[slow[0]].own}
    longest = max(parts, key=lambda name: parts[name])
    shown, grew_ns = TITLES.get(longest, longest), parts[longest]
    for name, title in WITHIN.items():
        if all(name in ranks[at].of_which for at in slow):
            inside = median(growth(at, f"of which {name}") for at in slow)
            if inside >= MOST * most:
                shown, grew_ns = title, inside
                break
    slowdown = replace(slowdown, part=shown, grew_ns=grew_ns)
    if len(slow) >= max(2, EVERYWHERE * len(ranks)):
        return slowdown
    hosts = {ranks[at].host for at in slow}
    is_host = len(slow) > 1 and len(hosts) == 1 and sum(rank_steps.host in hosts for rank_steps in ranks) == len(slow)
    return replace(slowdown, ranks=tuple(ranks[at].rank for at in slow), host=hosts.pop() if is_host else "")


def _held_up(rank_steps: RankSteps, growth: Callable[[str], float]) -> float:
    """By itself: longer outside collectives, or without a CPU, which it also waits for to leave a collective."""
    without_cpu = growth("of which runnable") if "runnable" in rank_steps.of_which else 0.0
    return max(growth("own_ns"), without_cpu)


# ---------------------------------------------------------------- the table
SLOWDOWN_COLUMNS = (
    Column("step", Unit.NUMBER, "Since step", "number of the first slower step"),
    Column("until", Unit.NUMBER, "Until step", "number of the last one"),
    Column("goes_on", Unit.NAME, "Ongoing", "yes where the last step of the run is one of them"),
    Column("since", Unit.NAME, "Since (UTC)", "when that step began"),
    Column("before_ns", Unit.NS, "Step before", "median step of the last level that was not slower"),
    Column("after_ns", Unit.NS, "Step since", "median step of the slower ones; median of the ranks in each step"),
    Column("share", Unit.SHARE, "Longer by", "(`after_ns` − `before_ns`) ÷ `before_ns`; may be above 1"),
    Column("who", Unit.NAME, "Who", "ranks whose own time grew, or their host where they are all of its ranks; or all"),
    Column(
        "part",
        Unit.NAME,
        "What",
        "the part of the step that grew most on them, garbage collection or waiting for a CPU where those explain half "
        "of it, or exposed communication where no rank's own time explains half of the growth",
    ),
    Column(
        "grew_ns", Unit.NS, "Grew by", "growth of `part` per step: mean since, less mean before; median of the ranks"
    ),
    Column("lost_ns", Unit.NS, "Lost", "(`after_ns` − `before_ns`) × steps"),
)


def slowdowns(tables: Tables, selection: Selection = ALL) -> Table:
    """Stretches of steps that are slower than those before, with who and what is slower."""
    table = Table("slowdowns", "Slow-downs", SLOWDOWN_COLUMNS, [])
    table.rows = [row_of(slowdown) for slowdown in slowdowns_of(tables)]
    return arranged(table, selection)


def row_of(slowdown: Slowdown) -> tuple[Cell, ...]:
    """As the table has it."""
    since = str(np.datetime64(slowdown.since_ns, "ns").astype("datetime64[s]")).replace("T", " ")
    share = (slowdown.after_ns - slowdown.before_ns) / slowdown.before_ns if slowdown.before_ns else None
    who = (
        f"host {slowdown.host}"
        if slowdown.host
        else f"rank {ranges(slowdown.ranks)}"
        if slowdown.ranks
        else "all ranks"
    )
    goes_on = "yes" if slowdown.goes_on else "no"
    return (
        *(slowdown.first, slowdown.last, goes_on, since, slowdown.before_ns, slowdown.after_ns, share),
        *(who, slowdown.part, slowdown.grew_ns, slowdown.lost_ns),
    )


def slowdown_sentence(slow: Slowdown) -> str:
    """In one sentence."""
    who = str(row_of(slow)[7])
    span = f"since step {slow.first}" if slow.goes_on else f"from step {slow.first} to {slow.last}"
    grown = (slow.after_ns - slow.before_ns) / slow.before_ns if slow.before_ns else 0.0
    return (
        f"Steps take {seconds(slow.after_ns)} instead of {seconds(slow.before_ns)} {span} (+{100 * grown:.0f} %): "
        f"{slow.part} of {who}, +{seconds(slow.grew_ns)} per step"
    )
