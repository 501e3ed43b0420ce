"""Backends as a workload uses them: the same few operations, whatever library does them."""

from __future__ import annotations

import os
import sys
from typing import Any, Protocol

import place


class Backend(Protocol):
    rank: int
    world: int

    def buffer(self, elements: int, value: float) -> Any:
        """Elements of four bytes (float32), where the backend wants them."""

    def allreduce(self, buffer: Any) -> None:
        """The sum, in place, done when it returns."""

    def first(self, buffer: Any) -> float: ...

    def barrier(self) -> None: ...

    def close(self) -> None: ...


class Mpi4py:
    def __init__(self, folder: str) -> None:
        import numpy
        from mpi4py import MPI

        self.MPI, self.numpy = MPI, numpy
        self.comm = MPI.COMM_WORLD
        self.rank, self.world = self.comm.rank, self.comm.size

    def buffer(self, elements: int, value: float) -> Any:
        return self.numpy.full(elements, value, dtype=self.numpy.float32)

    def allreduce(self, buffer: Any) -> None:
        self.comm.Allreduce(self.MPI.IN_PLACE, buffer)

    def first(self, buffer: Any) -> float:
        return float(buffer[0])

    def barrier(self) -> None:
        self.comm.Barrier()

    def close(self) -> None:
        pass


class Torch:
    """torch.distributed; ranks meet by a file in the cell's folder, which needs no address and no free port."""

    def __init__(self, folder: str, backend: str) -> None:
        import torch
        import torch.distributed as distributed

        self.torch, self.distributed = torch, distributed
        self.rank, self.world = place.rank(), place.world()
        self.device = "cpu"
        if backend == "nccl":
            self.device = f"cuda:{place.local_rank() % torch.cuda.device_count()}"
            torch.cuda.set_device(self.device)
            os.environ.setdefault("NCCL_HOSTID", f"{os.uname().nodename}-{self.rank}")  # ranks may share a device
        meeting = f"file://{os.path.abspath(folder)}/rendezvous"
        distributed.init_process_group(backend, init_method=meeting, rank=self.rank, world_size=self.world)

    def buffer(self, elements: int, value: float) -> Any:
        return self.torch.full((elements,), value, dtype=self.torch.float32, device=self.device)

    def allreduce(self, buffer: Any) -> None:
        self.distributed.all_reduce(buffer)
        self.wait()

    def wait(self) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def first(self, buffer: Any) -> float:
        return float(buffer[0])

    def barrier(self) -> None:
        self.distributed.barrier()
        self.wait()

    def close(self) -> None:
        self.distributed.destroy_process_group()


def connected(name: str, folder: str) -> Backend:
    """The backend, initialised; what it imports is imported here."""
    if name == "mpi4py":
        return Mpi4py(folder)
    if name in ("gloo", "nccl"):
        return Torch(folder, name)
    sys.exit(f"{name}: no such backend")
