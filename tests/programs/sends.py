"""Sends known numbers of bytes to known ranks in every way that has a destination."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def main() -> None:
    right, left = (WORLD.rank + 1) % WORLD.size, (WORLD.rank - 1) % WORLD.size
    received = np.empty(1000, np.uint8)

    request = WORLD.Irecv(received, left)
    WORLD.Send(np.zeros(100, np.uint8), right)
    request.Wait()

    request = WORLD.Irecv(received, left)
    WORLD.Isend(np.zeros(20, np.uint8), right).Wait()
    request.Wait()

    WORLD.Sendrecv(np.zeros(3, np.uint8), right, recvbuf=received, source=left)
    WORLD.Send(np.zeros(500, np.uint8), MPI.PROC_NULL)

    persistent = WORLD.Send_init(np.zeros(7, np.uint8), right)
    for _ in range(2):
        request = WORLD.Irecv(received, left)
        persistent.Start()
        persistent.Wait()
        request.Wait()
    persistent.Free()

    # ranks in reverse order, so that a rank of this communicator is another one of the world
    reverse = WORLD.Split(0, WORLD.size - WORLD.rank)
    after, before = (reverse.rank + 1) % reverse.size, (reverse.rank - 1) % reverse.size
    reverse.Sendrecv(np.zeros(50, np.uint8), after, recvbuf=received, source=before)
    reverse.Free()


if __name__ == "__main__":
    main()
