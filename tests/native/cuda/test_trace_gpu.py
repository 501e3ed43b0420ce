"""Kernels, copies, CUDA calls, NVTX ranges and NCCL operations in the trace, on the fakes: as many, as long."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from native.cuda import test_cuda
from native.nccl import test_nccl
from native.nccl.test_nccl import FakeNccl, column
from programs import recorded
from rankscope.rank_file import ChunkKind
from rankscope.rank_files.chunks import open_rank_file
from rankscope.rank_files.clock import Clock
from rankscope.rank_files.events import trace_events
from rankscope.rank_files.trace import trace_blocks

pytestmark = pytest.mark.timeout(600)  # the first one compiles the recorder with a sanitizer

TRACE = {"RANKSCOPE_TRACE_BYTES": str(4 << 20)}
INTERFACES = (1, 3, 6)  # without kernels, with them, and the newest: what the trace is told does not change in between
KEPT = ("layer", "group", "name", "start_ns", "end_ns", "bytes", "failed")

Sums = dict[tuple[str, str], tuple[int, ...]]


@pytest.fixture(scope="session")
def cuda(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return test_cuda.make_driver(tmp_path_factory.mktemp("cuda"), sanitizer)


@pytest.fixture(scope="session")
def nccl(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> FakeNccl:
    return test_nccl.make(tmp_path_factory.mktemp("nccl"), sanitizer)


def rows_of(path: Path, *names: str) -> list[tuple[Any, ...]]:
    return [row for block in trace_events(path) for row in zip(*(column(block, name) for name in names), strict=True)]


def sums(rows: list[tuple[Any, ...]], layer: str) -> Sums:
    """Calls, total, shortest, longest and bytes by group and name."""
    found: Sums = {}
    for _, group, name, start_ns, end_ns, size, _ in (row for row in rows if row[0] == layer):
        took, (calls, total, least, most, moved) = end_ns - start_ns, found.get((group, name), (0, 0, 1 << 62, 0, 0))
        found[group, name] = (calls + 1, total + took, min(least, took), max(most, took), moved + size)
    return found


def test_every_activity_call_and_range(cuda: Path, tmp_path: Path) -> None:
    test_cuda.run(cuda, tmp_path, **TRACE)
    (path,) = recorded.rank_files(tmp_path)
    rows = rows_of(path, *KEPT)
    assert sums(rows, "gpu") == test_cuda.GPU_ROWS
    assert sums(rows, "cuda_api") == test_cuda.API_ROWS
    assert sums(rows, "nvtx") == test_cuda.NVTX_ROWS
    assert [row[2] for row in rows if row[6]] == ["cudaMalloc"]
    test_cuda.check_everything(path)


def test_activities_are_where_both_clocks_say(cuda: Path, tmp_path: Path) -> None:
    """The kernel that began first did so 1 ms after 0 of the fake's clock; when that was, the pair of moments tells."""
    test_cuda.run(cuda, tmp_path, **TRACE)
    (path,) = recorded.rank_files(tmp_path)
    how, clock = open_rank_file(path).parts(ChunkKind.CUDA)[0].rows[0], Clock(open_rank_file(path).header)
    starts = {row[2]: row[3] for row in rows_of(path, *KEPT) if row[2] in ("empty", "add")}
    zero_ns = int(clock.unix_ns(int(how["started_ticks"]))) - int(how["started_ns"])
    assert starts == {"empty": zero_ns + 1_000_000, "add": zero_ns + 1_060_000}
    # each reading has the length it took, which is some of the time between them
    widths = [int(how[f"{which}_width_ticks"]) for which in ("started", "flushed")]
    assert 0 < min(widths) and max(widths) < int(how["flushed_ticks"]) - int(how["started_ticks"])


def test_buffers_from_many_threads(cuda: Path, tmp_path: Path) -> None:
    test_cuda.run(cuda, tmp_path, "threads", **TRACE)
    (path,) = recorded.rank_files(tmp_path)
    assert sum(len(rows) for rows in trace_blocks(open_rank_file(path))) == 80_000
    assert set(sums(rows_of(path, *KEPT), "gpu").values()) == {(400, 24_000, 60, 60, 0)}


@pytest.mark.parametrize("version", INTERFACES)
def test_every_operation_of_nccl(nccl: FakeNccl, version: int, tmp_path: Path) -> None:
    """With the log off every one is in the trace, by algorithm not once more."""
    nccl.run(tmp_path, version, "play", 40, RANKSCOPE_LOG_RECORDS="0", **TRACE)
    (path,) = recorded.rank_files(tmp_path)
    counts = test_nccl.counted(recorded.read(path))
    found = Counter((layer, name, kind, "calls") for layer, name, kind in rows_of(path, "layer", "name", "kind"))
    assert found == {key: number for key, number in counts.items() if key[0] == "nccl" and key[3] == "calls"}


@pytest.mark.parametrize("version", INTERFACES)
def test_collectives_of_nccl_come_from_the_log(nccl: FakeNccl, version: int, tmp_path: Path) -> None:
    nccl.run(tmp_path, version, "play", 40, **TRACE)
    (path,) = recorded.rank_files(tmp_path)
    reading = recorded.read(path)
    logged = set(column(reading.event_columns, "name"))
    found = set(rows_of(path, "name", "kind"))
    assert logged and not {(name, "progress") for name in logged} & found
    calls_told = {
        name
        for name, call in zip(*(column(reading.event_columns, key) for key in ("name", "call_ns")), strict=True)
        if call is not None
    }
    assert not {(name, "call") for name in calls_told} & found
