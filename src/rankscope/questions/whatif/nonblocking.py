"""Which nonblocking collectives of MPI move only while their members are in the library, and who holds up whom there?

Most MPIs have no thread of their own that moves data: a member that computes between issuing and waiting holds others
up until it comes to its wait; all of them, or those that get their data through it. Such a collective is replayed as
one that each member enters with its wait. Where all leave before that, the data move by themselves, and it is one in
progress from its issue on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.questions.collectives.matching import Matched

Array = Any  # of numpy
TELLING_NS = 1_000_000  # by which a member waits later than the other does and than all have issued: less may be chance
HELD = 0.8  # of the collectives of a kind that tell it
MOST_MEMBERS = 64  # every pair is looked at


@dataclass(slots=True)
class ByWaiting:
    """K collectives of M members."""

    moved: Array  # K: whether it moves only so
    reached: Array  # K x M: when each member came to its wait
    kind: Array  # K
    held_by: dict[int, Array]  # of each kind, M x M: the member of the row leaves after that of the column has come


def moved_by_waiting(group: Matched, enter: Array, end: Array) -> ByWaiting:
    """Of the collectives of a group; times are on one clock. Those of one operation and size are of one kind."""
    kinds, kind = np.unique(np.stack([group.operation, group.bytes[:, 0]]), axis=1, return_inverse=True)
    found = ByWaiting(np.zeros(len(enter), bool), enter, kind.reshape(-1), {})
    if group.stood_ns is None or not group.progress.any() or enter.shape[1] > MOST_MEMBERS:
        return found
    found.reached = np.maximum(end - group.stood_ns, enter)
    for code in range(kinds.shape[1]):
        rows = np.flatnonzero((found.kind == code) & group.progress)
        if len(rows):
            after = end[rows][:, :, None] >= found.reached[rows][:, None, :]
            held_by = _held_by(enter[rows], found.reached[rows], after)
            found.moved[rows] = held_by is not None and (after | ~held_by).all(axis=(1, 2))
            found.held_by[code] = held_by
    return found


def _held_by(enter: Array, reached: Array, after: Array) -> Array | None:
    """M x M: who holds up whom; None where those that come late hold up nobody."""
    ready = np.maximum(reached, enter.max(axis=1, keepdims=True))
    telling = reached[:, None, :] - ready[:, :, None] > TELLING_NS
    told = telling.sum(axis=0)
    share = np.where(told, (telling & after).sum(axis=0) / np.maximum(told, 1), after.mean(axis=0))
    held_by = (share >= HELD) | np.eye(len(share), dtype=bool)
    return held_by if not told.any() or (held_by & (told > 0)).any() else None
