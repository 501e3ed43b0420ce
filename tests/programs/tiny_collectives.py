"""Steps of one large all-reduce and many tiny ones, or with the argument `fused` of the large one alone."""

import sys
import time

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
STEPS = 40
LAYERS = 120

large, small = np.ones(100_000), [np.ones(16 + layer) for layer in range(LAYERS)]
for _ in range(STEPS):
    time.sleep(0.001)
    WORLD.Allreduce(MPI.IN_PLACE, large)
    for gradient in small if "fused" not in sys.argv else []:
        WORLD.Allreduce(MPI.IN_PLACE, gradient)
