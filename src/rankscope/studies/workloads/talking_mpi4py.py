"""mpi4py: MPI by numpy buffers."""

from __future__ import annotations

from typing import Any

from exchanges import ROOT


class Mpi4py:
    IN_PLACE: tuple[str, ...] = ("broadcast",)

    def __init__(self) -> None:
        import numpy
        from arrays import NumpyArrays
        from mpi4py import MPI

        self.MPI, self.numpy, self.arrays = MPI, numpy, NumpyArrays()
        self.own = not MPI.Is_initialized()
        if self.own:  # the program has asked mpi4py to leave it to us
            MPI.Init_thread()
        self.comm = MPI.COMM_WORLD
        self.rank, self.world = self.comm.rank, self.comm.size

    def buffer(self, elements: int, value: float) -> Any:
        return self.numpy.full(elements, value, dtype=self.numpy.float32)

    def allreduce(self, buffer: Any) -> None:
        self.comm.Allreduce(self.MPI.IN_PLACE, buffer)

    def carry_out(self, operation: str, send: Any, receive: Any) -> Any:
        at_root = self.rank == ROOT
        if operation == "allreduce":
            self.comm.Allreduce(send, receive)
        elif operation == "broadcast":
            self.comm.Bcast(send, ROOT)
        elif operation == "reduce":
            self.comm.Reduce(send, receive if at_root else None, root=ROOT)
        elif operation == "allgather":
            self.comm.Allgather(send, receive)
        elif operation == "reduce_scatter":
            self.comm.Reduce_scatter_block(send, receive)
        elif operation == "alltoall":
            self.comm.Alltoall(send, receive)
        elif operation == "gather":
            self.comm.Gather(send, receive if at_root else None, ROOT)
        elif operation == "scatter":
            self.comm.Scatter(send if at_root else None, receive, ROOT)
        else:
            self.comm.Barrier()
        return receive

    def first(self, buffer: Any) -> float:
        return float(buffer[0])

    def barrier(self) -> None:
        self.comm.Barrier()

    def wait(self) -> None:
        pass

    def versions(self) -> dict[str, str]:
        import mpi4py

        return {"mpi4py": mpi4py.__version__, "MPI": self.MPI.Get_library_version().split("\n")[0].strip("\0 ")[:80]}

    def close(self) -> None:
        if self.own and not self.MPI.Is_finalized():
            self.MPI.Finalize()
