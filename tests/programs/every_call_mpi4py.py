"""every_call_mpi4py.py FOLDER: upper- and lower-case mpi4py, with what MPI must have seen written down by hand."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
NEXT, PREV = (RANK + 1) % SIZE, (RANK - 1) % SIZE
COUNT_BYTES = 8  # mpi4py sends the length of a pickle as one MPI_COUNT
CALL, PROGRESS = 0, 1

rows: dict[tuple[str, int, int], list[int]] = defaultdict(lambda: [0, 0, 0])


def expect(name: str, size: int = 0, calls: int = 1, kind: int = CALL) -> None:
    """MPI_<name> was called so many times with so many bytes each."""
    row = rows[f"MPI_{name}", kind, (size - 1).bit_length() + 1 if size else 0]
    row[0] += calls
    row[1] += calls * size


def waited(name: str, size: int) -> None:
    """One operation begun by MPI_<name> was completed by MPI_Wait."""
    expect("Wait")
    expect(name, size, kind=PROGRESS)


def pickled(value: object) -> int:
    return len(MPI.pickle.dumps(value))


def received(size: int) -> None:
    expect("Mprobe")
    expect("Mrecv", size)


def exchanged(size: int) -> None:
    """One lower-case sendrecv: both sides send a pickle of this size."""
    expect("Isend", size)
    received(size)
    waited("Isend", size)


def arrays() -> None:
    """Upper-case methods: one MPI call each."""
    a, b = np.arange(10, dtype="f8"), np.empty(10, dtype="f8")
    wide = np.empty(10 * SIZE, dtype="f8")
    WORLD.Sendrecv(a, NEXT, 0, b, PREV, 0)
    expect("Sendrecv", 80)
    requests = [WORLD.Isend(a[:3], NEXT), WORLD.Irecv(b, PREV)]
    MPI.Request.Waitall(requests)
    expect("Isend", 24), expect("Irecv", 0), expect("Waitall")
    expect("Isend", 24, kind=PROGRESS), expect("Irecv", 24, kind=PROGRESS)
    WORLD.Bcast(a, 0), expect("Bcast", 80)
    WORLD.Allreduce(a, b), expect("Allreduce", 80)
    WORLD.Allreduce(MPI.IN_PLACE, b), expect("Allreduce", 80)
    WORLD.Reduce(a, b, root=SIZE - 1), expect("Reduce", 80)
    WORLD.Gather(a, wide, 0), expect("Gather", 80)
    WORLD.Scatter(wide, b, 0), expect("Scatter", 80)
    WORLD.Allgather(a, wide), expect("Allgather", 80)
    WORLD.Alltoall(wide, np.empty_like(wide)), expect("Alltoall", 80 * SIZE)
    WORLD.Reduce_scatter_block(wide, b), expect("Reduce_scatter_block", 80 * SIZE)
    WORLD.Scan(a, b), expect("Scan", 80)
    WORLD.Exscan(a, b), expect("Exscan", 80)
    WORLD.Barrier(), expect("Barrier")
    WORLD.Iallreduce(a, b).Wait(), expect("Iallreduce", 80), waited("Iallreduce", 80)
    WORLD.Ibarrier().Wait(), expect("Ibarrier"), waited("Ibarrier", 0)


def vectors() -> None:
    counts = [i + 1 for i in range(SIZE)]
    mine, everyone = np.zeros(RANK + 1, dtype="i4"), np.zeros(sum(counts), dtype="i4")
    WORLD.Allgatherv(mine, [everyone, counts]), expect("Allgatherv", 4 * (RANK + 1))
    WORLD.Gatherv(mine, [everyone, counts], 0), expect("Gatherv", 4 * (RANK + 1))
    WORLD.Scatterv([everyone, counts], mine, 0), expect("Scatterv", 4 * (RANK + 1))
    same, others = np.zeros(3 * SIZE, dtype="i4"), np.zeros(3 * SIZE, dtype="i4")
    WORLD.Alltoallv([same, [3] * SIZE], [others, [3] * SIZE]), expect("Alltoallv", 12 * SIZE)


def persistent() -> None:
    a, b = np.zeros(5), np.zeros(50)
    send, receive = WORLD.Send_init(a, NEXT, 3), WORLD.Recv_init(b, PREV, 3)
    expect("Send_init"), expect("Recv_init")
    for _ in range(3):
        MPI.Prequest.Startall([receive, send]), expect("Startall", 40)
        MPI.Request.Waitall([receive, send]), expect("Waitall")
        expect("Send_init", 40, kind=PROGRESS), expect("Recv_init", 40, kind=PROGRESS)
    send.Free(), receive.Free(), expect("Request_free", calls=2)


def objects() -> None:
    """Lower-case methods: pickles, whose length travels first where the receiver cannot know it."""
    value = {"rank": 1, "payload": bytes(1000)}
    size = pickled(value)
    if RANK == 0:
        WORLD.send(value, 1)
        expect("Send", size)
    elif RANK == 1:
        WORLD.recv(source=0)
        received(size)
    WORLD.sendrecv(value, NEXT, source=PREV)
    exchanged(size)
    request = WORLD.isend(value, NEXT)
    expect("Isend", size)
    WORLD.recv(source=PREV)
    received(size)
    request.wait()
    waited("Isend", size)
    WORLD.bcast(value, 0)
    with_length("Bcast", size)
    for name, call in (("Gather", WORLD.gather), ("Allgather", WORLD.allgather)):
        call(value)
        expect(name, COUNT_BYTES), expect(f"{name}v", size)
    WORLD.scatter([value] * SIZE)
    expect("Scatter", COUNT_BYTES), expect("Scatterv", size)
    WORLD.alltoall([value] * SIZE)
    expect("Alltoall", COUNT_BYTES * SIZE), expect("Alltoallv", size * SIZE)
    WORLD.barrier()
    expect("Barrier")


def with_length(name: str, size: int) -> None:
    """Inside a reduction two messages travel: the length, then the pickle."""
    expect(name, COUNT_BYTES)
    expect(name, size)


def tree_to_root(size: int) -> None:
    """A binary tree of pickles towards rank 0, in which a rank goes on after it has sent."""
    mask = 1
    while mask < SIZE:
        if RANK & mask:
            with_length("Send", size)
        elif RANK | mask < SIZE:
            with_length("Recv", size)
        mask <<= 1


def reductions() -> None:
    """mpi4py reduces objects itself, on a private copy of the communicator that it makes once and frees at the end."""
    size = pickled(1)
    WORLD.allreduce(1)
    expect("Comm_dup"), expect("Comm_free")
    tree_to_root(size)
    with_length("Bcast", size)
    WORLD.reduce(1, root=0)
    tree_to_root(size)
    WORLD.scan(1)
    mask = 1
    while mask < SIZE:
        if RANK ^ mask < SIZE:
            with_length("Sendrecv", size)
        mask <<= 1


def communicators() -> None:
    for turn in range(3):
        half = WORLD.Split((RANK + turn) % 2, RANK)
        expect("Comm_split")
        half.Allreduce(np.ones(turn + 1), np.ones(turn + 1))
        expect("Allreduce", 8 * (turn + 1))
        half.Free()
        expect("Comm_free")
    WORLD.Dup().Free()
    expect("Comm_dup"), expect("Comm_free")


def main(folder: Path) -> None:
    for part in (arrays, vectors, persistent, objects, reductions, communicators):
        part()
    expect("Init_thread"), expect("Finalize")
    listed = [[name, kind, size_class, *values] for (name, kind, size_class), values in rows.items()]
    counts = {"rank": RANK, "size": SIZE, "pid": os.getpid(), "mpi": MPI.Get_library_version()[:40], "rows": listed}
    (folder / f"counts.{RANK}.json").write_text(json.dumps(counts))
    print(f"rank {RANK} of {SIZE} done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
