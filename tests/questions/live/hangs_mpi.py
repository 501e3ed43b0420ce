"""A training loop on MPI that goes wrong in one way at a known step: python hangs_mpi.py HOW [FOLDER]."""

import mmap
import os
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

HOW = sys.argv[1]
STEP = 5  # at which it goes wrong
world = MPI.COMM_WORLD
pairs = world.Dup()
gradient, total = np.ones(1000), np.zeros(1000)
loss, losses = np.ones(1), np.zeros(1)
weights = np.ones(10)


def load_data_for_ever() -> None:
    while True:
        time.sleep(0.1)


def compute_for_ever() -> None:
    while True:
        pass


def step(number: int) -> None:
    wrong = number == STEP
    if HOW == "sleeps" and wrong and world.rank == 3:
        load_data_for_ever()
    if HOW == "computes" and wrong and world.rank == 3:
        compute_for_ever()
    if HOW == "dies" and wrong and world.rank == 1:
        Path(sys.argv[2], "pid").write_text(str(os.getpid()))
        load_data_for_ever()
    if HOW == "other_group" and wrong and world.rank == 2:
        pairs.Allreduce(loss, losses)
    if HOW == "swaps" and wrong and world.rank == 2:
        world.Bcast(weights, root=0)
        world.Allreduce(gradient, total)
        return
    if not (HOW == "skips" and wrong and world.rank == 2):
        world.Allreduce(gradient, total)
    if HOW == "leaves" and wrong and world.rank == 2:
        return
    world.Bcast(weights, root=0)
    pairs.Allreduce(loss, losses)


if HOW == "counts":  # each call that has returned, in a file that a kill leaves as it is
    with open(Path(sys.argv[2], f"{os.getpid()}.counted"), "wb+") as file:
        file.truncate(8)
        counted = mmap.mmap(file.fileno(), 8)
    print("going", flush=True)
    for done in range(1 << 40):
        world.Allreduce(loss, losses)
        counted[:8] = (done + 1).to_bytes(8, "little")
if HOW == "receives":
    if world.rank == 3:
        world.Recv(loss, source=2, tag=7)
    world.Barrier()
if HOW == "deadlocks":  # each waits for the message that the other would send next
    pairs.Recv(loss, source=world.rank ^ 1)
if HOW == "unsent":
    if world.rank != 3:
        load_data_for_ever()
    world.Irecv(loss, source=2, tag=8).Wait()
print("going", flush=True)
number = 0
while HOW in ("healthy", "slow") or number <= STEP:
    if HOW == "leaves" and number == STEP and world.rank == 2:
        break
    time.sleep(0.05 if HOW == "slow" and world.rank == 2 else 0.01)
    step(number)
    number += 1
