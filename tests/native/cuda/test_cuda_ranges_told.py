"""What reports make of work attributed to NVTX ranges, on a fake CUPTI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from native.cuda import test_cuda_ranges
from native.cuda.test_cuda_ranges import LAUNCH, MALLOC, attributed, only, play
from rankscope.output.layouts.nvprof import to_nvprof
from rankscope.questions.events.ranges import nvtx_ranges
from rankscope.questions.gpu.kernels import cuda_api, gpu
from rankscope.questions.layouts.iprof import iprof_parts
from rankscope.questions.layouts.nvprof import nvprof_processes, nvprof_rows
from rankscope.questions.run.coverage import overhead
from rankscope.questions.run.overview import tallies
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run

plain = test_cuda_ranges.plain


def opened(folder: Path) -> RunTables:
    (folder / "run.json").write_text('{"format": 1, "name": "x", "command": ["x"], "expected_ranks": 1}')
    return open_run(folder, read_rank_file)


TWO_THREADS = [
    *("s 1 501 1000 - step", "s 2 501 1100 model forward", "s 3 501 1200 NCCL ncclAllReduce", "s 4 501 1700 - empty"),
    *("e 3 501 1300", "e 2 501 1500", "e 4 501 1750", "e 1 501 2000", "s 5 502 1000 - step", "e 5 502 4000"),
    *(f"r 10 501 {LAUNCH} 1050 1060", f"r 11 501 {LAUNCH} 1150 1160", f"r 12 501 {LAUNCH} 1210 1230"),
    *(f"r 13 502 {LAUNCH} 2000 2010", f"r 14 501 {MALLOC} 1720 1725"),
    *("k 10 5000 5100 add", "k 11 6000 6300 gemm", "k 12 7000 7500 nccl", "k 13 8000 8010 add"),
]


def test_the_table_of_ranges(plain: Path, tmp_path: Path) -> None:
    """Inclusive and exclusive, worked out by hand: step holds both threads'."""
    play(plain, tmp_path, TWO_THREADS)
    assert nvtx_ranges(opened(tmp_path)).rows == [
        ("step", "<unnamed>", 2, 4000, 3550, 4, 2, 910, 110, 5, 55, 1),
        ("  forward", "model", 1, 400, 300, 2, 1, 800, 300, 2, 30, 1),
        ("    ncclAllReduce", "NCCL", 1, 100, 100, 1, 1, 500, 500, 1, 20, 1),
        ("  empty", "<unnamed>", 1, 50, 50, 0, 0, 0, 0, 1, 5, 1),
    ]


def test_the_layout_of_nvprof(plain: Path, tmp_path: Path) -> None:
    play(plain, tmp_path, TWO_THREADS)
    run = opened(tmp_path)
    rows = [row for row in nvprof_rows(run).rows if row[4]]
    found = {(row[1], row[3], row[4], row[5], row[12]): (row[8], row[7]) for row in rows}
    assert found == {
        (501, "<unnamed>", "step", "nvtx", "step"): (1, 1000),
        (501, "<unnamed>", "step", "gpu", "add"): (1, 100),
        (501, "<unnamed>", "step", "gpu", "gemm"): (1, 300),
        (501, "<unnamed>", "step", "gpu", "nccl"): (1, 500),
        (501, "<unnamed>", "step", "cuda_api", "cudaLaunchKernel"): (3, 40),
        (501, "<unnamed>", "step", "cuda_api", "cudaMalloc"): (1, 5),
        (501, "model", "forward", "nvtx", "forward"): (1, 400),
        (501, "model", "forward", "gpu", "gemm"): (1, 300),
        (501, "model", "forward", "gpu", "nccl"): (1, 500),
        (501, "model", "forward", "cuda_api", "cudaLaunchKernel"): (2, 30),
        (501, "NCCL", "ncclAllReduce", "nvtx", "ncclAllReduce"): (1, 100),
        (501, "NCCL", "ncclAllReduce", "gpu", "nccl"): (1, 500),
        (501, "NCCL", "ncclAllReduce", "cuda_api", "cudaLaunchKernel"): (1, 20),
        (501, "<unnamed>", "empty", "nvtx", "empty"): (1, 50),
        (501, "<unnamed>", "empty", "cuda_api", "cudaMalloc"): (1, 5),
        (502, "<unnamed>", "step", "nvtx", "step"): (1, 3000),
        (502, "<unnamed>", "step", "gpu", "add"): (1, 10),
        (502, "<unnamed>", "step", "cuda_api", "cudaLaunchKernel"): (1, 10),
    }
    text = to_nvprof(nvprof_processes(run), nvprof_rows(run))
    assert '   Thread "<unnamed>" (id = 501)' in text and "No kernels were profiled in this range." in text
    assert len(nvprof_rows(run, merged=True).rows) < len(nvprof_rows(run).rows)


def test_a_range_that_did_not_end_still_holds_its_kernels(plain: Path, tmp_path: Path) -> None:
    play(plain, tmp_path, ["s 1 501 100 model open", f"r 5 501 {LAUNCH} 110 120", "k 5 200 210 inside"])
    rows = [row for row in nvprof_rows(opened(tmp_path)).rows if row[5] == "gpu"]
    assert [(row[3], row[4], row[8]) for row in rows] == [("", "", 1), ("model", "open", 1)]


def test_threads_have_their_names(plain: Path, tmp_path: Path) -> None:
    play(plain, tmp_path, ["n", "s 1 0 100 - A", "e 1 0 200"])
    run = opened(tmp_path)
    assert 'Thread "main of it" (id = ' in to_nvprof(nvprof_processes(run), nvprof_rows(run))


def total(at: int, rows: Sequence[Sequence[Any]]) -> int:
    return sum(row[at] for row in rows)


def test_nothing_is_counted_twice(plain: Path, tmp_path: Path) -> None:
    play(plain, tmp_path, TWO_THREADS)
    run = opened(tmp_path)
    whole = [row for row in nvprof_rows(run).rows if not row[4]]
    assert total(8, [row for row in whole if row[5] == "gpu"]) == 4
    assert total(8, [row for row in whole if row[5] == "cuda_api"]) == 5
    assert total(1, gpu(run).rows) == 4 and total(1, cuda_api(run).rows) == 5
    parts = {part.name: part.rows[-1] for part in iprof_parts(run)}
    assert [parts[name][3] for name in ("Device profiling", "BACKEND_CUDA")] == [4, 5]
    listed = [row for row in tallies(run).rows if row[0] == "nvtx"]
    assert total(4, listed) == 5 and all(not row[2] for row in listed)
    assert overhead(run).rows[0][4] == 14


def test_a_range_that_never_ends_holds_nothing(plain: Path, tmp_path: Path) -> None:
    """Some libraries forget the end of a range; what comes after does not lie in it."""
    script = ["s 1 501 1 NCCL forgotten", f"r 6 501 {LAUNCH} 2 3", "k 6 4 5 alone", "s 2 501 10 - A"]
    play(plain, tmp_path, [*script, f"r 7 501 {LAUNCH} 20 30", "k 7 40 50 inside", "e 2 501 60"])
    found = attributed(only(tmp_path))
    assert found["gpu", "<unnamed>/A", "inside"] == (1, 10, 0)
    assert not [key for key in found if "forgotten" in key[1]]
    table = gpu(opened(tmp_path))
    assert {row[0]: row[1] for row in table.rows} == {"alone": 1, "inside": 1}, "and nothing is counted twice"
