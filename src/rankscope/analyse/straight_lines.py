"""Which straight lines run below some points and above others?

An offset between two clocks that drift evenly is a straight line over time; each collective says of one moment that the
offset is at most or at least so much. The lines that agree with all of it are, as pairs of slope and height, a convex
polygon, and its corners follow from the convex hulls of the two sets of points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
Points = tuple[Array, Array]  # x and y


@dataclass(frozen=True, slots=True)
class Lines:
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
        kept = np.concatenate(([True], y[1:-1] < chord, [True]))
        if kept.all():
            break
        x, y = x[kept], y[kept]
    return x, y


def lines_between(below: Points, above: Points, steepest: float) -> tuple[Lines | None, float]:
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


def _trimmed(slopes: Array, lowest: Array, highest: Array) -> Lines:
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
    return Lines(corners, np.interp(corners, slopes, lowest), np.interp(corners, slopes, highest))
