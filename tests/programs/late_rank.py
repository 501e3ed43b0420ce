"""Ranks that meet in collectives, one of them late by a known time; each writes down when it called them.

late_rank.py FOLDER STEPS LATE_RANK LATE_MS [NAME ...]: names of collectives, called in turn in each step.
LATE_ELEMENTS: how many numbers they carry.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

folder, steps, late_rank, late_ms = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
names = sys.argv[5:] or ["Allreduce"]
world = MPI.COMM_WORLD
elements = int(os.environ.get("LATE_ELEMENTS", "1000"))
mine, result = np.ones(elements), np.empty(elements)
CALLS = {
    "Allreduce": lambda: world.Allreduce(mine, result),
    "Iallreduce": lambda: world.Iallreduce(mine, result).Wait(),
    "Barrier": world.Barrier,
    "Bcast": lambda: world.Bcast(mine, root=late_rank),
    "Reduce": lambda: world.Reduce(mine, result, root=0),
}
random = np.random.default_rng(world.rank)
world.Barrier()
calls: list[tuple[int, int]] = []
for _ in range(steps):
    for name in names:
        # nobody computes: ranks that share a core must not take it from each other
        time.sleep(0.002 + 0.002 * random.random() + (late_ms / 1e3 if world.rank == late_rank else 0.0))
        before = time.time_ns()
        CALLS[name]()
        calls.append((before, time.time_ns()))
np.save(folder / f"calls-{world.rank}.npy", np.array(calls))
