"""Two ranks of DDP whose gradients a communication hook of Python reduces; rank 1 sleeps in the forward pass."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

STEPS, SLEEP_S = 20, 0.02

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(16, 16))
model.register_comm_hook(dist.group.WORLD, allreduce_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(STEPS):
    optimizer.zero_grad()
    made = model(torch.ones(4, 16))
    time.sleep(SLEEP_S * dist.get_rank())
    made.square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
os._exit(0)  # past this torch 2.13 now and then aborts ("terminate called …"), recorded or not
