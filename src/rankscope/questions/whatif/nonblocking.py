"""Which nonblocking collectives of MPI move only while their members are in the library?

Most MPIs have no thread of their own that moves data: a member that computes between issuing and waiting holds up the
others until it comes to its wait. Such a collective is replayed as a blocking one that each member enters with its
wait. Where the others leave before that, the data move by themselves, and it is one in progress from its issue on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankscope.questions.collectives.matching import CollectiveLog, Matched
from rankscope.questions.collectives.operations import OPERATIONS
from rankscope.questions.whatif.program import JOINS, Program

Array = Any  # of numpy
TELLING_NS = 1_000_000  # between the last issue and the last wait: what is less may be chance
BY_WAITING = 0.8  # of the collectives of a kind that tell it
AT_ONCE_NS = 3 * TELLING_NS  # after the last wait: such an end was held up by it, whatever others of its kind do


def moved_by_waiting(log: CollectiveLog, group: Matched, enter: Array, end: Array) -> tuple[Array, Array]:
    """K: which of a group's collectives move so, and K x M: when each member came to its wait; times on one clock."""
    if group.stood_ns is None:
        return np.zeros(len(enter), bool), enter
    reached = np.maximum(end - group.stood_ns, enter)
    until, issued = (_held_until(log, group, times) for times in (reached, enter))
    asked = group.progress & np.isfinite(reached).all(axis=1)
    held = asked & (end >= until).all(axis=1)
    telling = asked & (until - np.maximum(reached, issued) > TELLING_NS).any(axis=1)
    at_once = telling & held & (end - until < AT_ONCE_NS).all(axis=1)
    kinds, kind = np.unique(np.stack([group.operation, group.bytes[:, 0]]), axis=1, return_inverse=True)
    told = np.bincount(kind.reshape(-1), telling, minlength=kinds.shape[1])
    share = np.bincount(kind.reshape(-1), telling & held, minlength=kinds.shape[1]) / np.maximum(told, 1)
    usual = ((share >= BY_WAITING) | (told == 0))[kind.reshape(-1)]
    return held & (usual | at_once), reached


def _held_until(log: CollectiveLog, group: Matched, times: Array) -> Array:
    """K x M: until when the others hold each member up, by the times at which they come."""
    until = np.empty_like(times)
    for code, root in {*zip(group.operation.tolist(), group.root.tolist(), strict=True)}:
        rows = np.flatnonzero((group.operation == code) & (group.root == root))
        join = JOINS[OPERATIONS[log.operations[code]].waits]
        until[rows] = Program.joined(times[rows].T, join, max(0, root)).T
    return until
