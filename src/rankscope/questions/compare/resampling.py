"""How sure is a difference? By exchanging repeats, by all pairs of repeats, and by drawing blocks of steps again.

Repeats: under the hypothesis that nothing changed, which run belongs to which side is arbitrary, so the difference seen
is held against those of other ways to share out the same runs. That needs no law of the noise. One such exchange is
made for all metrics at once and the largest of their differences counts, so that a false alarm anywhere in the table is
as rare as one in a single test (Westfall and Young 1993, step-down).

Pairs: every run of one side over every run of the other is a guess at the change. How many of them lie on the wrong
side of the true change is known without any law of the noise (Mann and Whitney 1947), which gives a single metric its
interval, and a test that agrees with that interval.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

Array = Any
SEED = 20_240_229  # the same input gives the same answer
EXCHANGES = 1_000
DRAWS = 1_000
KEPT = 0.8  # of the repeats: one disturbed run in five changes nothing
FEWEST_PACED = 4  # fewer tell no pace of a run
SMALLEST = 1e-3  # of a metric's median: what is less counts as this
TINY = 1e-9


def shift(first: Array, second: Array) -> Array:
    """The typical difference of two sides in units of the spread within them; repeats along the last axis.

    The median of all differences between a run of one and a run of the other (Hodges and Lehmann), over the root mean
    square of the smallest four fifths of the distances from the sides' medians: single disturbed runs move neither.
    """
    differences = second[..., :, None] - first[..., None, :]
    middle = np.median(differences.reshape(*differences.shape[:-2], -1), axis=-1)
    distances = [np.abs(side - np.median(side, axis=-1, keepdims=True)) for side in (first, second)]
    ordered = np.sort(np.concatenate(distances, axis=-1), axis=-1)
    central = ordered[..., : max(2, int(KEPT * ordered.shape[-1]))]
    return middle / np.maximum(np.sqrt((central**2).mean(axis=-1)), TINY)


def exchanges(first: int, second: int) -> Array:
    """Ways to share out the repeats: all of them where they are few, else drawn; each the first side's places."""
    total = first + second
    if comb(total, first) <= EXCHANGES:
        return np.array(list(combinations(range(total), first)))
    random = np.random.default_rng(SEED)
    return np.argsort(random.random((EXCHANGES, total)), axis=1)[:, :first]


def chances(first: Array, second: Array, paced: Array | None = None) -> Array:
    """For each metric (rows) the chance of such a difference anywhere in the table if nothing had changed.

    `paced` says which of them go faster or slower with the run as a whole, as parts of the step do where the machine
    is slower or busy: those are judged as they are and by what they differ from the run's pace.
    """
    count, split = len(first), first.shape[1]
    pooled = np.concatenate([first, second], axis=1)
    middle = np.median(np.abs(pooled), axis=1, keepdims=True)
    pooled = pooled / np.where(middle > 0, middle, 1.0)
    rows = np.flatnonzero(paced) if paced is not None else np.zeros(0, int)
    if len(rows) >= FEWEST_PACED:
        pace = np.median(pooled[rows], axis=0)
        pooled = np.concatenate([pooled, pooled[rows] / np.where(pace > 0, pace, 1.0)])
    pooled = np.log(np.maximum(pooled, SMALLEST))  # so that times that vary manifold do not outshine all others
    probabilities = _chances(pooled, split)
    result = probabilities[:count]
    if len(probabilities) > count:
        moved = np.sign(shift(pooled[:, :split], pooled[:, split:]))
        agree = moved[rows] == moved[count:]  # slower only in comparison with all else is not slower
        result[rows] = np.where(agree, np.minimum(result[rows], probabilities[count:]), result[rows])
    return result


def _chances(pooled: Array, split: int) -> Array:
    seen = np.abs(shift(pooled[:, :split], pooled[:, split:]))
    places = exchanges(split, pooled.shape[1] - split)
    largest = np.abs(_exchanged(pooled, places))  # exchange × metric
    order = np.argsort(-seen, kind="stable")
    # of each metric and all that differ less: the largest difference of every exchange
    reached = np.maximum.accumulate(largest[:, order[::-1]], axis=1)[:, ::-1]
    beyond = (reached >= seen[order] * (1 - TINY)).sum(axis=0)
    complete = len(places) == comb(pooled.shape[1], split)
    p_values = beyond / len(places) if complete else (beyond + 1) / (len(places) + 1)
    result = np.empty(len(seen))
    result[order] = np.maximum.accumulate(p_values)
    return result


