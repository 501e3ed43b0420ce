"""A job whose ranks sleep instead of computing: whatif_program.py JOB [DELAYED_RANK DELAY_MS WHERE].

JOB is JSON: kind (ddp, pipeline, ring, sendrecv, halo), steps, milliseconds of each part, bytes of a message, rounds,
reduces, schedule, micro_batches, jitter, seed, nice. The delayed rank sleeps longer in one part. Sleeping takes as long
on a machine that other programs use, and niceness is that of the steps, so that the ranks are woken in time.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

GIVEN: dict[str, Any] = json.loads(sys.argv[1])


def sleeper(rank: int) -> Callable[[str, float], None]:
    """Sleeps for a part of a step, or a share of it: with jitter, and longer where this rank is delayed."""
    drawn = random.Random(1000 * GIVEN["seed"] + rank)
    delayed = len(sys.argv) > 2 and int(sys.argv[2]) == rank

    def sleep(part: str, share: float = 1.0) -> None:
        milliseconds = GIVEN["parts_ms"].get(part, 0.0) * (1 + GIVEN["jitter"] * drawn.uniform(-1, 1))
        if delayed and part == sys.argv[4]:
            milliseconds += float(sys.argv[3])
        time.sleep(milliseconds * share / 1e3)

    return sleep


def ddp() -> None:
    """Data-parallel training on Gloo, in two buckets."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    os.nice(GIVEN["nice"])  # of the steps and of all threads that are made from here on
    dist.init_process_group("gloo")
    sleep = sleeper(dist.get_rank())
    width = 256

    class Sleep(torch.autograd.Function):
        """Sleeps in the backward pass."""

        @staticmethod
        def forward(ctx: object, values: Any) -> Any:
            return values.clone()

        @staticmethod
        def backward(ctx: object, gradient: Any) -> Any:
            sleep("backward", 0.5)
            return gradient

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, values: Any) -> Any:
            sleep("forward")
            return Sleep.apply(self.last(Sleep.apply(self.first(values))))

    class Optimizer(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            sleep("optimizer")
            super().step()

    class Batches(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            for step in range(GIVEN["steps"]):
                sleep("data")
                yield torch.full((8, width), float(step % 7))

    torch.manual_seed(1)
    model = DistributedDataParallel(Model(), bucket_cap_mb=0.2)
    optimizer = Optimizer(model.parameters(), lr=1e-3)
    for batch in torch.utils.data.DataLoader(Batches(), batch_size=None):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


def pipeline() -> None:
    """A pipeline of torch on Gloo, a stage on each rank; what a step takes is shared out over its micro-batches."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    os.nice(GIVEN["nice"])
    dist.init_process_group("gloo")
    rank, stages, batches, width = dist.get_rank(), dist.get_world_size(), GIVEN["micro_batches"], 256
    sleep = sleeper(rank)

    class Passes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, values: Any) -> Any:
            sleep("forward", 1 / batches)
            return values.clone()

        @staticmethod
        def backward(ctx: object, gradient: Any) -> Any:
            sleep("backward", 1 / batches)
            return gradient.clone()

    class Part(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(width))

        def forward(self, values: Any) -> Any:
            return Passes.apply(values * self.weight)

    part = Part()
    stage = PipelineStage(part, rank, stages, torch.device("cpu"))
    kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[GIVEN["schedule"]]
    schedule = kind(stage, batches, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(part.parameters(), lr=1e-3)
    batch = torch.ones(batches * GIVEN["rows"], width)
    for _ in range(GIVEN["steps"]):
        optimizer.zero_grad()
        given = (batch,) if rank == 0 else ()
        schedule.step(*given, **({"target": batch} if rank == stages - 1 else {}))
        optimizer.step()
    dist.destroy_process_group()


def messages() -> None:
    """Ranks of MPI in a ring: with blocking calls, MPI_Sendrecv, or both neighbours' halos while the rank computes."""
    from mpi4py import MPI

    import rankscope

    os.nice(GIVEN["nice"])
    world = MPI.COMM_WORLD
    rank, size, kind = world.rank, world.size, GIVEN["kind"]
    right, left = (rank + 1) % size, (rank - 1) % size
    sleep = sleeper(rank)
    sent, received = (bytearray(GIVEN["bytes"]) for _ in range(2))
    others = [bytearray(GIVEN["bytes"]) for _ in range(2)]
    share = 1 / GIVEN["rounds"]

    def ring() -> None:
        sleep("send", share)
        if rank % 2 == 0:
            world.Send(sent, right)
            world.Recv(received, left)
        else:
            world.Recv(received, left)
            world.Send(sent, right)

    def sendrecv() -> None:
        sleep("send", share)
        world.Sendrecv(sent, right, recvbuf=received, source=left)

    def halo() -> None:
        posted = [world.Irecv(others[0], left, 1), world.Irecv(others[1], right, 2)]
        sleep("send", share)
        posted += [world.Isend(sent, right, 1), world.Isend(sent, left, 2)]
        sleep("inner", share)
        MPI.Request.Waitall(posted)

    exchange = {"ring": ring, "sendrecv": sendrecv, "halo": halo}[kind]
    world.Barrier()
    for _ in range(GIVEN["steps"]):
        with rankscope.range("data"):
            sleep("data")
        for _ in range(GIVEN["rounds"]):
            sleep("compute", share)
            exchange()
        if GIVEN["reduces"]:
            world.allreduce(1.0)
        rankscope.step()


if __name__ == "__main__":
    {"ddp": ddp, "pipeline": pipeline}.get(GIVEN["kind"], messages)()
