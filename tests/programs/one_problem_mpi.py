"""Small programs of mpi4py with one problem put into each: one_problem_mpi.py PROBLEM [--without] [--steps N].

Prints, for each rank, the seconds of its loop as JSON.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from mpi4py import MPI

LATE_S, WORK_S, STALL_S = 0.02, 0.004, 3.0
PROBLEMS = ("nonblocking", "stall", "oversubscribed")


def work(seconds: float) -> None:
    """So much CPU time, however long that takes."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def main() -> None:
    given = options()
    world = MPI.COMM_WORLD
    mine, summed = np.ones(2_000), np.zeros(2_000)
    world.Barrier()
    begun = time.perf_counter()
    for step in range(given.steps):
        if given.problem == "nonblocking":  # all wait for rank 1, in MPI_Wait
            request = world.Iallreduce(mine, summed)
            time.sleep(WORK_S + (LATE_S if given.on and world.rank == 1 else 0.0))
            request.Wait()
        elif given.problem == "stall":  # all wait for rank 1, once
            time.sleep(WORK_S + (STALL_S if given.on and world.rank == 1 and step == given.steps // 2 else 0.0))
            world.Allreduce(mine, summed)
        else:
            work(WORK_S)
            world.Allreduce(mine, summed)
    world.Barrier()
    print(json.dumps({"rank": world.rank, "loop_s": time.perf_counter() - begun}), flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("--without", dest="on", action="store_false", help="the same program without the problem")
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
