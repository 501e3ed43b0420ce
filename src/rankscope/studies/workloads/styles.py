"""How the ranks of a training share the model: DDP, FSDP, or one that holds it and sends it to the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn

BUCKET_BYTES = 10 * 1024 * 1024  # what DataParallel sends at a time
STYLES = ("ddp", "data-parallel", "fsdp")


class Style:
    """Every rank has a replica; gradients are summed by DDP while they are computed."""

    def __init__(self, model: Any, world: int) -> None:
        self.world = world
        self.inner = model
        self.model = nn.parallel.DistributedDataParallel(model) if world > 1 else model

    def before(self) -> None:
        """Before a step's forward pass."""

    def after(self, optimizer: Any) -> None:
        """After its backward pass: the optimizer's step."""
        optimizer.step()

    def differs(self) -> str:
        """What is wrong with the replicas at the end; "" where nothing is."""
        return differing(self.inner.parameters(), self.world)


class DataParallel(Style):
    """What torch.nn.DataParallel does with the devices of one process, done with ranks.

    Rank 0 holds the model. Before each step it sends the parameters to all, after it it gets the sum of gradients.
    """

    def __init__(self, model: Any, world: int) -> None:
        self.world = world
        self.inner = self.model = model

    def before(self) -> None:
        if self.world > 1:
            with torch.no_grad():
                for bucket in buckets(list(self.model.parameters())):
                    flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                    distributed.broadcast(flat, src=0)
                    spread(flat, bucket)

    def after(self, optimizer: Any) -> None:
        if self.world > 1:
            for bucket in buckets([parameter.grad for parameter in self.model.parameters()]):
                flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                distributed.reduce(flat, dst=0)
                spread(flat / self.world, bucket)
            if distributed.get_rank():  # the step of the others changes nothing, and still ends what is recorded
                optimizer.zero_grad()
        optimizer.step()

    def differs(self) -> str:
        self.before()  # the others have what the last step began with
        return super().differs()


class Fsdp(Style):
    """Every rank has a part of each parameter; they are gathered for their use and thrown away after it."""

    def __init__(self, model: Any, world: int) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.world = world
        device = next(model.parameters()).device.type
        mesh = init_device_mesh(device, (world,))
        for part in model.children():
            if sum(parameter.numel() for parameter in part.parameters()):
                fully_shard(part, mesh=mesh)
        self.inner = self.model = fully_shard(model, mesh=mesh)

    def differs(self) -> str:
        return ""  # there are no replicas


def buckets(tensors: list[Any]) -> list[list[Any]]:
    """Those that go together."""
    groups: list[list[Any]] = [[]]
    size = 0
    for tensor in tensors:
        if size and size + tensor.nbytes > BUCKET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(tensor)
        size += tensor.nbytes
    return groups


def spread(flat: Any, bucket: list[Any]) -> None:
    for tensor, part in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
        tensor.copy_(part.view_as(tensor))


def differing(parameters: Iterable[Any], world: int) -> str:
    """Whether the ranks' parameters are not the same, in words."""
    if world == 1:
        return ""
    with torch.no_grad():
        own_sum = sum(parameter.double().abs().sum() for parameter in parameters).reshape(1)
    gathered = [torch.zeros_like(own_sum) for _ in range(world)]
    distributed.all_gather(gathered, own_sum)
    sums = [float(value) for value in gathered]
    return f"parameters differ between ranks: {sums}" if max(sums) - min(sums) > 1e-4 * max(sums) else ""


def style_of(name: str, model: Any, world: int) -> Style:
    return {"ddp": Style, "data-parallel": DataParallel, "fsdp": Fsdp}[name](model, world)
