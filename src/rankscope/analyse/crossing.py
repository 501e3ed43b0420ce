"""From how many nodes on is one way faster than the other?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def break_even(points: Sequence[tuple[int, float, float]]) -> str:
    """A sentence, from (nodes, in place, staged) by nodes: between two measured points a straight line is assumed."""
    faster = [in_place > staged for _, in_place, staged in points]
    measured = f"{points[0][0]}" if len(points) == 1 else f"{points[0][0]} to {points[-1][0]}"
    if all(faster):
        return f"Break-even: staging is faster on every node count measured ({measured})"
    if not any(faster):
        return f"Break-even: never in range; in place is faster on every node count measured ({measured})"
    crossings = [crossing(first, second) for first, second in pairwise(points) if sign(first) != sign(second)]
    if len(crossings) > 1:
        between = ", ".join(f"{nodes:.3g}" for nodes in crossings)
        return f"Break-even: not clear, the curves cross at {between} nodes; measure more rounds"
    way = "from" if faster[-1] else "up to"
    return f"Break-even: staging is faster {way} {crossings[0]:.3g} nodes (measured {measured})"


def sign(point: tuple[int, float, float]) -> bool:
    return point[1] > point[2]


def crossing(first: tuple[int, float, float], second: tuple[int, float, float]) -> float:
    """Where the difference of the two straight lines is zero."""
    before, after = first[1] - first[2], second[1] - second[2]
    return first[0] + (second[0] - first[0]) * before / (before - after)
