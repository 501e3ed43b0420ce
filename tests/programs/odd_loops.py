"""A loop whose optimizer is given a closure, then one in which a scaler steps within a range of the program: prints how
long each forward pass slept. Its process group serves a mesh of one dimension."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

CLOSURES, SCALED, FORWARD_S = 4, 6, 0.02


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
    init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    dist.all_reduce(torch.ones(4))
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def closure() -> torch.Tensor:
        time.sleep(FORWARD_S)
        loss = model(torch.ones(2, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        return loss

    for _ in range(CLOSURES):
        optimizer.step(closure)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(SCALED):
        loss = model(torch.ones(2, 8)).square().mean() * (float("inf") if step % 2 else 1.0)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        with torch.autograd.profiler.record_function("optimizer"):
            scaler.step(optimizer)
        scaler.update()
    sys.stdout.flush()
    os._exit(0)  # torch 2.13 now and then aborts when it takes its groups down


if __name__ == "__main__":
    main()
