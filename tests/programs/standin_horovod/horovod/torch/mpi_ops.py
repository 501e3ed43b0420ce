"""Its operations: handles that are done at the second look."""

from __future__ import annotations

import os
from typing import Any

from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet, global_process_set

_basics = HorovodBasics()
size, rank = _basics.size, _basics.rank
_looks: dict[int, int] = {}


def mpi_enabled() -> bool:
    return os.environ["STANDIN_BY"] == "mpi"


def _issued() -> int:
    _looks[len(_looks)] = 0
    return len(_looks) - 1


def _allreduce_async(tensor: Any, output: Any, name: str, process_set: ProcessSet) -> int:
    if tensor.numel() == 13:
        raise ValueError("thirteen")
    return _issued()


def _grouped_allreduce_async(tensors: list[Any], outputs: Any, name: str, process_set: ProcessSet) -> int:
    return _issued()


def _broadcast_async(tensor: Any, output: Any, root_rank: int, name: str, process_set: ProcessSet) -> int:
    return _issued()


def poll(handle: int) -> bool:
    _looks[handle] += 1
    return _looks[handle] > 1


def synchronize(handle: int) -> int:
    if handle == 3:
        raise RuntimeError("handle three")
    return handle


def barrier(process_set: ProcessSet = global_process_set) -> None:
    synchronize(_issued())
