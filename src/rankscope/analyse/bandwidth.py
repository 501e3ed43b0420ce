"""How fast do collectives move data once everybody is there, as nccl-tests count it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.questions.collectives.matching import Array, Log
from rankscope.questions.collectives.operations import BY_PARTS_IN_NCCL, OPERATIONS, Operation, Volume, Waits
from rankscope.questions.collectives.wait_and_transfer import Split

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Moved:
    """Of each collective of a group: what nccl-tests call its size, and the times that belong to it."""

    volume_bytes: Array  # K; 0 where nothing is moved
    transfer_ns: Array  # K: mean over the members that have to wait for data
    stay_ns: Array  # K: the same, waiting included
    bus_factor: Array  # K


def moved(log: Log, split: Split) -> Moved:
    """Volume, time and bus factor of every collective of a group."""
    count, members = split.wait_ns.shape
    volume, factor = np.zeros(count), np.ones(count)
    receiving = np.ones((count, members), bool)
    for code in np.unique(split.group.operation):
        name = log.operations[code]
        rows = np.flatnonzero(split.group.operation == code)
        volume[rows] = _volume(split, rows, name, OPERATIONS[name])
        factor[rows] = OPERATIONS[name].bus_factor(members)
        receiving[rows] = _receiving(split, rows, OPERATIONS[name])
    share = receiving / receiving.sum(axis=1, keepdims=True)
    transfer = (split.transfer_ns * share).sum(axis=1)
    return Moved(volume, transfer, (split.stay_ns * share).sum(axis=1), factor)


def _volume(split: Split, rows: Array, name: str, operation: Operation) -> Array:
    sent = split.group.bytes[rows]
    if operation.volume is Volume.NONE:
        return np.zeros(len(rows))
    if operation.volume is Volume.SUM or (split.group.layer == "nccl" and name == BY_PARTS_IN_NCCL):
        return sent.sum(axis=1)
    return sent.max(axis=1)


def _receiving(split: Split, rows: Array, operation: Operation) -> Any:
    """The members whose stay lasts until data has come: a sender may leave earlier."""
    is_root = np.arange(split.wait_ns.shape[1]) == split.group.root[rows][:, None]
    if operation.waits is Waits.ALL_FOR_ROOT:
        return ~is_root
    return is_root if operation.waits is Waits.ROOT_FOR_ALL else True


def rate(volume_bytes: float, time_ns: float) -> float | None:
    """Bytes per second."""
    return volume_bytes / time_ns * NS_PER_S if volume_bytes > 0 and time_ns > 0 else None
