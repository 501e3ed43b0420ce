"""pipeline.py [--slow-stage N]: a pipeline of torch on NCCL, a stage for each rank; under torchrun, on one GPU.

A stage waits for its input, computes a little and then sleeps for --stage-ms a micro-batch and pass (backward twice
that), as if it computed so long in a device of its own: ranks that share a device would take its time from each other.
--slow-stage takes --factor times as long. Prints the median step in ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


class Pause(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        torch.cuda.current_stream().synchronize()
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        torch.cuda.current_stream().synchronize()
        time.sleep(2 * ctx.seconds)
        return gradient, None


class Stage(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.linear, self.seconds = torch.nn.Linear(512, 512), seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Pause.apply(self.linear(x), self.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow-stage", type=int, default=-1)
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--stage-ms", type=float, default=3.0)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="gpipe")
    options = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ["NCCL_HOSTID"] = f"host{rank}"  # ranks that share a GPU: each is a host of its own for NCCL
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl", device_id=device)
    seconds = options.stage_ms / 1e3 * (options.factor if rank == options.slow_stage else 1)
    model = Stage(seconds).to(device)
    stage = PipelineStage(model, rank, ranks, device)
    kind = ScheduleGPipe if options.schedule == "gpipe" else Schedule1F1B
    schedule = kind(stage, options.micro_batches, loss_fn=lambda y, target: (y - target).square().mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(options.micro_batches * 64, 512, device=device)
    took = []
    for _ in range(options.steps):
        begun = time.perf_counter()
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        elif rank == ranks - 1:
            schedule.step(target=torch.zeros_like(x))
        else:
            schedule.step()
        optimizer.step()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - begun) * 1e3)
    if rank == 0:
        print(f"median step {statistics.median(took[5:]):.3f} ms", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
