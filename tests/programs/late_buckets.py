"""Two ranks of DistributedDataParallel with a bucket for each layer, which sleep in backward before each bucket.

late_buckets.py STEPS EACH_MS LATE_MS: rank 1 sleeps longer before the first. While its peer sleeps before the second
one, the first is in progress, which it does not wait for yet.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, EACH_S, LATE_S = int(sys.argv[1]), float(sys.argv[2]) / 1e3, float(sys.argv[3]) / 1e3
WIDTH = 256


class Sleep(torch.autograd.Function):
    """Sleeps in the backward pass."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        time.sleep(ctx.seconds)
        return gradients[0], None


class Model(torch.nn.Module):
    def __init__(self, late_s: float) -> None:
        super().__init__()
        self.first, self.last, self.late_s = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH), late_s

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = Sleep.apply(self.first(values), EACH_S)
        return Sleep.apply(self.last(values), EACH_S + self.late_s)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Model(LATE_S if dist.get_rank() == 1 else 0.0), bucket_cap_mb=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(8, WIDTH)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    os._exit(0)  # torch's own end may abort


if __name__ == "__main__":
    main()
