"""Logs of every kind are matched and split in a large run as they are in a small one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.api.run import Run
from rankscope.rank_file import COLLECTIVE, CollectiveFlag
from rankscope.rank_file_writer import RankFileWriter
from runs.many_ranks import age, assert_same, make_large, rank_files, tables
from runs.small_run import MILLI, SECOND, mpi_rank, write_run

RANKS = 7
EACH = 60  # collectives of a group
NAMES = ("MPI_Allreduce", "MPI_Bcast", "MPI_Reduce", "MPI_Barrier", "MPI_Scan", "MPI_Exscan", "MPI_Alltoallv")
ROOTED = ("MPI_Bcast", "MPI_Reduce")
MEMBERS = {1: range(RANKS), 2: range(0, RANKS, 2), 3: range(1, RANKS, 2)}
ASKED = ("waiting", "waiting_parts", "collectives", "clocks", "wait_matrix", "wait_map", "findings", "phases")


def write(folder: Path, seed: int) -> Path:
    """Three groups, seven operations; records that are missing, twice, unended, in disorder, or of other sizes."""
    random = np.random.default_rng(seed)
    made = [mpi_rank(rank, RANKS, host=f"node{rank // 3}".encode()) for rank in range(RANKS)]
    rows: list[list[Any]] = [[] for _ in made]
    groups = {}
    for identity, members in MEMBERS.items():
        for at, rank in enumerate(members):
            name = "MPI_COMM_WORLD" if identity == 1 else "half"
            groups[identity, rank] = made[rank].group(name, identity=identity, size=len(members), my_rank=at)
        for sequence in range(1, EACH + 1):
            _collective(random, made, rows, groups, identity, sequence)
    for writer, own in zip(made, rows, strict=True):
        records = np.concatenate(own)
        if seed % 2:  # as of threads that take turns
            records = records[np.argsort(records["enter_ticks"] + random.integers(0, 30 * MILLI, len(records)))]
        writer.collectives(records, capacity=len(records) - 9 if seed % 3 == 0 else None)
    write_run(folder, *made, expected_ranks=RANKS)
    for path in rank_files(folder):
        age(path)
    return folder


def _collective(
    random: Any,
    made: list[RankFileWriter],
    rows: list[list[Any]],
    groups: dict[tuple[int, int], int],
    identity: int,
    sequence: int,
) -> None:
    members = MEMBERS[identity]
    name = NAMES[random.integers(len(NAMES))]
    root = int(random.integers(len(members))) if name in ROOTED else -1
    uneven, size = random.random() < 0.2, int(random.integers(1, 1 << 16))
    begin = SECOND + (sequence * len(MEMBERS) + identity) * 10 * MILLI
    progress = random.random() < 0.2
    for rank in members:
        row = np.zeros(1, COLLECTIVE)
        row["enter_ticks"] = begin + int(random.integers(0, 3 * MILLI))
        row["end_ticks"] = 0 if random.random() < 0.01 else begin + 3 * MILLI + int(random.integers(1, MILLI))
        wrong = random.random() < 0.01
        row["name"] = made[rank].string("MPI_Gather" if wrong else name)
        row["bytes"] = size + (rank if uneven else 0)
        row["root"], row["sequence"], row["group"] = root, sequence, groups[identity, rank]
        row["phase"] = 5 if sequence > 9 else 4
        if progress:
            row["flags"], row["call_ticks"] = CollectiveFlag.NONBLOCKING, 2_000
        times = 0 if random.random() < 0.02 else 2 if random.random() < 0.02 else 1
        rows[rank] += [row] * times


@pytest.mark.parametrize("seed", range(6))
def test_the_tables_are_those_of_a_small_run(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "run", seed)
    small = tables(Run(folder), ASKED)
    make_large(monkeypatch)
    monkeypatch.setattr("rankscope.questions.disk_matrix.CELLS", 50)
    assert_same(tables(Run(folder, keep=False), ASKED), small)
    notes = " ".join(small["collectives"].notes)
    assert all(word in notes for word in ("not in the log", "different operations", "twice"))
