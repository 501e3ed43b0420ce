"""Backends as a workload uses them: the same few operations, whatever library does them."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol


class Backend(Protocol):
    IN_PLACE: tuple[str, ...]  # operations whose result takes the place of what was given
    rank: int
    world: int
    arrays: Any  # of arrays.py: how buffers are made and looked at

    def buffer(self, elements: int, value: float) -> Any:
        """Elements of four bytes (float32), where the backend wants them."""

    def allreduce(self, buffer: Any) -> None:
        """The sum, in place, done when it returns."""

    def carry_out(self, operation: str, send: Any, receive: Any) -> Any:
        """One of exchanges.OPERATIONS, done when it returns; gives the buffer that holds the result."""

    def first(self, buffer: Any) -> float: ...

    def barrier(self) -> None: ...

    def wait(self) -> None:
        """Until what was asked of a device is done."""

    def versions(self) -> dict[str, str]:
        """Of the libraries that do the work."""

    def close(self) -> None: ...


SETTLE_S = 0.2
PATIENCE_S = 120.0


def settle() -> None:
    """Before a group of torch's, or a model that uses it, goes.

    A thread of Gloo's needs Python's lock to let go of the last collective, while who destroys the group holds that
    lock and waits for that thread: without this some ranks hang there, or abort when Python ends.
    """
    time.sleep(SETTLE_S)


TORCH = {"gloo": "gloo", "nccl": "nccl", "ucc": "ucc", "xccl": "xccl", "torch_mpi": "mpi"}  # to torch's own names


def connected(name: str, folder: str) -> Backend:
    """The backend, initialised; what it imports is imported here."""
    if name == "mpi4py":
        from talking_mpi4py import Mpi4py

        return Mpi4py()
    if name in TORCH:
        from talking_torch import Torch

        return Torch(folder, TORCH[name])
    if name in ("horovod", "horovod_gloo"):
        from talking_horovod import Horovod

        return Horovod(folder, by_gloo=name == "horovod_gloo")
    if name in ("oneccl", "oneccl_mpi"):
        from talking_oneccl import OneCcl

        return OneCcl(folder)
    sys.exit(f"{name}: no such backend")


def lacks(backend: str, operation: str) -> None:
    """Ends the job: a cell that cannot be measured is one that failed, with this as its reason."""
    sys.exit(f"rankscope study: {backend} has no {operation}: choose another --op, or leave it out of --backends")


def awaited(path: str) -> bytes:
    """What the first rank left there for the others."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            time.sleep(0.005)
    sys.exit(f"rankscope study: the first rank has left no {path} after {PATIENCE_S:g} s")
