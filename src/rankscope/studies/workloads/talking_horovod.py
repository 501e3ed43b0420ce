"""Horovod, by its interface for torch."""

from __future__ import annotations

from typing import Any

from exchanges import ROOT
from talking import lacks


class Horovod:
    IN_PLACE: tuple[str, ...] = ("allreduce", "broadcast")

    def __init__(self) -> None:
        import horovod
        import horovod.torch as hvd
        import torch
        from arrays import TorchArrays

        hvd.init()
        self.hvd, self.torch, self.version, self.arrays = hvd, torch, horovod.__version__, TorchArrays("cpu")
        self.rank, self.world = hvd.rank(), hvd.size()

    def buffer(self, elements: int, value: float) -> Any:
        return self.torch.full((elements,), value, dtype=self.torch.float32)

    def allreduce(self, buffer: Any) -> None:
        self.hvd.allreduce_(buffer, op=self.hvd.Sum, name=f"sum {len(buffer)}")

    def carry_out(self, operation: str, send: Any, receive: Any) -> Any:
        name = f"{operation} {len(send)}"  # the same for the same tensor: what was agreed on once is remembered
        if operation == "allreduce":
            return self.hvd.allreduce_(send, op=self.hvd.Sum, name=name)
        if operation == "broadcast":
            return self.hvd.broadcast_(send, ROOT, name=name)
        if operation == "allgather":
            return self.hvd.allgather(send, name=name)
        if operation == "reduce_scatter":
            return self.hvd.reducescatter(send, op=self.hvd.Sum, name=name)
        if operation == "alltoall":
            return self.hvd.alltoall(send, name=name)
        if operation == "barrier":
            self.hvd.barrier()
            return receive
        return lacks("Horovod", operation)

    def first(self, buffer: Any) -> float:
        return float(buffer[0])

    def barrier(self) -> None:
        self.hvd.barrier()

    def wait(self) -> None:
        pass

    def versions(self) -> dict[str, str]:
        by = "MPI" if self.hvd.mpi_enabled() else "Gloo"
        return {"horovod": f"{self.version} by {by}", "torch": str(self.torch.__version__)}

    def close(self) -> None:
        self.hvd.shutdown()
