"""counts_itself.py FOLDER ENDING [rounds]: the same bookkeeping as counts_itself.c, from mpi4py."""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpi4py

mpi4py.rc.initialize = False
from mpi4py import MPI  # noqa: E402

NAMES = ("MPI_Init_thread", "MPI_Allreduce", "MPI_Isend", "MPI_Irecv", "MPI_Wait", "MPI_Barrier", "MPI_Finalize")
HEAD, COUNT = struct.Struct("QQQ"), struct.Struct("24sQQ")


def share(folder: Path) -> mmap.mmap:
    """The counts file of this process, complete before the test can see it."""
    path = folder / f"{os.getpid()}.counts"
    part = path.with_suffix(".part")
    body = b"".join(COUNT.pack(name.encode(), 0, 0) for name in NAMES)
    part.write_bytes(HEAD.pack(os.getpid(), 2**64 - 1, len(NAMES)) + body)
    with part.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    part.rename(path)
    return shared


class Counted:
    """Counts each call before it begins and after it has returned."""

    def __init__(self, shared: mmap.mmap) -> None:
        self.words = memoryview(shared).cast("Q")

    def __call__(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        entered = (HEAD.size + NAMES.index(name) * COUNT.size + 24) // 8
        self.words[entered] += 1
        result = call(*arguments)
        self.words[entered + 1] += 1
        return result


def one_round(do: Counted, out: bytearray, back: bytearray) -> None:
    world = MPI.COMM_WORLD
    send = do("MPI_Isend", world.Isend, out, (world.rank + 1) % world.size)
    receive = do("MPI_Irecv", world.Irecv, back, (world.rank - 1) % world.size)
    do("MPI_Wait", send.Wait)
    do("MPI_Wait", receive.Wait)
    do("MPI_Allreduce", world.Allreduce, out, back)
    do("MPI_Barrier", world.Barrier)


def main(folder: Path, ending: str, rounds: int) -> None:
    shared = share(folder)
    do = Counted(shared)
    do("MPI_Init_thread", MPI.Init_thread)
    do.words[1] = MPI.COMM_WORLD.rank
    done = 0
    while ending == "forever" or done < rounds:
        one_round(do, bytearray(100), bytearray(100))
        done += 1
    if ending == "exception" and MPI.COMM_WORLD.rank == 0:
        raise RuntimeError("on one rank only")
    if ending == "_exit":
        os._exit(3)
    do("MPI_Finalize", MPI.Finalize)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100)
