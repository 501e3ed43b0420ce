"""A pipeline of torch.distributed.pipelining on Gloo whose passes take a known time: they sleep.

    torchrun --nproc-per-node RANKS pipelines.py --schedule 1f1b --micro-batches 8 [--stages 4] [--forward-ms 10] …

A forward pass of one micro-batch on one rank takes --forward-ms, its backward pass twice that, so that many ranks on
few cores are still in time. With fewer stages than ranks, the pipelines are data-parallel: each stage reduces its
gradients over them at the end of a step. --slow makes one thing slow: stage=2:1.5, rank=3:1.5 (passes so many times as
long) or link=1-2:20 (what the first of two ranks sends to the second is under way for so many milliseconds).
"""

from __future__ import annotations

import argparse
import importlib.abc
import os
import queue
import sys
import threading
import time
from typing import Any


def options() -> argparse.Namespace:
    made = argparse.ArgumentParser()
    made.add_argument("--schedule", choices=["gpipe", "1f1b", "interleaved"], required=True)
    made.add_argument("--micro-batches", type=int, required=True)
    made.add_argument("--stages", type=int, default=int(os.environ["WORLD_SIZE"]), help="ranks of one pipeline")
    made.add_argument("--chunks", type=int, default=2, help="interleaved: parts of the model on each rank")
    made.add_argument("--forward-ms", type=float, default=10.0)
    made.add_argument("--steps", type=int, default=6)
    made.add_argument("--slow", default="")
    made.add_argument("--nice", type=int, default=0, help="niceness from here on: of the steps, not of the imports")
    return made.parse_args()


# ---------------------------------------------------------------- a slow link
class SlowLink(importlib.abc.MetaPathFinder):
    """Holds messages to one rank back, below all that watches torch: in place before torch.distributed is made."""

    def __init__(self, receiver: int, delay_s: float) -> None:
        self.receiver, self.delay_s = receiver, delay_s  # its rank in the group of its pipeline
        self.due: queue.SimpleQueue[tuple[float, Any, Any, tuple[Any, ...]]] = queue.SimpleQueue()

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name != "torch.distributed.distributed_c10d":
            return
        import torch
        from torch._C._distributed_c10d import ProcessGroup, _create_work_from_future

        original = ProcessGroup.send

        def send(group: Any, tensors: Any, receiver: int, tag: int) -> Any:
            if receiver != self.receiver:
                return original(group, tensors, receiver, tag)
            arrived = torch.futures.Future()  # type: ignore[var-annotated]
            self.due.put((time.monotonic() + self.delay_s, original, arrived, (group, tensors, receiver, tag)))
            return _create_work_from_future(arrived)

        ProcessGroup.send = send
        threading.Thread(target=self._deliver, daemon=True).start()

    def _deliver(self) -> None:
        while True:
            when, original, arrived, message = self.due.get()
            time.sleep(max(0.0, when - time.monotonic()))
            original(*message).wait()
            arrived.set_result([])


asked = options()
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
stages = asked.stages
kind, _, told = asked.slow.partition("=")
where, _, amount = told.partition(":")
if kind == "link" and int(where.split("-")[0]) == rank:
    sys.meta_path.insert(0, SlowLink(int(where.split("-")[1]) % stages, float(amount) / 1e3))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.pipelining import (  # noqa: E402
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

WIDTH = 1024


class Sleeps(torch.autograd.Function):
    """Takes its time on the way there, and twice that on the way back."""

    @staticmethod
    def forward(ctx: Any, values: Any, forward_s: float) -> Any:
        ctx.forward_s = forward_s
        time.sleep(forward_s)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        time.sleep(2 * ctx.forward_s)
        return gradient.clone(), None


class Part(torch.nn.Module):
    """What one stage computes."""

    def __init__(self, forward_s: float) -> None:
        super().__init__()
        self.forward_s, self.weight = forward_s, torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, values: Any) -> Any:
        return Sleeps.apply(values * self.weight, self.forward_s)


torch.set_num_threads(1)
os.nice(asked.nice)  # threads that are made from here on have it, too
dist.init_process_group("gloo")
replica, place = divmod(rank, stages)
pipelines = [dist.new_group(list(range(at, at + stages))) for at in range(0, size, stages)]
replicas = [dist.new_group(list(range(at, size, stages))) for at in range(stages)] if size > stages else []
slowed = (kind == "stage" and int(where) == place) or (kind == "rank" and int(where) == rank)
chunks = asked.chunks if asked.schedule == "interleaved" else 1
forward_s = asked.forward_ms / 1e3 / chunks * (float(amount) if slowed else 1.0)
parts = [Part(forward_s) for _ in range(chunks)]
made = [
    PipelineStage(part, place + at * stages, stages * chunks, torch.device("cpu"), group=pipelines[replica])
    for at, part in enumerate(parts)
]
about: dict[str, Any] = {"n_microbatches": asked.micro_batches, "loss_fn": torch.nn.functional.mse_loss}
schedule = (
    ScheduleInterleaved1F1B(list(made), **about)  # type: ignore[arg-type]
    if asked.schedule == "interleaved"
    else (ScheduleGPipe if asked.schedule == "gpipe" else Schedule1F1B)(made[0], **about)
)
optimizer = torch.optim.SGD([weight for part in parts for weight in part.parameters()], lr=1e-3)
data = torch.ones(asked.micro_batches, WIDTH)
for _ in range(asked.steps):
    optimizer.zero_grad()
    given = (data,) if place == 0 else ()
    schedule.step(*given, **({"target": data} if place == stages - 1 else {}))
    if replicas:
        for part in parts:
            dist.all_reduce(part.weight.grad, group=replicas[place])
    optimizer.step()
dist.destroy_process_group()
