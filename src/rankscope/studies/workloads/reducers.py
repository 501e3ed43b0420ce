"""How the ranks of a training over MPI sum their gradients: mpi4py, Horovod, or torch's own MPI backend.

What a reducer asks of MPI itself it counts, by routine and size, so that a recording can be held against it.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy

LIBRARIES = ("mpi4py", "horovod", "torch")


class Reducer(Protocol):
    rank: int
    world: int
    counted: dict[str, dict[int, int]]  # routine to size to calls; empty where the library calls MPI by itself

    def broadcast(self, array: Any) -> None:
        """From rank 0, in place."""

    def add_up(self, array: Any) -> None:
        """The sum over all ranks, in place."""

    def agree(self, ready: int) -> int:
        """The bits that all ranks have set: eight bytes, as a framework asks whether a tensor is ready everywhere."""

    def gather(self, number: int) -> None:
        """Four bytes from every rank to rank 0."""


class Mpi4py:
    def __init__(self) -> None:
        from mpi4py import MPI

        self.MPI = MPI
        self.comm = MPI.COMM_WORLD
        self.rank, self.world = self.comm.rank, self.comm.size
        self.counted: dict[str, dict[int, int]] = {}

    def count(self, routine: str, size: int) -> None:
        sizes = self.counted.setdefault(routine, {})
        sizes[size] = sizes.get(size, 0) + 1

    def broadcast(self, array: Any) -> None:
        self.count("MPI_Bcast", array.nbytes)
        self.comm.Bcast(array, root=0)

    def add_up(self, array: Any) -> None:
        self.count("MPI_Allreduce", array.nbytes)
        self.comm.Allreduce(self.MPI.IN_PLACE, array, self.MPI.SUM)

    def agree(self, ready: int) -> int:
        word = numpy.array([ready], dtype=numpy.int64)
        self.count("MPI_Allreduce", word.nbytes)
        self.comm.Allreduce(self.MPI.IN_PLACE, word, self.MPI.BAND)
        return int(word[0])

    def gather(self, number: int) -> None:
        own_number = numpy.array([number], dtype=numpy.int32)
        everyone = numpy.zeros(self.world, dtype=numpy.int32) if self.rank == 0 else None
        self.count("MPI_Gather", own_number.nbytes)
        self.comm.Gather(own_number, everyone, root=0)


class Horovod:
    """Its background thread agrees on what is ready by itself; tensors keep their names, by which it knows them."""

    def __init__(self) -> None:
        import horovod.torch as horovod
        import torch

        horovod.init()
        self.horovod, self.torch = horovod, torch
        self.rank, self.world = horovod.rank(), horovod.size()
        self.counted: dict[str, dict[int, int]] = {}

    def broadcast(self, array: Any) -> None:
        self.horovod.broadcast_(self.torch.from_numpy(array), root_rank=0, name=f"start{array.size}")

    def add_up(self, array: Any) -> None:
        self.horovod.allreduce_(self.torch.from_numpy(array), op=self.horovod.Sum, name=f"sum{array.size}")

    def agree(self, ready: int) -> int:
        return ready

    def gather(self, number: int) -> None:
        self.horovod.allgather(self.torch.tensor([number], dtype=self.torch.int32), name="number")


class TorchMpi:
    def __init__(self) -> None:
        import torch
        import torch.distributed as distributed

        distributed.init_process_group("mpi")
        self.torch, self.distributed = torch, distributed
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        self.counted: dict[str, dict[int, int]] = {}

    def broadcast(self, array: Any) -> None:
        self.distributed.broadcast(self.torch.from_numpy(array), src=0)

    def add_up(self, array: Any) -> None:
        self.distributed.all_reduce(self.torch.from_numpy(array))

    def agree(self, ready: int) -> int:
        word = self.torch.tensor([ready], dtype=self.torch.int64)
        self.distributed.all_reduce(word, op=self.distributed.ReduceOp.MIN)  # its MPI has no operation on bits
        return int(word[0])

    def gather(self, number: int) -> None:
        own_number = self.torch.tensor([number], dtype=self.torch.int32)
        everyone = [self.torch.zeros_like(own_number) for _ in range(self.world)] if self.rank == 0 else None
        self.distributed.gather(own_number, everyone, dst=0)


def reducer_of(library: str) -> Reducer:
    reducers: dict[str, type[Reducer]] = {"mpi4py": Mpi4py, "horovod": Horovod, "torch": TorchMpi}
    return reducers[library]()
