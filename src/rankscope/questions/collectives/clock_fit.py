"""Which offset and drift between two clocks fit what the collectives prove?"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

# ---------------------------------------------------------------------------------------------------------------------
# Which straight lines run below some points and above others?
# An offset between two clocks that drift evenly is a straight line over time; each collective says of one moment that
# the offset is at most or at least so much. The lines that agree with all of it are, as pairs of slope and height, a
# convex polygon, and its corners follow from the convex hulls of the two sets of points.
Array = Any
Points = tuple[Array, Array]  # x and y


@dataclass(frozen=True, slots=True)
class ClockLines:
    """The lines height + slope * x that fit: for each slope of a corner the lowest and the highest height."""

    slopes: Array
    lowest: Array
    highest: Array

    def centre(self) -> tuple[float, float]:
        """Slope and height of the centre of gravity of the polygon."""
        width = self.highest - self.lowest
        middle = (self.highest + self.lowest) / 2
        step = np.diff(self.slopes)
        area = step * (width[1:] + width[:-1]) / 2
        if not area.sum() > 0:
            best = int(np.argmax(width))
            return float(self.slopes[best]), float(middle[best])
        inner = (self.slopes[1:] + self.slopes[:-1]) / 2
        slope = float((area * inner).sum() / area.sum())
        height = float((area * (middle[1:] + middle[:-1]) / 2).sum() / area.sum())
        return slope, min(max(height, self._at(slope, self.lowest)), self._at(slope, self.highest))

    def _at(self, slope: float, heights: Array) -> float:
        return float(np.interp(slope, self.slopes, heights))

    def contains(self, slope: float, height: float) -> bool:
        if not self.slopes[0] <= slope <= self.slopes[-1]:
            return False
        return self._at(slope, self.lowest) <= height <= self._at(slope, self.highest)

    def reach(self, x: Array) -> tuple[Array, Array]:
        """The lowest and the highest value of any of the lines at each x."""
        at = np.asarray(x, np.float64)[:, None]
        return (self.lowest + self.slopes * at).min(axis=1), (self.highest + self.slopes * at).max(axis=1)


def lower_hull(x: Array, y: Array) -> tuple[Array, Array]:
    """The points that are lowest in some direction, from left to right."""
    order = np.lexsort((y, x))
    x, y = x[order], y[order]
    first = np.concatenate(([True], np.diff(x) > 0))
    x, y = x[first], y[first]
    while len(x) > 2:  # a point on or above the chord of two others is none of the hull: drop all such at once
        chord = y[:-2] + (y[2:] - y[:-2]) * ((x[1:-1] - x[:-2]) / (x[2:] - x[:-2]))
        below = np.concatenate(([True], y[1:-1] < chord, [True]))
        if below.all():
            break
        x, y = x[below], y[below]
    return x, y


def lines_between(below: Points, above: Points, steepest: float) -> tuple[ClockLines | None, float]:
    """The lines at or below all points of `below` and at or above all of `above`, and the slope that fits best.

    Where no line fits, that slope is the one of the line that misses least.
    """
    ceiling, floor = lower_hull(*below), lower_hull(above[0], -above[1])  # the floor upside down
    slopes = np.concatenate([_slopes(*ceiling), -_slopes(*floor), [-steepest, steepest, 0.0]])
    slopes = np.unique(np.clip(slopes, -steepest, steepest))
    highest, lowest = _least_heights(*ceiling, slopes), -_least_heights(*floor, -slopes)
    room = highest - lowest
    best = int(np.argmax(room))
    return _trimmed(slopes, lowest, highest) if room[best] >= 0 else None, float(slopes[best])


def _slopes(x: Array, y: Array) -> Array:
    return np.diff(y) / np.diff(x)


def _least_heights(x: Array, y: Array, slopes: Array) -> Array:
    """For each slope the height of the highest line below the hull: it touches where the edges pass its slope."""
    touched = np.searchsorted(_slopes(x, y), slopes)
    height: Array = y[touched] - slopes * x[touched]
    return height


def _trimmed(slopes: Array, lowest: Array, highest: Array) -> ClockLines:
    """Only the slopes for which there is room; the two ends lie where the room becomes nothing."""
    room = highest - lowest
    fits = np.flatnonzero(room >= 0)
    first, last = int(fits[0]), int(fits[-1])
    ends = []
    for inside, outside in ((first, first - 1), (last, last + 1)):
        if 0 <= outside < len(slopes):
            share = room[inside] / (room[inside] - room[outside])
            ends.append(slopes[inside] + share * (slopes[outside] - slopes[inside]))
        else:
            ends.append(slopes[inside])
    corners = np.concatenate(([ends[0]], slopes[first : last + 1], [ends[1]]))
    return ClockLines(corners, np.interp(corners, slopes, lowest), np.interp(corners, slopes, highest))


# ---------------------------------------------------------------------------------------------------------------------
# Where one host always comes first, on which side of the room that the proof leaves is the offset?
# A broadcast bounds the offset from one side only. If the root is late again and again, the others leave as soon as
# its data have come, each time about equally soon: those bounds pile up close to the offset, those of the other side
# do not.
FEW = 16
CLOSE = 0.25  # of the room: a quarter of the bounds of the side must lie as near to the outermost line,
NEARER = 4.0  # and so many times nearer than those of the other side


def piled_up(below: Points, above: Points, room_ns: float) -> tuple[float, float] | None:
    """Slope and height of the line that bounds pile up at; None where neither side shows it, or both do."""
    sides = [_outermost(*below), _outermost(above[0], -above[1])]
    depths = [np.inf if side is None else side[2] for side in sides]
    nearer = int(np.argmin(depths))
    offset = sides[nearer]
    if offset is None or depths[nearer] > CLOSE * room_ns or depths[1 - nearer] < NEARER * depths[nearer]:
        return None
    sign = -1.0 if nearer else 1.0
    return sign * offset[0], sign * offset[1]


def _outermost(x: Array, y: Array) -> tuple[float, float, float] | None:
    """The line below all points that is highest in their middle, and the distance that a quarter lies within."""
    if len(x) < FEW:
        return None
    hull_x, hull_y = lower_hull(x, y)
    middle = float(np.median(x))
    edge = int(np.clip(np.searchsorted(hull_x, middle) - 1, 0, max(0, len(hull_x) - 2)))
    run = float(hull_x[edge + 1] - hull_x[edge]) if len(hull_x) > 1 else 0.0
    slope = float(hull_y[edge + 1] - hull_y[edge]) / run if run > 0 else 0.0
    height = float(hull_y[edge] - slope * hull_x[edge])
    return slope, height, float(np.quantile(y - height - slope * x, 0.25))


# ---------------------------------------------------------------- clock fit
STEEPEST = 500e-6  # no clock of a computer drifts faster against another
MOST_PARTS = 8  # a clock that jumps more often is not to be corrected
CAUTION = 2.0  # ranks that leave in an order, as Intel MPI's do, are further apart than their spread tells
DAMAGED_IN_A_PART = 2  # records, where a clock jumps
FAR_NS = 1e17  # three years: stands for no bound
CLOSE_NS = 50_000.0  # what is proven to this needs no other estimate

SELECTED = 0.25  # of the collectives: those of the shortest stays tell best when all leave


@dataclass(frozen=True, slots=True)
class Pair:
    """The evidence about one host (own) against another (other), by collective, in the order of time."""

    own_entered_ns: Array
    own_left_ns: Array
    other_entered_ns: Array
    other_left_ns: Array
    stay_ns: Array
    slack_ns: Array

    def __len__(self) -> int:
        return len(self.stay_ns)

    def only(self, rows: Any) -> Pair:
        return Pair(*(getattr(self, field.name)[rows] for field in fields(self)))

    def times(self) -> Array:
        return np.where(np.isfinite(self.own_left_ns), self.own_left_ns, self.own_entered_ns)

    def ceiling(self) -> tuple[Array, Array]:
        """Moments of the own clock, and what must at most be added to it there."""
        return self.own_entered_ns, self.other_left_ns - self.own_entered_ns + self.slack_ns

    def floor(self) -> tuple[Array, Array]:
        return self.own_left_ns, self.other_entered_ns - self.own_left_ns - self.slack_ns


@dataclass(frozen=True, slots=True)
class ClockSpan:
    """A span of the own clock in which it runs evenly: add height + slope * time to get the other's time."""

    from_ns: float
    to_ns: float
    slope: float
    height: float
    error_at: Array  # at the beginning, the middle and the end
    slope_error: float
    bound_ns: float  # largest error that the proof alone allows
    together: bool  # the estimate rests on leaving together, not on the proof alone
    used: int
    dropped: int  # records that contradict all others

    @property
    def error_ns(self) -> float:
        return float(self.error_at.max())

    def offset(self, time_ns: Any) -> Any:
        return self.height + self.slope * time_ns

    def error(self, time_ns: Any) -> Any:
        """An error of straight lines is convex over time, so this is never too small."""
        span = np.array([self.from_ns, (self.from_ns + self.to_ns) / 2, self.to_ns])
        return np.interp(time_ns, span, self.error_at)


