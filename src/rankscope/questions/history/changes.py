"""Where does the level of a series of runs change, by how much, and how sure is that?

Every window of a fixed, overlapping family (seeded intervals: Kovács et al. 2023) is cut where the rank sums of its two
sides differ most; of those whose difference can hardly be chance the shortest comes first (narrowest over threshold:
Baranowski et al. 2019). Ranks know no law of the noise, and single slow runs count as one each. A change counts only
where it is larger than what the level of its series does by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import erfc, exp, lgamma, log, log2, pi, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from rankscope.questions.compare.resampling import changes_of
from rankscope.questions.steps.slowdowns import inertia_of

Array = Any  # of numpy
FEWEST = 4  # runs on each side of a change
SURE = 0.05  # chance of one false change anywhere in the table
NOTICEABLE = 0.03  # of the level before
MOST_PAIRED = 200  # runs of each side that give the interval: those next to the change
EXACT_UP_TO = 12  # runs of the smaller side: of more the normal law errs on the safe side
LEAST_Z = 3.2  # less is never sure
NEARBY = 6  # runs around the place that ranks show
BY_ITSELF = 3.0  # standard deviations of what the level of a series does without any change
SHORTEST_BLOCK = 16  # runs: what differs from one to the next is noise
FEWEST_BLOCKS = 8  # of a series, to tell how far its level wanders
NEARLY_AS_LIKELY = 3.0  # logarithm of how much less likely a place is that may be the right one
BY_CHANCE = 1.2  # what the inertia of independent runs seldom exceeds: it is estimated from 25 to 31 blocks
SEED = 20_240_229  # the same input gives the same answer
NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Change:
    """From run `at` on (by its place in the series) the level is another."""

    at: int
    until: int  # the place after the last run of the new level
    begins: int  # the first run of the level before
    chance: float  # of such a difference anywhere in this series if nothing had changed
    before: float  # medians
    after: float
    low: float  # 95 % interval of after ÷ before − 1
    high: float
    earliest: int  # places that are nearly as likely as `at`
    latest: int
    gradual: bool = False  # a line describes it better than a step: `at` is where it has become sure

    @property
    def share(self) -> float:
        return float(changes_of(np.float64(self.before), np.float64(self.after)))


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of the series with the place in it that parts it best."""

    first: int
    last: int
    at: int
    chance: float


def level_changes(values: Array, tests: int = 1, least: float = 0.0) -> list[Change]:
    """The changes of a series that are sure although `tests` series are looked at, and not smaller than `least`."""
    count = len(values)
    if count < 2 * FEWEST or float(np.ptp(values)) == 0:
        return []
    carried = max(1.0, inertia_of(values) / BY_CHANCE)
    bound = SURE / tests
    windows = [window for window in _windows(values, carried) if window.chance <= bound]
    edges = _kept(values, _refined(values, _narrowest(windows)), least)
    changes = [
        _change(values, (first, at, last), _chance_at(windows, first, at, last, bound), carried)
        for first, at, last in zip(edges, edges[1:], edges[2:], strict=False)
    ]
    return list(_joined(values, changes, carried))


# ---------------------------------------------------------------- windows
def _windows(values: Array, carried: float) -> Iterator[Window]:
    count = len(values)
    factor = comparisons(count)
    for length in _lengths(count):
        starts = _starts(count, length)
        sums, scores = _scores(values[starts[:, None] + np.arange(length)])
        best = np.argmax(scores, axis=1)
        rows = np.arange(len(starts))
        for row in np.flatnonzero(scores[rows, best] >= LEAST_Z):
            left = int(best[row]) + FEWEST
            chance = rank_sum_chance(left, length - left, float(sums[row, best[row]]), carried)
            first = int(starts[row])
            yield Window(first, first + length, first + left, min(1.0, factor * chance))


