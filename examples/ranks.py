"""Several ranks of torch.distributed on whatever hardware there is: many GPUs, one GPU shared by all ranks, or none.

NCCL refuses two ranks on one device of one host, so ranks that share a GPU each claim to be a separate host
(`NCCL_HOSTID`) and talk over the loopback interface: transfers are slow, but NCCL's kernels and algorithms are real.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class World:
    """This process's rank, and the device it computes on."""

    rank: int
    size: int
    device: Any

    @property
    def on_gpu(self) -> bool:
        return bool(self.device.type == "cuda")

    @property
    def backend(self) -> str:
        return "nccl" if self.on_gpu else "gloo"

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """An NVTX range, where there is a GPU."""
        if self.on_gpu:
            torch.cuda.nvtx.range_push(name)
        yield
        if self.on_gpu:
            torch.cuda.nvtx.range_pop()


def spawn(ranks: int) -> None:
    """Start this script once per rank and exit with them, unless torchrun (or this function) has done so already."""
    if ranks <= 1 or "RANK" in os.environ:
        return
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    children = []
    for rank in range(ranks):
        environment = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        children.append(subprocess.Popen([sys.executable, *sys.argv], env=environment))
    codes = [child.wait() for child in children]
    sys.exit(max(abs(code) for code in codes))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def join() -> World:
    """Set up this process's rank and device; with more than one rank, also the process group."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", str(rank)))
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", local_rank % gpus) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    if gpus and size > gpus:
        os.environ["NCCL_HOSTID"] = f"rank{rank}"
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    world = World(rank, size, device)
    if size > 1:
        dist.init_process_group(world.backend)
    return world


def leave(world: World) -> None:
    if world.size > 1:
        dist.destroy_process_group()
