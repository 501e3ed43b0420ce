"""Steps of two all-reduces on MPI; CASE_RANK is held up CASE_MS before the first or second (CASE_SLOT) of each step."""

from __future__ import annotations

import os
import random
import time

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
STEPS = 80
USUAL_MS = {1: 4.0, 2: 3.0}
DELAY_MS = float(os.environ.get("CASE_MS", "0"))
SLOT = int(os.environ.get("CASE_SLOT", "0"))

random.seed(WORLD.rank)
gradients = {1: np.ones(8_192), 2: np.ones(1_024)}
held_s = 0.0
for step in range(STEPS):
    for slot, buffer in gradients.items():
        time.sleep(USUAL_MS[slot] / 1e3 * random.lognormvariate(0, 0.05))
        if slot == SLOT and WORLD.rank == int(os.environ.get("CASE_RANK", "-1")):
            begun = time.perf_counter()
            time.sleep(DELAY_MS / 1e3)
            held_s += time.perf_counter() - begun
        WORLD.Allreduce(MPI.IN_PLACE, buffer)
    if step % 20 == 19:
        WORLD.allreduce(step)
if held_s:
    print(f"held up {held_s / STEPS * 1e9:.0f} ns a step", flush=True)