def fit(pair: Pair) -> list[ClockSpan]:
    """The parts of the own clock, more than one where it jumps; none where nothing fits."""
    pair = pair.only(np.argsort(pair.times(), kind="stable"))
    parts: list[ClockSpan] = []
    while len(pair):
        length = len(pair)
        fitting = _fitting(pair, _allowed(length))
        if fitting[0] is None:
            length = _longest(pair)
            fitting = _fitting(pair.only(slice(0, length)), DAMAGED_IN_A_PART)
        part = _part(pair.only(slice(0, length)), *fitting) if len(parts) < MOST_PARTS else None
        if part is None:
            return []
        parts.append(part)
        pair = pair.only(slice(length, None))
    return parts


def _allowed(collectives: int) -> int:
    """How many records may be damaged."""
    return min(32, collectives // 50)


def _longest(pair: Pair) -> int:
    """The longest beginning that fits: what fits, fits without its end too."""
    fits, fails = 1, len(pair)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if _fitting(pair.only(slice(0, middle)), DAMAGED_IN_A_PART)[0] else (fits, middle)
    return fits


def _fitting(pair: Pair, allowed: int) -> tuple[ClockLines | None, Pair]:
    """The lines that fit, after dropping at most so many collectives that no line fits with the others."""
    for dropped in range(allowed + 1):
        below, above = _known(*pair.ceiling(), FAR_NS), _known(*pair.floor(), -FAR_NS)
        lines, slope = lines_between(below, above, STEEPEST)
        if lines or dropped == allowed:
            return lines, pair
        pair = pair.only(~_culprits(pair, slope))
    return None, pair


def _known(x: Array, y: Array, unbounded: float) -> tuple[Array, Array]:
    known = np.isfinite(x) & np.isfinite(y)
    return (x[known], y[known]) if known.any() else (np.zeros(1), np.full(1, unbounded))


def _culprits(pair: Pair, slope: float) -> Array:
    """The one collective, or the two, between whose bounds there is no room."""
    (ceiling_x, ceiling_y), (floor_x, floor_y) = pair.ceiling(), pair.floor()
    with np.errstate(invalid="ignore"):
        high = np.nan_to_num(ceiling_y - slope * ceiling_x, nan=np.inf, posinf=np.inf, neginf=np.inf)
        low = np.nan_to_num(floor_y - slope * floor_x, nan=-np.inf, posinf=-np.inf, neginf=-np.inf)
    culprits = np.zeros(len(pair), bool)
    # the damaged one of the two is further from what the others say
    high_by, low_by = float(np.median(high) - high.min()), float(low.max() - np.median(low))
    culprits[int(np.argmin(high) if high_by >= low_by else np.argmax(low))] = True
    return culprits


def _part(pair: Pair, lines: ClockLines | None, selected: Pair) -> ClockSpan | None:
    if lines is None:
        return None
    times = selected.times()
    span = np.array([times.min(), (times.min() + times.max()) / 2, times.max()])
    slope, height = lines.centre()
    bound = _errors(lines, slope, height, span)
    errors, together, piled = bound, False, None
    if float(bound.max()) > CLOSE_NS:
        by_leaving = _leaving_together(selected, slope)
        if _tell_when_left(selected).sum() < FEW:
            piled = piled_up(
                _known(*selected.ceiling(), FAR_NS), _known(*selected.floor(), -FAR_NS), float(bound.max())
            )
        if piled is not None:
            slope, height = _pulled_in(lines, *piled)
            errors = _errors(lines, slope, height, span)
        elif by_leaving is not None:
            together = True
            slope, height = _pulled_in(lines, by_leaving[0], by_leaving[1])
            errors = _errors(lines, slope, height, span)
            errors = np.minimum(errors, by_leaving[2]) if _spans_enough(selected) else errors
    steepest = max(float(lines.slopes[-1]) - slope, slope - float(lines.slopes[0]))
    if together and span[2] > span[0]:
        steepest = min(steepest, 2 * float(errors.max()) / float(span[2] - span[0]))
    return ClockSpan(
        float(span[0]), float(span[2]), slope, height, errors, steepest, float(bound.max()), together, len(selected),
        len(pair) - len(selected),
    )  # fmt: skip


def _errors(lines: ClockLines, slope: float, height: float, span: Array) -> Array:
    low, high = lines.reach(span)
    here = height + slope * span
    return np.maximum(high - here, here - low)


def _tell_when_left(pair: Pair) -> Array:
    """The collectives that all leave at about one time."""
    return np.isfinite(pair.stay_ns) & np.isfinite(pair.own_left_ns) & np.isfinite(pair.other_left_ns)


def _spans_enough(pair: Pair) -> bool:
    """A few of that kind among many others, or at one end of the span, say too little of all the rest of it."""
    usable, times = _tell_when_left(pair), pair.times()
    if not usable.any() or usable.sum() < min(FEW, len(pair) / 2):
        return False
    return bool(np.ptp(times[usable]) >= np.ptp(times) / 2)


def _leaving_together(pair: Pair, slope: float) -> tuple[float, float, float] | None:
    """Slope, height and error if all ranks leave a short collective at about one time."""
    usable = _tell_when_left(pair)
    count = int(usable.sum())
    if not count:
        return None
    pair = pair.only(usable)
    shortest = np.argsort(pair.stay_ns, kind="stable")[: max(FEW, int(SELECTED * count))]
    pair = pair.only(np.sort(shortest))
    time, offset = pair.own_left_ns, pair.other_left_ns - pair.own_left_ns
    if len(pair) >= FEW:
        slope = _resistant_slope(time, offset)
    height = _usual(offset - slope * time)
    return slope, height, CAUTION * (float(np.median(pair.stay_ns)) + _spread(offset - slope * time - height))


def _spread(rest: Array) -> float:
    """How far apart ranks leave: half of what nine tenths lie in, and by how much a third of the span is off."""
    low, high = np.percentile(rest, (5, 95))
    thirds = [abs(float(np.median(part))) for part in np.array_split(rest, 3) if len(part)]
    return float(high - low) / 2 + max(thirds)


def _usual(values: Array) -> float:
    """Where values lie densest: those who leave late were not woken in time, and that is no offset."""
    ordered = np.sort(values)
    count = max(1, len(ordered) // (4 if len(ordered) >= 2 * FEW else 2))
    first = int(np.argmin(ordered[count - 1 :] - ordered[: len(ordered) - count + 1]))
    return float(np.median(ordered[first : first + count]))


def _resistant_slope(time: Array, offset: Array) -> float:
    """From the first and the last third, where no single late leaver counts."""
    third = len(time) // 3
    first, last = slice(0, third), slice(len(time) - third, None)
    run = float(np.median(time[last]) - np.median(time[first]))
    slope = 0.0
    for _ in range(3):
        rest = offset - slope * time
        slope += (_usual(rest[last]) - _usual(rest[first])) / run if run > 0 else 0.0
    return slope


def _pulled_in(lines: ClockLines, slope: float, height: float) -> tuple[float, float]:
    """The nearest that the proof allows, on the way to its centre."""
    to_slope, to_height = lines.centre()

    def towards(share: float) -> tuple[float, float]:
        return slope + share * (to_slope - slope), height + share * (to_height - height)

    near, far = 0.0, 1.0  # what lies between is convex: once inside, inside to the centre
    if lines.contains(slope, height):
        return slope, height
    while far - near > 1e-6:
        middle = (near + far) / 2
        near, far = (near, middle) if lines.contains(*towards(middle)) else (middle, far)
    return towards(far)
