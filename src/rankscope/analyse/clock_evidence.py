"""What do the collectives prove about the clocks of two hosts?

Nobody leaves a synchronising collective before all have entered it. So the earliest leaving on one host comes after the
latest entering on the other, on whatever clocks the two were read: an upper bound of the offset at one moment, and
with the hosts exchanged a lower one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.analyse.threads import in_threads
from rankscope.questions.collectives.matching import Array, Log, Matched
from rankscope.questions.collectives.operations import OPERATIONS, Operation, Proof, Waits

SLACK_NS = {"nccl": 20_000.0}  # NCCL's proxy thread sees kernels begin and end a little late
SLACK_OTHERS_NS = 1_000.0  # ticks of two processes of a host become Unix time to about this


@dataclass(slots=True)
class Evidence:
    """Of each of K collectives: per host the latest entering and the earliest leaving that prove something."""

    hosts: Array  # H: numbers of the hosts
    entered_ns: Array  # K x H, -inf where nobody has to wait for that host
    left_ns: Array  # K x H, inf where nobody of that host has to wait
    stay_ns: Array  # K: the shortest stay of any member; inf where that says nothing
    slack_ns: float


def evidence(log: Log, group: Matched, host_of: Sequence[int]) -> Evidence:
    """What a group's collectives prove about the hosts of its members."""
    enters, leaves, together = _proving(log, group)
    entered = np.where(enters, group.enter_ns, -np.inf)
    left = np.where(leaves, group.end_ns, np.inf)
    own = np.array(host_of)[group.members]
    order = np.argsort(own, kind="stable")
    hosts, first = np.unique(own[order], return_index=True)
    stay = np.where(together, (group.end_ns - group.enter_ns).min(axis=1), np.inf)
    return Evidence(
        hosts,
        np.maximum.reduceat(entered[:, order], first, axis=1),
        np.minimum.reduceat(left[:, order], first, axis=1),
        stay,
        SLACK_NS.get(group.layer, SLACK_OTHERS_NS),
    )


def evidence_of_all(log: Log, host_of: Sequence[int]) -> list[Evidence]:
    """What all collectives prove, group by group, of a large run block by block."""
    return list(in_threads(lambda at: evidence(log, log.groups[at], host_of), range(len(log.groups))))


def _proving(log: Log, group: Matched) -> tuple[Array, Array, Array]:
    """Whose entering must be waited for, whose leaving waits, and which collectives all leave at about one time."""
    shape = group.enter_ns.shape
    enters, leaves = np.zeros(shape, bool), np.zeros(shape, bool)
    together = np.zeros(shape[0], bool)
    for code in np.unique(group.operation):
        operation = OPERATIONS[log.operations[code]]
        rows = np.flatnonzero(group.operation == code)
        enters[rows], leaves[rows] = _roles(operation, group, rows)
        # an operation of MPI in progress ends when somebody looks; Gloo tells the moment
        ended = ~group.progress[rows] | (group.layer == "gloo")
        together[rows] = ended & (operation.waits is Waits.ALL_FOR_ALL)
    return enters, leaves, together


def _roles(operation: Operation, group: Matched, rows: Array) -> tuple[Any, Any]:
    members = len(group.members)
    is_root = np.arange(members) == group.root[rows][:, None]
    moved = group.bytes[rows] > 0 if operation.proof is Proof.WITH_BYTES else np.True_
    if operation.proof is Proof.NEVER:
        return False, False
    if operation.waits is Waits.ALL_FOR_ALL:
        return moved, True
    if operation.waits is Waits.ALL_FOR_ROOT:
        return is_root, ~is_root & moved
    if operation.waits is Waits.ROOT_FOR_ALL:
        return ~is_root & moved, is_root
    # a prefix sum: of its pairs only those with the last member are of the simple form
    is_last = np.arange(members) == members - 1
    return moved & ~is_last, is_last


def apart(known: Sequence[Evidence], most_ns: float, share: float) -> list[int]:
    """Hosts whose own ranks contradict each other: several clocks under one name."""
    wrong: dict[int, int] = {}
    seen: dict[int, int] = {}
    for found in known:
        for column, host in enumerate(found.hosts.tolist()):
            gap = found.entered_ns[:, column] - found.left_ns[:, column]
            seen[host] = seen.get(host, 0) + int(np.isfinite(gap).sum())
            wrong[host] = wrong.get(host, 0) + int((np.isfinite(gap) & (gap > most_ns)).sum())
    return [host for host, count in wrong.items() if count > share * seen[host]]
