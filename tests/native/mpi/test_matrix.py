"""Bytes per destination: asked for with RANKSCOPE_MATRIX, in ranks of the world whatever the communicator."""

from __future__ import annotations

from pathlib import Path

from mpis import Mpi
from programs import jobs, recorded

RANKS = 4
TO_THE_RIGHT = (1 + 1 + 1 + 2, 100 + 20 + 3 + 2 * 7)  # send, isend, sendrecv, two starts
TO_THE_LEFT = (1, 50)  # right in the reversed communicator


def test_every_destination_has_its_messages_and_bytes(mpi: Mpi, tmp_path: Path) -> None:
    job = jobs.run(mpi, RANKS, tmp_path, mpi.python, jobs.PROGRAMS / "sends.py", RANKSCOPE_MATRIX="1")
    assert job.code == 0, job.err
    seen = set()
    for path in recorded.rank_files(tmp_path):
        reading = recorded.read(path)
        rank = reading.facts.rank
        if rank is None or reading.facts.finalized is None:
            continue
        seen.add(rank)
        right, left = (rank + 1) % RANKS, (rank - 1) % RANKS
        found = {peer.world_rank: (peer.calls, peer.bytes) for peer in reading.peers}
        assert found == {right: TO_THE_RIGHT, left: TO_THE_LEFT}
    assert seen == set(range(RANKS))


def test_nothing_is_kept_unasked(openmpi: Mpi, tmp_path: Path) -> None:
    job = jobs.run(openmpi, RANKS, tmp_path, openmpi.python, jobs.PROGRAMS / "sends.py")
    assert job.code == 0, job.err
    assert not any(recorded.read(path).peers for path in recorded.rank_files(tmp_path))
