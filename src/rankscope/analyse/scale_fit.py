"""Which latency and which server rate do measured import times at several sizes of job support?

A client that waits for answers needs the same time at any size; a server that is busy needs a time that grows with the
number of nodes. So the time is taken as max(alone, per node × nodes), fitted to the logarithms, because times from
seconds to minutes matter alike and scatter by factors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

FEWEST_POINTS = 4
SMALLEST_RANGE = 4  # largest ÷ smallest number of nodes
WORST_FACTOR = 1.6  # by which points may typically lie off the curve
FARTHEST = 4  # times the largest measured size: beyond it nothing is said


@dataclass(frozen=True, slots=True)
class ScaleFit:
    """The curve, or why there is none."""

    alone_s: float = 0.0  # what one client needs while the server is not busy
    per_node_s: float = 0.0  # what the server needs for each node; 0: no growth was seen
    factor: float = math.inf  # by which the points typically lie off
    largest: int = 0  # nodes that were measured
    refusal: str = ""

    def at(self, nodes: int) -> float | None:
        """Seconds, or None too far from what was measured."""
        if self.refusal or nodes > FARTHEST * self.largest:
            return None
        return max(self.alone_s, self.per_node_s * nodes)


def fitted(points: Mapping[int, float]) -> ScaleFit:
    """The best curve over all ways to part the points into those that wait and those that queue."""
    if reason := _too_little(points):
        return ScaleFit(refusal=reason)
    sizes = sorted(points)
    cuts = [cut for cut in range(1, len(sizes) + 1) if cut != len(sizes) - 1]  # one point does not show growth
    candidates = [_parted(points, sizes[:cut], sizes[cut:]) for cut in cuts]
    best = min(candidates, key=lambda one: one.factor)
    if best.factor > WORST_FACTOR:
        reason = f"the points lie off any such curve by a factor of {best.factor:.2g}: measure again, and repeat each"
        return ScaleFit(factor=best.factor, largest=sizes[-1], refusal=reason)
    return best


def _too_little(points: Mapping[int, float]) -> str:
    if any(value <= 0 for value in points.values()) or any(nodes < 1 for nodes in points):
        return "times and nodes must be above zero"
    if len(points) < FEWEST_POINTS:
        return f"{len(points)} points are too few for two unknowns: measure at least {FEWEST_POINTS} sizes"
    if max(points) < SMALLEST_RANGE * min(points):
        return f"the sizes lie too close together: measure over a range of at least {SMALLEST_RANGE} to 1"
    return ""


def _parted(points: Mapping[int, float], waiting: list[int], queueing: list[int]) -> ScaleFit:
    """Means of logarithms: of the time where it is constant, of the time for each node where it grows."""
    alone = math.exp(sum(math.log(points[nodes]) for nodes in waiting) / len(waiting))
    growing = [math.log(points[nodes] / nodes) for nodes in queueing]
    per_node = math.exp(sum(growing) / len(growing)) if growing else 0.0
    off = [math.log(points[nodes] / max(alone, per_node * nodes)) ** 2 for nodes in points]
    freedom = len(points) - (2 if growing else 1)
    return ScaleFit(alone, per_node, math.exp(math.sqrt(sum(off) / freedom)), max(points))
