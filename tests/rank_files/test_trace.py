"""The trace of a rank file as events: clocks, order, what the log has already, damage, and more events than memory."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.cli.report import run as report
from rankscope.questions.events.events import events, trace
from rankscope.questions.gpu.kernels import kernels
from rankscope.questions.selection import Selection
from rankscope.rank_file import COLLECTIVE, EVENT, CollectiveFlag, EventFlag, GroupKind, LayerNumber, TraceKeep
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.events import trace_events
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import OpenOptions, RunTables, open_run
from runs.small_run import START, mpi_rank, write_run

SECOND = 1_000_000_000


def event(made: RankFileWriter, name: str, start_ticks: int, **fields: Any) -> Any:
    row = np.zeros(1, EVENT)
    for key, value in {"layer": LayerNumber.MPI, "thread": 2, **fields, "name": made.string(name)}.items():
        row[key] = value
    row["start_ticks"] = start_ticks
    return row


def opened(folder: Path) -> RunTables:
    return open_run(folder, read_rank_file, OpenOptions(read_trace=trace_events))


def rows_of(folder: Path, *names: str, **selection: Any) -> list[tuple[Any, ...]]:
    table = events(opened(folder), Selection(**selection))
    at = [[column.name for column in table.columns].index(name) for name in names]
    return [tuple(row[i] for i in at) for row in table.rows]


def write_events(folder: Path, made: RankFileWriter, rows: list[Any], durations: list[int], **more: Any) -> Path:
    made.trace(np.concatenate(rows), durations, **more)
    return write_run(folder, made)


def test_events_are_on_the_unix_clock(tmp_path: Path) -> None:
    """A tick of this process is 1 ns, tick 1 at START + 1; CUPTI is 5 s ahead, a ns of it lasts 1.0001 of ours."""
    made = mpi_rank(0, 1)
    made.cuda(
        started_ticks=SECOND, started_ns=6 * SECOND, flushed_ticks=SECOND + 10_001_000_000, flushed_ns=16 * SECOND
    )
    group = made.group("GPU 0 stream 7", kind=GroupKind.STREAM)
    long_ns = 3 * 3600 * SECOND  # more than 32 bits
    rows = [
        event(made, "MPI_Send", 2 * SECOND, bytes=64, flags=5),
        event(made, "gemm", 7 * SECOND, layer=LayerNumber.GPU, group=group, flags=5),
        event(made, "MPI_Isend", 4 * SECOND, flags=5 | EventFlag.PROGRESS | EventFlag.FAILED),
    ]
    write_events(tmp_path, made, rows, [500, 10_000, long_ns])
    names = ("layer", "kind", "name", "group", "start_ns", "duration_ns", "bytes", "phase", "thread", "failed")
    assert rows_of(tmp_path, *names) == [
        ("mpi", "call", "MPI_Send", "", START + 2 * SECOND, 500, 64, "steady", 2, ""),
        ("gpu", "call", "gemm", "GPU 0 stream 7", START + SECOND + 1_000_100_000, 10_001, 0, "steady", 2, ""),
        ("mpi", "progress", "MPI_Isend", "", START + 4 * SECOND, long_ns, 0, "steady", 2, "yes"),
    ]


def test_gpu_tables_say_that_the_trace_lacks_some(tmp_path: Path) -> None:
    for lost in (0, 3):
        made = mpi_rank(0, 1)
        rows = [event(made, "gemm", i * SECOND, layer=LayerNumber.GPU) for i in range(8)]
        run = opened(write_events(tmp_path / str(lost), made, rows, [5] * 8, capacity=8 - lost))
        told = kernels(run).warnings
        assert len(told) == bool(lost) and all("rank 0 did not keep every event" in text for text in told)
        assert kernels(run).rows[0][:3] == ("compute", "gemm", 8 - lost)


@pytest.mark.parametrize("keep", list(TraceKeep))
def test_what_is_kept_and_what_is_lost(keep: TraceKeep, tmp_path: Path) -> None:
    made = mpi_rank(0, 1)
    layers = [LayerNumber.MPI] * 6 + [LayerNumber.NVTX] * 4
    rows = [event(made, f"e{i}", i * SECOND, layer=layer) for i, layer in enumerate(layers)]
    write_events(tmp_path, made, rows, [SECOND // 2] * 10, capacity=4, keep=keep)
    kept = list(range(6, 10)) if keep == TraceKeep.NEWEST else list(range(4))
    assert [name for (name,) in rows_of(tmp_path, "name")] == [f"e{i}" for i in kept]
    found = trace(opened(tmp_path)).rows
    if keep == TraceKeep.OLDEST:
        assert found == [(0, "mpi", 4, 2, 0, 3_500_000_000), (0, "nvtx", 0, 4, None, None)]
    else:
        assert [row[:4] for row in found] == [(0, "mpi", 0, 6), (0, "nvtx", 4, 0)]
        assert found[1][5] == 3_500_000_000
    (lost,) = opened(tmp_path).query("SELECT lost_trace_events FROM ranks")
    assert lost == (6,)


def test_collectives_of_the_log_come_once(tmp_path: Path) -> None:
    made = mpi_rank(0, 1)
    world = made.group("MPI_COMM_WORLD", size=1)
    nccl = made.group("default_pg", kind=GroupKind.NCCL)
    log = np.zeros(3, COLLECTIVE)
    for row, name, group, enter, end, called, flags in zip(
        log,
        ("MPI_Bcast", "MPI_Ibcast", "ncclAllReduce"),
        (world, world, nccl),
        (100, 200, 350),
        (150, 290, 400),
        (0, 10, 50),
        (0, CollectiveFlag.NONBLOCKING, CollectiveFlag.NONBLOCKING | CollectiveFlag.DEVICE),
        strict=True,
    ):
        row["name"], row["group"], row["sequence"], row["flags"] = made.string(name), group, 1, flags
        row["enter_ticks"], row["end_ticks"], row["call_ticks"] = enter, end, called
    made.collectives(log)
    rows = [
        event(made, "MPI_Bcast", 100, group=world),
        event(made, "MPI_Bcast", 100),  # of another communicator: another one
        event(made, "MPI_Ibcast", 200, group=world),
        event(made, "MPI_Ibcast", 200, group=world, flags=EventFlag.PROGRESS),
        event(made, "ncclAllReduce", 300, group=nccl, layer=LayerNumber.NCCL),
        event(made, "ncclAllReduce", 300, group=nccl, layer=LayerNumber.NCCL, flags=EventFlag.PROGRESS),
    ]
    write_events(tmp_path, made, rows, [50, 50, 10, 90, 5, 100])
    found = rows_of(tmp_path, "name", "kind", "sequence", "start_ns", "duration_ns", "call_ns")
    assert sorted(found, key=str) == [
        ("MPI_Bcast", "call", 1, START + 100, 50, None),
        ("MPI_Bcast", "call", None, START + 100, 50, None),
        ("MPI_Ibcast", "progress", 1, START + 200, 90, 10),
        ("ncclAllReduce", "call", None, START + 300, 5, None),  # the log tells nothing of the call itself
        ("ncclAllReduce", "progress", 1, START + 350, 50, None),
    ]


def test_a_record_that_was_being_written_is_no_event(tmp_path: Path) -> None:
    made = mpi_rank(0, 1)
    made.trace(np.concatenate([event(made, f"e{i}", i) for i in range(3)]), [1, 1, 1])
    made._trace["mark"][1] = 1
    write_run(tmp_path, made)
    assert rows_of(tmp_path, "name") == [("e0",), ("e2",)]
    assert trace(opened(tmp_path)).rows[0][2:4] == (2, 1)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"name": 99}, "a name or a group that is not in the file"),
        ({"group": 9}, "a name or a group that is not in the file"),
        ({"flags": 15}, "a phase or a layer that is not known"),
        ({"layer": 200}, "layer 200"),
        ({"trace_capacity": 1 << 40}, "in room for"),
    ],
)
def test_damage_is_told_and_the_others_are_read(damage: dict[str, int], told: str, tmp_path: Path) -> None:
    made, sound = mpi_rank(0, 2), mpi_rank(1, 2)
    for one in (made, sound):
        one.trace(event(one, "MPI_Send", 5), [1])
    for name, value in damage.items():
        if name in made._trace.dtype.names:
            made._trace[name] = value
        else:
            made.set(**{name: value})
    run = opened(write_run(tmp_path, made, sound))
    assert len(run.bad_files) == 1 and told in run.bad_files[0]
    assert [row[0] for row in events(run).rows] == [1]


def test_as_csv_they_are_all_there_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        made = mpi_rank(rank, 2)
        rows = np.concatenate([event(made, "MPI_Send", 2 * i + rank, bytes=i) for i in range(30_000)])
        made.trace(rows, np.ones(len(rows)))
        made.write(tmp_path / f"ranks/node0/{rank}.rank")
    (tmp_path / "run.json").write_text('{"format": 1, "command": ["x"], "expected_ranks": 2}')
    assert report([str(tmp_path), "--table", "events", "--format", "csv"]) == 0
    found = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [int(row["start_ns"]) - START for row in found] == list(range(60_000))
    assert [int(row["rank"]) for row in found[:4]] == [0, 1, 0, 1]
    assert report([str(tmp_path), "--table", "events", "--format", "csv", "--rank", "1", "--top", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert report([str(tmp_path), "--table", "events"]) == 0
    assert "59976 more rows" in capsys.readouterr().out


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    made = mpi_rank(0, 1)
    write_events(tmp_path / "run", made, [event(made, "MPI_Send", 5)], [1])
    run = opened(tmp_path / "run")
    assert os.listdir(place) == [] and run.has_events  # only who asks for single events has them written
    assert run.query("SELECT name FROM events") == [("MPI_Send",)]
    assert os.listdir(place) != []
    del run
    assert os.listdir(place) == []
