"""A small training with parts that can be made slower: SLOWER=forward:1.05 lets that part take 5 % longer.

Parts wait instead of computing: a change of 5 % in computing cannot be seen where other programs use the same CPUs.
WORK=compute lets them compute, for machines of which one has the use alone.
"""

from __future__ import annotations

import os
import time

import numpy as np
from mpi4py import MPI

import rankscope

WORLD = MPI.COMM_WORLD
STEPS = int(os.environ.get("STEPS", "30"))
COMPUTES = os.environ.get("WORK") == "compute"
PARTS_MS = {"data": 8.0, "forward": 40.0, "backward": 50.0, "optimizer": 10.0}
part, _, factor = os.environ.get("SLOWER", "").partition(":")
if part:
    PARTS_MS[part] *= float(factor)

weights = np.random.default_rng(1).normal(size=(24, 24))
gradients = np.ones(4_096)


def spend(milliseconds: float) -> None:
    """Wait, or compute for about as long on an idle core."""
    if not COMPUTES:
        time.sleep(milliseconds / 1e3)
        return
    made = weights
    for _ in range(round(milliseconds * 300)):
        made = np.tanh(weights @ made)


for _ in range(STEPS):
    for name, milliseconds in PARTS_MS.items():
        with rankscope.range(name):
            spend(milliseconds)
    WORLD.Allreduce(MPI.IN_PLACE, gradients)
    rankscope.step()
