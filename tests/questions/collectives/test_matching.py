"""Which records become one collective, and which are left out and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.cli.report import run as report
from rankscope.questions.collectives import matching
from rankscope.questions.collectives.matching import CollectiveLog, match
from rankscope.questions.collectives.operations import OPERATIONS, operation_of
from rankscope.questions.registry import ALL_QUESTIONS, Needs
from rankscope.rank_file import COLLECTIVE, CollectiveFlag, GroupFlag, GroupKind
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs.small_run import MILLI, mpi_rank, write_run

Record = tuple[int, str, int, int]  # sequence, name, enter and end in ms


def records(writer: RankFileWriter, group: int, rows: list[Record], **fields: Any) -> np.ndarray:
    made = np.zeros(len(rows), COLLECTIVE)
    for at, (sequence, name, enter, end) in enumerate(rows):
        made[at]["sequence"], made[at]["name"], made[at]["group"] = sequence, writer.string(name), group
        made[at]["enter_ticks"], made[at]["end_ticks"] = enter * MILLI, end * MILLI
        made[at]["bytes"], made[at]["root"] = 8, -1
        for field, value in fields.items():
            made[at][field] = value
    return made


def world_run(folder: Path, *of_ranks: list[Record], **group: Any) -> CollectiveLog:
    """Ranks with records on MPI_COMM_WORLD only."""
    made = []
    for rank, rows in enumerate(of_ranks):
        writer = mpi_rank(rank, len(of_ranks))
        world = writer.group("MPI_COMM_WORLD", **{"identity": 1, "size": len(of_ranks), "my_rank": rank, **group})
        writer.collectives(records(writer, world, rows))
        made.append(writer)
    return matched(folder, made)


def matched(folder: Path, writers: list[RankFileWriter]) -> CollectiveLog:
    return match(open_run(write_run(folder, *writers), read_rank_file))


def test_same_number_same_collective(tmp_path: Path) -> None:
    one: list[Record] = [(1, "MPI_Allreduce", 10, 30), (2, "MPI_Barrier", 40, 50)]
    two: list[Record] = [(1, "MPI_Allreduce_c", 20, 31), (2, "MPI_Barrier", 45, 51)]
    log = world_run(tmp_path, one, two)
    (group,) = log.groups
    assert group.sequence.tolist() == [1, 2] and not sum(log.left_out.values())
    assert [log.operations[code] for code in group.operation] == ["allreduce", "barrier"]
    assert np.diff(group.enter_ns, axis=1).ravel().tolist() == [10 * MILLI, 5 * MILLI]
    assert (group.end_ns - group.enter_ns).tolist() == [[20 * MILLI, 11 * MILLI], [10 * MILLI, 6 * MILLI]]


def test_what_one_member_lacks_is_left_out_and_counted(tmp_path: Path) -> None:
    full: list[Record] = [(n, "MPI_Barrier", 10 * n, 10 * n + 5) for n in range(1, 6)]
    log = world_run(tmp_path, full, full[2:], full[:4])  # the second ring went round, the third rank was killed
    assert log.groups[0].sequence.tolist() == [3, 4] and log.left_out[matching.NOT_ALL] == 3


def test_under_way_disagreeing_and_doubled(tmp_path: Path) -> None:
    one: list[Record] = [
        (1, "MPI_Barrier", 1, 2),
        (2, "MPI_Barrier", 3, 0),
        (3, "MPI_Allreduce", 5, 6),
        (4, "MPI_Barrier", 7, 8),
    ]
    two: list[Record] = [
        (1, "MPI_Barrier", 1, 2),
        (2, "MPI_Barrier", 3, 4),
        (3, "MPI_Barrier", 5, 6),
        (4, "MPI_Barrier", 7, 8),
    ]
    log = world_run(tmp_path, one, [*two, (4, "MPI_Barrier", 9, 10)])
    assert log.groups[0].sequence.tolist() == [1]
    assert [log.left_out[reason] for reason in (matching.UNENDED, matching.DISAGREE, matching.TWICE)] == [1, 1, 1]


def test_a_guessed_identity_is_left_out(tmp_path: Path) -> None:
    log = world_run(tmp_path, *[[(1, "MPI_Barrier", 1, 2)]] * 2, flags=GroupFlag.GUESSED)
    assert not log.groups and log.left_out == {matching.GUESSED: 1}


def test_a_group_with_a_member_that_left_no_file(tmp_path: Path) -> None:
    log = world_run(tmp_path, *[[(1, "MPI_Barrier", 1, 2)]] * 2, size=3)
    assert not log.groups and log.left_out == {matching.ABSENT: 1}


def test_singletons_that_all_are_rank_0_of_their_world_are_not_one_group(tmp_path: Path) -> None:
    assert not world_run(tmp_path, *[[(1, "MPI_Barrier", 1, 2)]] * 2, size=1, my_rank=0).groups
    assert world_run(tmp_path / "a", *[[(1, "MPI_Barrier", 1, 2)]] * 2, my_rank=0).left_out == {matching.GUESSED: 1}


def test_groups_of_one_name_on_different_ranks_stay_apart(tmp_path: Path) -> None:
    """Two halves of a split are called the same, and rank 3 is the first of its half."""
    made = []
    for rank in range(4):
        writer = mpi_rank(rank, 4)
        low = rank < 2
        # the second half counts its members in reverse order
        place = rank if low else 3 - rank
        half = writer.group("half", identity=0x100 + low, size=2, my_rank=place)
        writer.collectives(records(writer, half, [(1, "MPI_Bcast", 10 * rank + 10, 100)], root=0))
        made.append(writer)
    log = matched(tmp_path, made)
    assert sorted(group.members.tolist() for group in log.groups) == [[0, 1], [3, 2]]
    assert {group.label for group in log.groups} == {"half #00000101", "half #00000100"}


def test_nonblocking_and_nccl(tmp_path: Path) -> None:
    made = []
    for rank in range(2):
        writer = mpi_rank(rank, 2)
        world = writer.group("MPI_COMM_WORLD", identity=1, size=2, my_rank=rank)
        nccl = writer.group("", identity=7, size=2, my_rank=rank, kind=GroupKind.NCCL)
        device = CollectiveFlag.NONBLOCKING | CollectiveFlag.DEVICE
        rows = [
            records(writer, world, [(1, "MPI_Iallreduce", 1, 9)], flags=CollectiveFlag.NONBLOCKING, call_ticks=5),
            records(writer, nccl, [(1, "ncclAllReduce", 2, 8)], flags=device, call_ticks=100),
            records(
                writer, nccl, [(2, "ncclAllReduce", 9, 10)], flags=CollectiveFlag.NONBLOCKING | CollectiveFlag.ENQUEUED
            ),
        ]
        writer.collectives(np.concatenate(rows))
        made.append(writer)
    log = matched(tmp_path, made)
    assert {group.layer: group.progress.tolist() for group in log.groups} == {"mpi": [True], "nccl": [False]}
    assert log.left_out[matching.UNENDED] == 1  # nobody tells when the enqueued one ended


def test_one_rank_has_nothing_to_match(tmp_path: Path) -> None:
    assert not world_run(tmp_path, [(1, "MPI_Barrier", 1, 2)]).groups


@pytest.mark.parametrize("seed", range(40))
def test_damaged_records_break_no_table(seed: int, tmp_path: Path) -> None:
    """Any bytes in the log of any rank: the tables still come, and in text."""
    random = np.random.default_rng(seed)
    made = []
    for rank in range(3):
        writer = mpi_rank(rank, 3, host=f"node{rank % 2}".encode())
        world = writer.group("MPI_COMM_WORLD", identity=1, size=3, my_rank=rank)
        names = ["MPI_Barrier", "MPI_Allreduce", "MPI_Bcast", "MPI_Reduce", "MPI_Scan", "MPI_Alltoallv"]
        rows = records(writer, world, [(n, names[n % 6], 10 * n, 10 * n + 5) for n in range(1, 60)], root=rank % 2)
        for field in ("enter_ticks", "end_ticks", "bytes", "sequence", "root", "call_ticks", "flags"):
            size = COLLECTIVE[field].itemsize
            for at in random.integers(0, len(rows), random.integers(0, 4)):
                rows[field][at] = np.frombuffer(random.bytes(size), COLLECTIVE[field])[0]
        writer.collectives(rows)
        made.append(writer)
    folder = write_run(tmp_path, *made)
    tables = [f"--table={name}" for name in (each.name for each in ALL_QUESTIONS if each.needs is Needs.LOG)]
    assert report([str(folder), *tables, "--out", str(tmp_path / "report.txt")]) == 0


@pytest.mark.parametrize(
    ("layer", "name", "operation"),
    [
        ("mpi", "MPI_Allreduce", "allreduce"),
        ("mpi", "MPI_Iallreduce_c", "allreduce"),
        ("mpi", "MPI_Allreduce_init", "allreduce"),
        ("mpi", "MPI_Reduce_scatter", "reducescatterv"),
        ("mpi", "MPI_Ireduce_scatter_block", "reducescatter"),
        ("mpi", "MPI_Alltoallw", "alltoallv"),
        ("mpi", "MPI_Scatterv", "scatter"),
        ("mpi", "MPI_Win_fence", ""),
        ("mpi", "MPI_Comm_split", ""),
        ("mpi", "MPI_Neighbor_allgather", ""),
        ("mpi", "MPI_Ireduce", "reduce"),
        ("nccl", "ncclReduceScatter", "reducescatter"),
        ("nccl", "ncclBroadcast", "bcast"),
        ("nccl", "ncclSend", ""),
        ("gloo", "gloo:all_reduce", "allreduce"),
        ("gloo", "broadcast", "bcast"),
        ("gloo", "_allgather_base", "allgather"),
    ],
)
def test_routines_and_operations(layer: str, name: str, operation: str) -> None:
    assert operation_of(layer, name) == operation


def test_bus_factors_are_those_of_nccl_tests() -> None:
    factors = {name: operation.bus_factor(4) for name, operation in OPERATIONS.items()}
    assert factors["allreduce"] == 1.5 and factors["bcast"] == factors["reduce"] == 1
    assert {factors[name] for name in ("allgather", "reducescatter", "alltoall", "gather", "scatter")} == {0.75}
