"""Sums up and passes a ring message again and again until it is ended; prints a line when every rank is at it."""

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
sent, received = np.ones(4), np.zeros(4)
for turn in range(1 << 40):
    world.Allreduce(sent, received)
    world.Sendrecv(sent, (world.rank + 1) % world.size, recvbuf=received)
    if turn == 100 and world.rank == 0:
        print("going", flush=True)
