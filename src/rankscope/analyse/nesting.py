"""In which order do slices of one track open and close, and which of them need a lane of their own?"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def in_order(start_ns: Array, end_ns: Array) -> tuple[Array, Array]:
    """What happens one after the other: which slice, and whether it opens or closes.

    At one moment the inner ones close first, then come those without length, then the longest opens first.
    """
    count = len(start_ns)
    rows = np.arange(count)
    closing = rows[end_ns >= start_ns]
    empty = start_ns == end_ns
    slices = np.concatenate([rows, closing])
    opens = np.concatenate([np.ones(count, bool), np.zeros(len(closing), bool)])
    time_ns = np.where(opens, start_ns[slices], end_ns[slices])
    turn = np.where(empty[slices], 1, np.where(opens, 2, 0))
    # of those without length each closes before the next opens; others nest
    inner = np.where(empty[slices], slices * 2 + ~opens, np.where(opens, -end_ns[slices], -start_ns[slices]))
    unended = opens & (end_ns[slices] < start_ns[slices])
    inner = np.where(unended, np.iinfo(np.int64).min, inner)
    order = np.lexsort((inner, turn, time_ns))
    return slices[order], opens[order]


def lanes(start_ns: Array, end_ns: Array) -> Array:
    """All on one lane if each two of them lie apart or within each other, else on as few as keep them apart."""
    made = np.zeros(len(start_ns), np.int64)
    if not _cross(start_ns, end_ns):
        return made
    free: list[int] = []
    order = np.argsort(start_ns, kind="stable")
    for row, start, end in zip(order.tolist(), start_ns[order].tolist(), end_ns[order].tolist(), strict=True):
        lane = next((at for at, until in enumerate(free) if until <= start), len(free))
        if lane == len(free):
            free.append(0)
        free[lane], made[row] = max(end, start), lane
    return made


def _cross(start_ns: Array, end_ns: Array) -> bool:
    """Whether some begin within another and end outside: then as many are not open at its end as were at its begin."""
    slices, opens = in_order(start_ns, end_ns)
    depth = np.cumsum(np.where(opens, 1, -1))
    before, after = np.zeros(len(start_ns), np.int64), np.zeros(len(start_ns), np.int64)
    before[slices[opens]] = depth[opens] - 1
    after[slices[~opens]] = depth[~opens]
    ended = end_ns >= start_ns
    return bool((before[ended] != after[ended]).any())
