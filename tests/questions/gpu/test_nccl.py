"""The table of NCCL operations, and NCCL's part of a rank file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankscope.model.records import RankFacts, Reading, Tally
from rankscope.questions.collectives.collectives import nccl
from rankscope.questions.run.overview import tallies
from rankscope.questions.selection import Selection
from rankscope.rank_file import COLLECTIVE, CollectiveFlag, GroupKind, Kind, LayerNumber, State
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.read import read_rank_file
from runs.loaded import run_of

US = 1000.0


def algo(name: str, calls: int, total_us: float, size: int, kind: str = "progress") -> Tally:
    each = total_us * US / calls
    return Tally("nccl_algo", name, calls, total_us * US, "pg #1", kind=kind, min_ns=each, max_ns=each, bytes=size)


def rank(number: int, *rows: Tally) -> Reading:
    return Reading(RankFacts(rank=number, world_size=2), tallies=list(rows))


def test_operations_by_algorithm() -> None:
    ring, tree = "ncclAllReduce RING LL128", "ncclAllReduce TREE SIMPLE"
    run = run_of([rank(0, algo(ring, 4, 400, 4000), algo(tree, 1, 50, 10)), rank(1, algo(ring, 4, 100, 4000))])
    table = nccl(run)
    rate = 8000 / 500e3 * 1e9
    assert table.rows[0] == (
        "ncclAllReduce", "RING LL128", "pg #1", 8, 8000, 500 * US, 62.5 * US, 25 * US, 100 * US, rate, 2
    )  # fmt: skip
    assert [row[1] for row in table.rows] == ["RING LL128", "TREE SIMPLE"]
    assert table.notes == []
    assert [row[3] for row in nccl(run, Selection(frozenset({1}))).rows] == [4]


def test_operations_without_a_time_on_the_device_are_counted_and_named() -> None:
    table = nccl(run_of([rank(0, algo("ncclSend", 3, 30, 300, "call"))]))
    assert table.rows[0][:6] == ("ncclSend", "", "pg #1", 3, 300, None)
    assert table.notes[0].startswith("3 of 3 operations")


def test_the_second_count_by_algorithm_is_no_layer_of_its_own() -> None:
    both = rank(0, algo("ncclSend", 3, 30, 300, "call"), Tally("nccl", "ncclSend", 3, 30 * US, bytes=300))
    assert [row[0] for row in tallies(run_of([both])).rows] == ["nccl"]


def test_reading_the_records_of_nccl(tmp_path: Path) -> None:
    writer = RankFileWriter(host=b"elsewhere", pid=1, state=State.EXITED, ended_ticks=10_000)
    writer.set(loaded={"ticks": 1, "monotonic_ns": 1, "realtime_ns": 1})
    writer.set(facts={"anchor": {"ticks": 10_000, "monotonic_ns": 10_000, "realtime_ns": 10_000}})
    mpi = writer.group("MPI_COMM_WORLD", size=2)
    pg = writer.group("pg", size=2, kind=GroupKind.NCCL, identity=0xABC)
    writer.tally("ncclAllReduce", 2, 10, layer=LayerNumber.NCCL, kind=Kind.PROGRESS, group=pg)
    name = writer.string("ncclAllReduce")
    nonblocking, device, enqueued = CollectiveFlag.NONBLOCKING, CollectiveFlag.DEVICE, CollectiveFlag.ENQUEUED
    rows = np.zeros(3, COLLECTIVE)
    rows["name"], rows["enter_ticks"], rows["end_ticks"], rows["call_ticks"] = name, 100, 200, 30
    rows["group"] = [mpi, pg, pg]
    rows["flags"] = [nonblocking, nonblocking | device, nonblocking | enqueued]
    writer.collectives(rows)
    reading = read_rank_file(writer.write(tmp_path / "1.rank"))
    events = reading.event_columns
    assert [events["layer"].values[code] for code in events["layer"].codes] == ["mpi", "nccl", "nccl"]
    assert events["end_ns"].tolist() == [200, 200, None]
    assert events["call_ns"].tolist() == [30, None, 30]
    assert [(group.name, group.kind) for group in reading.groups][1] == ("pg #00000abc", "nccl")
    layer = reading.tally_columns["layer"]
    assert layer.values[layer.codes[0]] == "nccl"
