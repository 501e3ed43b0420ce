"""A training on Gloo whose ranks sleep instead of computing: whatif_program.py STEPS [DELAY_RANK DELAY_MS WHERE].

DDP, in two buckets; WHERE the delayed rank sleeps longer: data, forward, backward or optimizer. Sleeping takes as long
on a machine that other programs use.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PARTS_MS = {"data": 6.0, "forward": 15.0, "backward": 25.0, "optimizer": 5.0}
WIDTH = 256


class Sleep(torch.autograd.Function):
    """Sleeps in the backward pass."""

    @staticmethod
    def forward(ctx: object, values: torch.Tensor, milliseconds: float) -> torch.Tensor:
        ctx.milliseconds = milliseconds  # type: ignore[attr-defined]
        return values.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(ctx.milliseconds / 1e3)  # type: ignore[attr-defined]
        return gradient, None


class Model(nn.Module):
    def __init__(self, parts_ms: dict[str, float]) -> None:
        super().__init__()
        self.first, self.last, self.parts_ms = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), parts_ms

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        time.sleep(self.parts_ms["forward"] / 1e3)
        between = Sleep.apply(self.first(values), self.parts_ms["backward"] / 2)
        return Sleep.apply(self.last(between), self.parts_ms["backward"] / 2)


class Optimizer(torch.optim.SGD):
    milliseconds = 0.0

    def step(self, closure: object = None) -> None:
        time.sleep(self.milliseconds / 1e3)
        super().step()


def batches(steps: int, milliseconds: float) -> Iterator[torch.Tensor]:
    for step in range(steps):
        time.sleep(milliseconds / 1e3)
        yield torch.full((8, WIDTH), float(step % 7))


def main() -> None:
    steps = int(sys.argv[1])
    dist.init_process_group("gloo")
    parts = dict(PARTS_MS)
    if len(sys.argv) > 2 and int(sys.argv[2]) == dist.get_rank():
        parts[sys.argv[4]] += float(sys.argv[3])
    torch.manual_seed(1)
    model = DistributedDataParallel(Model(parts), bucket_cap_mb=0.2)
    optimizer = Optimizer(model.parameters(), lr=1e-3)
    optimizer.milliseconds = parts["optimizer"]
    for batch in batches(steps, parts["data"]):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