@lru_cache(maxsize=4096)
def _starts(count: int, length: int) -> Array:
    """Of windows of that length, each of which overlaps the next by half."""
    return np.unique(np.linspace(0, count - length, 2 * -(-count // length) - 1).round().astype(np.int64))


def _lengths(count: int) -> list[int]:
    """From the whole series down to the fewest runs that can show a change, each by the root of 2 shorter."""
    lengths, length = [], float(count)
    while length >= 2 * FEWEST:
        lengths.append(round(length))
        length /= sqrt(2)
    return lengths


def _scores(windows: Array) -> tuple[Array, Array]:
    """Of each window and each place to cut it: the rank sum of the left side around 0, and its distance from 0 in
    standard deviations. Equal values are put in an order of their own, or they would seem to grow."""
    length = windows.shape[1]
    shuffled, spread = _order(length)
    order = np.argsort(windows[:, shuffled], axis=1)
    ranks = np.empty(order.shape)
    ranks[np.arange(len(order))[:, None], shuffled[order]] = np.arange(length) - (length - 1) / 2
    sums = np.cumsum(ranks, axis=1)[:, FEWEST - 1 : length - FEWEST]
    return sums, np.abs(sums) / spread


@lru_cache(maxsize=1024)
def _order(length: int) -> tuple[Array, Array]:
    """An order of so many places that has nothing to do with time, and the standard deviation of the rank sum of each
    left side."""
    cut = np.arange(FEWEST, length - FEWEST + 1)
    return np.random.default_rng(SEED).permutation(length), np.sqrt(cut * (length - cut) * (length + 1) / 12)


def rank_sum_chance(left: int, right: int, centred: float, carried: float = 1.0) -> float:
    """The chance of a rank sum this far from its middle (Mann and Whitney, two-sided), where neighbours are alike:
    `carried` times less far."""
    pairs = left * right
    score = abs(centred) / sqrt(pairs * (left + right + 1) / 12)
    chance = erfc(score / sqrt(2))
    wrong = int(pairs / 2 - abs(centred) + 0.5)
    if min(left, right) <= EXACT_UP_TO and chance < 0.2:
        chance = min(1.0, 2 * _few_wrong(min(left, right), max(left, right), wrong))
    if carried > 1.0 and 0 < chance < 1:
        chance = erfc(-NORMAL.inv_cdf(max(chance / 2, 1e-300)) / carried / sqrt(2))
    return chance


@lru_cache(maxsize=4096)
def _few_wrong(few: int, many: int, wrong: int) -> float:
    """The chance of at most so many pairs in the wrong order: coefficients of the Gaussian binomial, up to there."""
    ways = np.zeros(wrong + 1)
    ways[0] = 1.0
    for size in range(1, few + 1):
        if many + size <= wrong:
            ways[many + size :] -= ways[: -(many + size)].copy()
        for begin in range(min(size, wrong + 1)):
            ways[begin::size] = np.cumsum(ways[begin::size])
    all_ways = lgamma(few + many + 1) - lgamma(few + 1) - lgamma(many + 1)
    return exp(min(0.0, log(max(float(ways.sum()), 1.0)) - all_ways))


def comparisons(count: int) -> float:
    """How many independent comparisons all windows of so many runs are worth: about what simulated series of
    independent runs gave (100 runs: 207, this 266; 400: 1,159 and 1,383; 1,000: 4,051, of few series, and 3,986)."""
    return 0.4 * count * log2(count)


# ---------------------------------------------------------------- from windows to changes
def _narrowest(windows: Sequence[Window]) -> list[int]:
    """The places of the shortest windows first; a window around a place that is known tells nothing new."""
    places: list[int] = []
    for window in sorted(windows, key=lambda window: (window.last - window.first, window.chance, window.first)):
        if not any(window.first < at < window.last for at in places):
            places.append(window.at)
    return sorted(places)


def _refined(values: Array, places: Sequence[int]) -> list[int]:
    """Each where all runs between its neighbours part best; with the ends of the series."""
    edges = [0, *places, len(values)]
    for place in range(1, len(edges) - 1):
        first, last = edges[place - 1], edges[place + 1]
        if last - first >= 2 * FEWEST:
            _, scores = _scores(values[None, first:last])
            edges[place] = _closest(values, first, first + FEWEST + int(np.argmax(scores[0])), last)
    return edges


def _closest(values: Array, first: int, at: int, last: int) -> int:
    """Of the places nearby the one with the least distances from the medians of both sides: ranks know of a run that
    it is slow, not that it is far slower than the new level."""
    nearby = range(max(first + FEWEST, at - NEARBY), min(last - FEWEST, at + NEARBY) + 1)

    def beside(cut: int) -> float:
        left, right = values[first:cut], values[cut:last]
        return float(np.abs(left - np.median(left)).sum() + np.abs(right - np.median(right)).sum())

    return min(nearby, key=lambda cut: (beside(cut), abs(cut - at)), default=at)


def _kept(values: Array, edges: list[int], least: float) -> list[int]:
    """Without changes that nobody would notice or that the level makes by itself, the smallest first: what is left may
    be larger then."""
    wander = Wander(values)
    while len(edges) > 2:
        levels = [float(np.median(values[first:last])) for first, last in pairwise(edges)]
        heights = [abs(after - before) for before, after in pairwise(levels)]
        sizes = []
        for place, (height, before) in enumerate(zip(heights, levels, strict=False)):
            larger = [edges[other + 1] for other, high in enumerate(heights) if high > height]
            lengths = edges[place + 1] - edges[place], edges[place + 2] - edges[place + 1]
            by_itself = BY_ITSELF * wander.share(*lengths, larger) * (before + levels[place + 1]) / 2
            sizes.append(height / max(NOTICEABLE * before, least, by_itself, 1e-300))
        smallest = int(np.argmin(sizes))
        if sizes[smallest] >= 1:
            break
        del edges[smallest + 1]
    return edges


class Wander:
    """By what share the levels of neighbouring stretches of a series differ where nothing has changed.

    Medians of neighbouring blocks differ by the noise of single runs, the less the longer they are, and by what the
    level does slowly, which longer blocks do not even out. That can be told only of many blocks."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self.noise = _deviation(_shares(values[:-1], values[1:])) ** 2 / 2  # variance of one run
        self.shares: dict[int, tuple[Array, Array]] = {}  # by length: where two blocks begin, how they differ

    def share(self, left: int, right: int, changes: Sequence[int]) -> float:
        """Standard deviation of it for stretches of so many runs; `changes` are known to be some."""
        slow, length = 0.0, SHORTEST_BLOCK
        while length <= min(left, right, len(self.values) // FEWEST_BLOCKS):
            begins, shares = self._of_length(length)
            apart = np.ones(len(begins), bool)
            for at in changes:
                apart &= (begins + 2 * length <= at) | (begins >= at)
            if np.count_nonzero(apart) >= FEWEST_BLOCKS:
                slow = max(slow, _deviation(shares[apart]) ** 2 - self._by_noise(length, length))
            length = round(length * sqrt(2))
        return sqrt(slow + self._by_noise(left, right))

    def _by_noise(self, left: int, right: int) -> float:
        return self.noise * pi / 2 * (1 / left + 1 / right)  # medians of a normal law

    def _of_length(self, length: int) -> tuple[Array, Array]:
        if length not in self.shares:
            step = max(1, length // SHORTEST_BLOCK)
            windows = np.lib.stride_tricks.sliding_window_view(self.values, length)[::step]
            medians, ahead = np.median(windows, axis=1), -(-length // step)
            begins = np.arange(0, len(medians) - ahead) * step
            self.shares[length] = begins, _shares(medians[:-ahead], medians[ahead:])
        return self.shares[length]


def _shares(before: Array, after: Array) -> Array:
    """Differences as shares of the middle of both."""
    return (after - before) / np.maximum((np.abs(before) + np.abs(after)) / 2, 1e-300)


def _deviation(differences: Array) -> float:
    """The standard deviation of differences around 0, whatever a few of them are."""
    return 1.4826 * float(np.median(np.abs(differences)))


def _chance_at(windows: Sequence[Window], first: int, at: int, last: int, otherwise: float) -> float:
    """Of the window between the neighbouring changes that is surest about this one."""
    inside = [window.chance for window in windows if first <= window.first < at < window.last <= last]
    around = [window.chance for window in windows if window.first < at < window.last]
    return min(inside or around, default=otherwise)


def _change(values: Array, edges: tuple[int, int, int], chance: float, carried: float) -> Change:
    first, at, last = edges
    before, after = values[first:at], values[at:last]
    low, high = interval(before, after, carried)
    middles = float(np.median(before)), float(np.median(after))
    return Change(at, last, first, chance, *middles, low, high, *_likely_places(values, edges, *middles))


def _likely_places(values: Array, edges: tuple[int, int, int], before: float, after: float) -> tuple[int, int]:
    """The first and the last place with both levels that is nearly as likely, where distances follow Laplace's law."""
    first, at, last = edges
    left, right = np.abs(values[first:last] - before), np.abs(values[first:last] - after)
    distances = np.concatenate([[0.0], np.cumsum(left - right)]) + right.sum()  # of a change at each place
    scale = max(float(distances.min()) / (last - first), 1e-300)
    likely = first + np.flatnonzero(distances - distances.min() <= NEARLY_AS_LIKELY * scale)
    return min(at, int(likely[0])), max(at, int(likely[-1]))


def interval(before: Array, after: Array, carried: float = 1.0) -> tuple[float, float]:
    """95 % interval of after ÷ before − 1 from all pairs of runs near the change (Hodges and Lehmann)."""
    left, right = before[-MOST_PAIRED:], after[:MOST_PAIRED]
    ratios = np.sort(changes_of(left[:, None], right[None, :]), axis=None)
    pairs = len(left) * len(right)
    spread = 1.96 * carried * sqrt(pairs * (len(left) + len(right) + 1) / 12)
    outside = max(0, min(int(pairs / 2 - spread) - 1, (pairs - 1) // 2))
    middle = float(changes_of(np.median(before), np.median(after)))
    return min(middle, float(ratios[outside])), max(middle, float(ratios[-1 - outside]))


# ---------------------------------------------------------------- steps or a line?
def _joined(values: Array, changes: Sequence[Change], carried: float) -> Iterator[Change]:
    """Changes in the same direction, one after the other, are one gradual change where a line describes them better."""
    at = 0
    while at < len(changes):
        end = at + 1
        while end < len(changes) and (changes[end].share > 0) == (changes[at].share > 0):
            end += 1
        some = changes[at:end]
        yield from [_as_line(values, some, carried)] if _is_line(values, some) else some
        at = end


def _is_line(values: Array, some: Sequence[Change]) -> bool:
    """By the sums of distances, each with what its number of parameters is worth (BIC of Laplace's law)."""
    first, last = some[0].begins, some[-1].until
    edges = [first, *(change.at for change in some), last]
    stairs = sum(float(np.abs(values[a:b] - np.median(values[a:b])).sum()) for a, b in pairwise(edges))
    line = _beside_line(values[first:last])
    count = last - first
    return 2 * count * log(max(line, 1e-300)) + 2 * log(count) < 2 * count * log(max(stairs, 1e-300)) + (
        1 + 2 * len(some)
    ) * log(count)


def _beside_line(values: Array) -> float:
    """Sum of distances from a line with the median slope of all pairs (Theil and Sen), of many runs some."""
    x = np.linspace(0, len(values) - 1, min(len(values), MOST_PAIRED)).round().astype(np.int64)
    rise, run = values[x][None, :] - values[x][:, None], x[None, :] - x[:, None]
    line = float(np.median(rise[run > 0] / run[run > 0])) * np.arange(len(values))
    return float(np.abs(values - line - np.median(values - line)).sum())


def _as_line(values: Array, some: Sequence[Change], carried: float) -> Change:
    """From its first run to its last: the outer quarters are compared."""
    first, last = some[0].begins, some[-1].until
    quarter = max(FEWEST, (last - first) // 4)
    before, after = values[first : first + quarter], values[last - quarter : last]
    low, high = interval(before, after, carried)
    chance = min(change.chance for change in some)
    middles = float(np.median(before)), float(np.median(after))
    return Change(some[0].at, last, first, chance, *middles, low, high, first, last, gradual=True)
