"""A small training with parts that can be made slower: SLOWER=forward:1.05 lets that part do 5 % more of its work."""

from __future__ import annotations

import os
import time

import numpy as np
from mpi4py import MPI

import rankscope

WORLD = MPI.COMM_WORLD
STEPS = int(os.environ.get("STEPS", "80"))
# in units of work; data waits, the others compute
PARTS = {"data": 50, "forward": 80, "backward": 80, "optimizer": 40}
part, _, factor = os.environ.get("SLOWER", "").partition(":")
if part:
    PARTS[part] = round(PARTS[part] * float(factor))

weights = np.random.default_rng(1).normal(size=(24, 24))
gradients = np.ones(4_096)


def work(units: int) -> None:
    """About 20 µs each on an idle core."""
    made = weights
    for _ in range(units * 6):
        made = np.tanh(weights @ made)


for _ in range(STEPS):
    for name, units in PARTS.items():
        with rankscope.range(name):
            if name == "data":
                time.sleep(units * 2e-5)
            else:
                work(units)
    WORLD.Allreduce(MPI.IN_PLACE, gradients)
    rankscope.step()
