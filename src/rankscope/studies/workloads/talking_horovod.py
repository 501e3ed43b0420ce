"""Horovod, by its interface for torch; over MPI, or over Gloo, whose ranks meet as those of `horovodrun` do."""

from __future__ import annotations

import os
import socket
from typing import Any

import place
from exchanges import ROOT
from talking import awaited, lacks


class Horovod:
    IN_PLACE: tuple[str, ...] = ("allreduce", "broadcast")

    def __init__(self, folder: str, by_gloo: bool = False) -> None:
        if by_gloo:
            self.server = meet(os.path.join(folder, "horovod-port"))
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


def meet(path: str) -> Any:
    """The variables that `horovodrun` sets; the first rank has the server that the others ask for it by a file."""
    server, rank, world = None, place.rank(), place.world()
    alone = place.local_world() == world
    address = "127.0.0.1" if alone else socket.gethostname()
    if rank == 0:
        server = rendezvous_server(world, f"{path}.new", address)
        os.replace(f"{path}.new", path)
    address, port = awaited(path).decode().split()
    chosen = {
        "RANK": rank,
        "SIZE": world,
        "LOCAL_RANK": place.local_rank(),
        "LOCAL_SIZE": place.local_world(),
        "CROSS_RANK": rank // place.local_world(),
        "CROSS_SIZE": world // place.local_world(),
        "HOSTNAME": address if alone else socket.gethostname(),
        "GLOO_RENDEZVOUS_ADDR": address,
        "GLOO_RENDEZVOUS_PORT": port,
        "CONTROLLER": "gloo",
        "CPU_OPERATIONS": "gloo",
        **({"GLOO_IFACE": "lo"} if alone else {}),
    }
    for name, value in chosen.items():
        os.environ.setdefault(f"HOROVOD_{name}", str(value))
    return server


def rendezvous_server(world: int, path: str, address: str) -> Any:
    """Horovod's own, in a thread of this process; its address is left in the file."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer()
    port = server.start()
    server.init(get_host_assignments(parse_hosts(f"{address}:{world}"), world))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{address} {port}")
    return server
