"""Where one host always comes first, on which side of the room that the proof leaves is the offset?

A broadcast bounds the offset from one side only. If the root is late again and again, the others leave as soon as its
data have come, each time about equally soon: those bounds pile up close to the offset, those of the other side do not.
"""

from __future__ import annotations

import numpy as np

from rankscope.analyse.straight_lines import Array, Points, lower_hull

FEW = 16
CLOSE = 0.25  # of the room: a quarter of the bounds of the side must lie as near to the outermost line,
NEARER = 4.0  # and so many times nearer than those of the other side


def piled_up(below: Points, above: Points, room_ns: float) -> tuple[float, float] | None:
    """Slope and height of the line that bounds pile up at; None where neither side shows it, or both do."""
    sides = [_outermost(*below), _outermost(above[0], -above[1])]
    depths = [np.inf if one is None else one[2] for one in sides]
    nearer = int(np.argmin(depths))
    found = sides[nearer]
    if found is None or depths[nearer] > CLOSE * room_ns or depths[1 - nearer] < NEARER * depths[nearer]:
        return None
    sign = -1.0 if nearer else 1.0
    return sign * found[0], sign * found[1]


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
