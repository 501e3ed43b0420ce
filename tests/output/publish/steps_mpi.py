"""A training loop that mostly sleeps, and becomes slow at a known step: python steps_mpi.py STEPS SLOW_FROM."""

import sys
import time

import numpy as np
from mpi4py import MPI

import rankscope

STEPS, SLOW_FROM = int(sys.argv[1]), int(sys.argv[2])
world = MPI.COMM_WORLD
gradient, total = np.ones(1000), np.zeros(1000)
for number in range(1, STEPS + 1):
    with rankscope.range("forward"):
        time.sleep(0.03 if number < SLOW_FROM else 0.06)
    world.Allreduce(gradient, total)
    rankscope.step()
    if number == 1 and world.rank == 0:
        print("going", flush=True)
