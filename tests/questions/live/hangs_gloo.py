"""A training loop on Gloo that goes wrong in one way at a known step: torchrun hangs_gloo.py HOW FOLDER."""

import datetime
import mmap
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

HOW = sys.argv[1]
STEP = 3  # at which it goes wrong
dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=10))
rank = dist.get_rank()
gradient, weights = torch.ones(1000), torch.ones(10)
model = torch.nn.Linear(10, 10)
if HOW.startswith("ddp"):
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def load_data_for_ever() -> None:
    while True:
        time.sleep(0.1)


def train(number: int) -> None:
    if HOW == "ddp_sleeps" and number == STEP and rank == 3:
        load_data_for_ever()
    optimizer.zero_grad()
    model(weights).sum().backward()
    optimizer.step()


def step(number: int) -> None:
    wrong = number == STEP
    if HOW == "sleeps" and wrong and rank == 3:
        load_data_for_ever()
    if HOW == "dies" and wrong and rank == 1:
        Path(sys.argv[2], "pid").write_text(str(os.getpid()))
        load_data_for_ever()
    if HOW == "swaps" and wrong and rank == 2:
        dist.broadcast(weights, src=0)
        dist.all_reduce(gradient)
        return
    if not (HOW == "skips" and wrong and rank == 2):
        dist.all_reduce(gradient)
    dist.broadcast(weights, src=0)


number = 0
with open(Path(sys.argv[2], f"{os.getpid()}.counted"), "wb+") as file:
    file.truncate(8)
    counted = mmap.mmap(file.fileno(), 8)  # steps that are done, in a file that a kill leaves as it is
while HOW in ("healthy", "ddp") or number <= STEP:
    time.sleep(0.02)
    train(number) if HOW.startswith("ddp") else step(number)
    counted[:8] = (number + 1).to_bytes(8, "little")
    if number == 0:
        print("going", flush=True)
    number += 1
dist.barrier()
dist.destroy_process_group()
