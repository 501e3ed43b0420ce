"""Ranks that begin a collective, sleep in the forward pass and then wait for it, as ZeRO 3 fetches parameters."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist

STEPS, SLEEP_S = 20, 0.02

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
parameters = torch.ones(64)
for _ in range(STEPS):
    optimizer.zero_grad()
    fetched = dist.all_reduce(parameters, async_op=True)
    made = model(torch.ones(4, 16))
    time.sleep(SLEEP_S)
    fetched.wait()
    made.square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
os._exit(0)  # past this torch 2.13 now and then aborts ("terminate called …"), recorded or not
