"""loses_its_folder.py FOLDER: removes the folder in the middle of a run, then does more than before."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def work(communicators: int) -> float:
    """Uses many communicators and sizes, so that the profile has to grow."""
    total = 0.0
    for _number in range(communicators):
        copy = WORLD.Dup()
        for power in range(8):
            values = np.ones(2**power)
            copy.Allreduce(MPI.IN_PLACE, values)
            total += values.sum()
        copy.Free()
    return total


def main(folder: str) -> None:
    before = work(5)
    WORLD.Barrier()
    if WORLD.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    WORLD.Barrier()
    line = f"{WORLD.rank} {before} {work(300)}\n"
    os.write(1, line.encode())  # in one piece: launchers mix what comes in several


if __name__ == "__main__":
    main(sys.argv[1])