def _exchanged(pooled: Array, places: Array) -> Array:
    total = pooled.shape[1]
    mine = np.zeros((len(places), total), bool)
    np.put_along_axis(mine, places, True, axis=1)
    others = np.argsort(mine, axis=1, kind="stable")[:, : total - places.shape[1]]
    shifts = [shift(row[places], row[others]) for row in pooled]
    return np.stack(shifts, axis=1)


def fewest_chance(first: int, second: int) -> float:
    """The smallest chance that so many repeats can show."""
    ways = comb(first + second, first)
    return (2 if first == second else 1) / ways


def paired_interval(first: Array, second: Array, level: float) -> tuple[float, float]:
    """The change (ratio − 1) from one side's repeats to the other's: misses the true one as rarely as the level says.

    So few repeats that they cannot show the level give the range of all pairs, the widest interval they have.
    """
    changes = np.sort(changes_of(first[:, None], second[None, :]), axis=None)
    outside = int(np.searchsorted(np.cumsum(_wrong_pairs(len(first), len(second))), level / 2, side="right"))
    outside = max(1, outside)
    middle = float(changes_of(np.median(first), np.median(second)))  # what is shown lies within its interval
    return min(middle, float(changes[outside - 1])), max(middle, float(changes[-outside]))


def paired_chance(first: Array, second: Array) -> float:
    """The chance that as many pairs agree on the sign if nothing had changed (two-sided; ties count against it)."""
    differences = second[None, :] - first[:, None]
    wrong = int(min((differences <= 0).sum(), (differences >= 0).sum()))
    return min(1.0, 2 * float(_wrong_pairs(len(first), len(second))[: wrong + 1].sum()))


@lru_cache(maxsize=8)
def _wrong_pairs(first: int, second: int) -> Array:
    """How likely each number of pairs with the first larger is where the sides are alike: of 0, 1, … of them."""
    likely: dict[tuple[int, int], Array] = {}
    for ours in range(first + 1):
        for theirs in range(second + 1):
            counts = np.zeros(ours * theirs + 1)
            if not (ours and theirs):
                counts[0] = 1.0
            else:  # the largest run of all is one of ours, or one of theirs
                counts[theirs:] += ours / (ours + theirs) * likely[ours - 1, theirs]
                counts[: ours * (theirs - 1) + 1] += theirs / (ours + theirs) * likely[ours, theirs - 1]
            likely[ours, theirs] = counts
    return likely[first, second]


MOST = 1e6  # what never took time before and does now is that many times as long: infinity would spoil every mean


def changes_of(before: Array, after: Array) -> Array:
    """Ratios − 1, finite whatever is compared: a part that only some runs or steps have may be zero."""
    least = np.maximum(before, after / MOST)
    return np.where(least > 0, after / np.where(least > 0, least, 1.0) - 1, 0.0)


def middle_mean(values: Array, axis: int = -1) -> Array:
    """The mean of the middle half: as little moved by stalls as the median, and a quarter less noisy."""
    ordered = np.sort(values, axis=axis)
    count = ordered.shape[axis]
    return np.take(ordered, np.arange(count // 4, count - count // 4), axis=axis).mean(axis=axis)


def drawn_steps(series: list[Array], random: Any) -> Array:
    """Middle means of steps, drawn again in blocks: steps next to each other are alike. Of several runs their median.

    Each of the series is metrics × steps of one run; blocks wrap around its end.
    """
    runs = []
    for run in series:
        count = run.shape[1]
        length = block_length(run[0])
        starts = random.integers(0, count, (DRAWS, -(-count // length)))
        picks = (starts[:, :, None] + np.arange(length)).reshape(DRAWS, -1)[:, :count] % count
        runs.append(np.stack([middle_mean(values[picks]) for values in run]))
    return np.median(np.stack(runs), axis=0)


def block_length(series: Array) -> int:
    """Long enough that blocks know nothing of each other: twice the lag at which alikeness is lost in noise."""
    count = len(series)
    centred = np.argsort(np.argsort(series)).astype(float)  # of ranks: one stall is no trend
    centred -= centred.mean()
    variance = float(centred @ centred) or 1.0
    bound = 2 / count**0.5
    lag = 1
    while lag < count // 4 and float(centred[lag:] @ centred[:-lag]) / variance > bound:
        lag += 1
    return int(min(max(2 * lag, round(1.5 * count ** (1 / 3))), max(1, count // 6)))
