"""GPU time, kernels and idle gaps, every number worked out by hand."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.formats import kineto
from rankscope.formats.source import Source
from rankscope.model.records import Event, RankFacts, Reading
from rankscope.model.tables import Words
from rankscope.questions.gpu.activities import Device, gpu_work, join, kind_of
from rankscope.questions.gpu.device_time import gpu_idle, gpu_time
from rankscope.questions.gpu.kernels import by_kind, gpu_kinds, kernels
from rankscope.questions.gpu.walk import time_of
from rankscope.questions.selection import Selection
from rankscope.store.run import RunTables, open_run
from runs.loaded import run_of
from runs.small_run import mpi_rank, write_run

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
COPY = "Memcpy DtoH (Device -> Pinned)"

# time     0    10   20   30   40   50   60   70   80   90  100
# stream 7 |gemm     |    |gemm|         |add |         |copy|
# stream 20     |nccl          |    |nccl     |    |nccl|
ACTIVITIES = [  # name, stream, start, end
    ("gemm", 7, 0, 20),
    ("gemm", 7, 30, 40),
    ("add", 7, 60, 70),
    (COPY, 7, 90, 100),
    (NCCL, 20, 10, 40),
    (NCCL, 20, 50, 70),
    (NCCL, 20, 80, 90),
]


def columns(rows: list[tuple[str, int, int, int]], device: int = 0) -> dict[str, Any]:
    names, groups = [row[0] for row in rows], [f"{device}/{row[1]}" for row in rows]
    return {
        "layer": Words(np.zeros(len(rows), np.int32), ["gpu"]),
        "name": Words(np.arange(len(rows), dtype=np.int32), names),
        "group": Words(np.arange(len(rows), dtype=np.int32), groups),
        "start_ns": np.array([row[2] for row in rows], np.int64),
        "end_ns": np.array([row[3] for row in rows], np.int64),
    }


def test_a_gpus_time_by_hand() -> None:
    """Busy: 0-40, 50-70, 80-100. Compute: 20 + 10 + 10. Communication: 30 + 20 + 10, hidden 10-20, 30-40, 60-70."""
    time = time_of(gpu_work([columns(ACTIVITIES)]).devices["0"])
    assert (time.span_ns, time.busy_ns, time.idle_ns) == (100, 80, 20)
    assert (time.compute_ns, time.comm_ns, time.copy_ns) == (40, 60, 10)
    assert (time.hidden_ns, time.exposed_ns) == (30, 30)


def test_blocks_in_any_order_give_the_same() -> None:
    blocks = [columns(ACTIVITIES[at : at + 2]) for at in (4, 0, 6, 2)]
    assert time_of(gpu_work(blocks).devices["0"]) == time_of(gpu_work([columns(ACTIVITIES)]).devices["0"])
    assert gpu_work([]).devices == {} and time_of(Device()).busy_ns == 0


def test_devices_are_told_apart() -> None:
    both = gpu_work([columns(ACTIVITIES), columns([("gemm", 7, 5, 6)], device=1)])
    assert [(name, time_of(device).busy_ns) for name, device in both.devices.items()] == [("0", 80), ("1", 1)]


INTERVALS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10)), min_size=1, max_size=8)


@given(st.lists(INTERVALS, max_size=6), st.sampled_from([1, 2**33]))
def test_busy_is_the_number_of_covered_moments(blocks: list[list[tuple[int, int]]], scale: int) -> None:
    """However the intervals are spread over blocks, and also where they need more than four bytes."""
    device = Device()
    for block in blocks:
        starts, lengths = (np.array(column, np.int64) * scale for column in zip(*block, strict=True))
        device.add(starts, starts + lengths, np.zeros(len(block), np.int8))
    covered = {moment for block in blocks for start, length in block for moment in range(start, start + length)}
    assert time_of(device).busy_ns == time_of(device).compute_ns == len(covered) * scale


def test_busy_goes_on_from_one_part_to_the_next() -> None:
    device = Device()
    for start, end in ((0, 10), (5, 8), (9, 12), (20, 21)):
        device.add(np.array([start], np.int64), np.array([end], np.int64), np.zeros(1, np.int8))
    assert time_of(device).busy_ns == 13


@pytest.mark.parametrize("name, kind", [
    (NCCL, "communication"),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "communication"),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(int)", "communication"),
    (COPY, "copy"),
    ("[CUDA memcpy HtoD]", "copy"),
    ("CopyDeviceToHost", "copy"),
    ("Memset (Device)", "set"),
    ("[CUDA memset]", "set"),
    ("void at::native::elementwise_kernel<Memcpy>(int)", "compute"),
    ("CatArrayBatchedCopy_vectorized", "compute"),
])  # fmt: skip
def test_kinds(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_kernels_by_hand() -> None:
    """More than ten kernels of one kind keep each its own figures."""
    rows = [*ACTIVITIES, *((f"k{number}", 7, 200, 200 + number) for number in range(1, 13))]
    found = gpu_work([columns(rows[:5]), columns(rows[5:])]).names
    assert len(found) == 4 + 12
    nccl = found[NCCL]
    assert (nccl.calls, nccl.total_ns, nccl.min_ns, nccl.max_ns, nccl.mean_ns) == (3, 60, 10, 30, 20.0)
    assert nccl.stdev_ns == pytest.approx(statistics.pstdev([30, 20, 10]))
    assert (found["k12"].calls, found["k12"].total_ns, found["k12"].stdev_ns) == (1, 12, 0.0)
    kinds = by_kind(found)
    assert {kind: (one.calls, one.total_ns) for kind, one in kinds.items()} == {
        "compute": (3 + 12, 40 + 78),
        "communication": (3, 60),
        "copy": (1, 10),
    }
    lengths = [20, 10, 10, *range(1, 13)]
    assert kinds["compute"].stdev_ns == pytest.approx(statistics.pstdev(lengths))


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=8), min_size=1, max_size=5))
def test_ranks_joined_are_as_if_they_were_one(ranks: list[list[int]]) -> None:
    parts = [gpu_work([columns([("k", 7, 0, length) for length in one])]).names for one in ranks]
    joined = join({}, (pair for part in parts for pair in part.items()))["k"]
    every = [length for one in ranks for length in one]
    assert (joined.calls, joined.total_ns, joined.min_ns, joined.max_ns) == (
        len(every),
        sum(every),
        min(every),
        max(every),
    )
    assert joined.stdev_ns == pytest.approx(statistics.pstdev(every), rel=1e-6, abs=1e-3)


def test_gaps_by_hand() -> None:
    """From 100 to 600 the host was late (launched at 150), 700 to 20,700 is back to back, 21,000 to 71,000 is not."""
    times = [(0, 100), (600, 700), (20_700, 21_000), (71_000, 71_100), (50, 60)]  # the last one lies inside the first
    launch = [0, 150, 160, None, 10]
    events = [Event("gpu", "k", *time, "0/7", correlation=at) for at, time in enumerate(times)]
    events += [Event("cuda_api", "l", at, at + 1, correlation=i) for i, at in enumerate(launch) if at is not None]
    rows = gpu_idle(run_of([Reading(RankFacts(rank=0), events=events)])).rows
    assert [row[2:5] for row in rows] == [("host", 1, 500), ("next kernel", 1, 20_000), ("other", 1, 50_000)]


def gpu_run(folder: Path) -> RunTables:
    """Rank 0 as drawn above, rank 1 with one kernel; calls launch the second gemm late."""

    def read(path: Path) -> Reading:
        rank = int(path.stem) - 100
        told = ACTIVITIES if rank == 0 else [("gemm", 7, 0, 30)]
        events = [
            Event("gpu", name, start, end, f"0/{stream}", correlation=at)
            for at, (name, stream, start, end) in enumerate(told)
        ]
        events += [Event("cuda_api", "cudaLaunchKernel", 25, 27, correlation=1), Event("torch", "add", 0, 5)]
        return Reading(RankFacts(rank=rank), events=events)

    return open_run(write_run(folder, mpi_rank(0, 2), mpi_rank(1, 2)), read)


def test_tables_of_a_run(tmp_path: Path) -> None:
    run = gpu_run(tmp_path)
    table = gpu_time(run)
    assert table.rows == [
        (0, "0", 100, 80, pytest.approx(0.8), 20, 40, pytest.approx(0.4), 60, 10, 30, 0.5, 30),
        (1, "0", 30, 30, 1.0, 0, 30, 1.0, 0, 0, 0, None, 0),
    ]
    [told] = table.notes
    assert told.startswith("30 % of its time, GPU 0 of rank 0 communicates and computes nothing: ")
    assert [row[:5] for row in kernels(run).rows] == [
        ("compute", "gemm", 3, 60, 60 / 140),
        ("communication", NCCL, 3, 60, 60 / 140),
        ("copy", COPY, 1, 10, 10 / 140),
        ("compute", "add", 1, 10, 10 / 140),
    ]
    assert [row[:3] for row in gpu_kinds(run).rows] == [("compute", 4, 70), ("communication", 3, 60), ("copy", 1, 10)]
    assert [row[:5] for row in gpu_idle(run, Selection(frozenset([0]))).rows] == [
        (0, "0/7", "host", 1, 10),
        (0, "0/7", "next kernel", 2, 40),
        (0, "0/20", "next kernel", 2, 20),
    ]


def test_a_run_without_gpu_events_has_empty_tables(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path, mpi_rank(0, 1)), lambda path: Reading(RankFacts(rank=0)))
    assert [table(run).rows for table in (gpu_time, kernels, gpu_kinds, gpu_idle)] == [[], [], [], []]


def test_from_a_trace_to_the_breakdown() -> None:
    """The drawing as a trace, in nanoseconds that no whole microsecond tells apart."""
    events = [
        {"ph": "X", "cat": "gpu_memcpy" if name == COPY else "kernel", "name": name, "pid": 0, "tid": stream,
         "ts": start / 1000, "dur": (end - start) / 1000, "args": {"device": 0, "stream": stream}}
        for name, stream, start, end in ACTIVITIES
    ]  # fmt: skip
    content = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}).encode()
    readings = kineto.read(Source(Path("t.json"), content=content))
    time = time_of(gpu_work(reading.event_columns for reading in readings).devices["0"])
    assert (time.span_ns, time.busy_ns, time.compute_ns, time.hidden_ns) == (100, 80, 40, 30)
