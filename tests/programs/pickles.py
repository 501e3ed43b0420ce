"""Broadcasts and gathers as objects, or with the argument `buffers` as arrays."""

import sys

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
ROUNDS = 100

for _ in range(ROUNDS):
    data = np.ones(200_000)
    if "buffers" in sys.argv:
        WORLD.Bcast(data, root=0)
    else:
        WORLD.bcast(data if WORLD.rank == 0 else None, root=0)
