"""torch.distributed; ranks meet by a file in the cell's folder, which needs no address and no free port."""

from __future__ import annotations

import os
from typing import Any

import place
from exchanges import ROOT
from talking import lacks, settle

DEVICES = {"nccl": "cuda", "xccl": "xpu"}  # all others work on the host


class Torch:
    IN_PLACE: tuple[str, ...] = ("allreduce", "broadcast", "reduce")

    def __init__(self, folder: str, backend: str) -> None:
        import torch
        import torch.distributed as distributed
        from arrays import TorchArrays

        self.torch, self.distributed, self.backend = torch, distributed, backend
        self.rank, self.world = place.rank(), place.world()
        self.device = self.own_device(DEVICES.get(backend, "cpu"))
        if backend == "mpi":  # it knows its ranks by itself
            distributed.init_process_group(backend)
        else:
            meeting = f"file://{os.path.abspath(folder)}/rendezvous"
            distributed.init_process_group(backend, init_method=meeting, rank=self.rank, world_size=self.world)
        self.arrays = TorchArrays(self.device)

    def own_device(self, kind: str) -> str:
        if kind == "cpu":
            return kind
        at_hand = getattr(self.torch, kind)
        device = f"{kind}:{place.local_rank() % at_hand.device_count()}"
        at_hand.set_device(device)
        place.share_devices(at_hand.device_count())
        return device

    def buffer(self, elements: int, value: float) -> Any:
        return self.torch.full((elements,), value, dtype=self.torch.float32, device=self.device)

    def allreduce(self, buffer: Any) -> None:
        self.distributed.all_reduce(buffer)
        self.wait()

    def carry_out(self, operation: str, send: Any, receive: Any) -> Any:
        try:
            self.ask(operation, send, receive)
        except (NotImplementedError, RuntimeError) as problem:
            if "support" not in str(problem):
                raise
            lacks(f"torch's {self.backend}", operation)
        self.wait()
        return receive

    def ask(self, operation: str, send: Any, receive: Any) -> None:
        at_root = self.rank == ROOT
        if operation == "allreduce":
            self.distributed.all_reduce(send)
        elif operation == "broadcast":
            self.distributed.broadcast(send, ROOT)
        elif operation == "reduce":
            self.distributed.reduce(send, ROOT)
        elif operation == "allgather":
            self.distributed.all_gather_into_tensor(receive, send)
        elif operation == "reduce_scatter":
            self.distributed.reduce_scatter_tensor(receive, send)
        elif operation == "alltoall":
            self.distributed.all_to_all_single(receive, send)
        elif operation == "gather":
            self.distributed.gather(send, list(receive.chunk(self.world)) if at_root else None, ROOT)
        elif operation == "scatter":
            self.distributed.scatter(receive, list(send.chunk(self.world)) if at_root else None, ROOT)
        else:
            self.distributed.barrier()

    def wait(self) -> None:
        if self.device != "cpu":
            getattr(self.torch, self.device.partition(":")[0]).synchronize()

    def first(self, buffer: Any) -> float:
        return float(buffer[0])

    def barrier(self) -> None:
        self.distributed.barrier()
        self.wait()

    def versions(self) -> dict[str, str]:
        known = {"torch": str(self.torch.__version__)}
        if self.backend == "nccl":
            known["NCCL"] = ".".join(map(str, self.torch.cuda.nccl.version()))
        return known

    def close(self) -> None:
        settle()
        self.distributed.destroy_process_group()
