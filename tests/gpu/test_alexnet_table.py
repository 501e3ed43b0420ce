"""The table of AlexNet by ranks and batch: from real runs, and from tallies whose shares are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rankscope.model.gpu import DeviceTotals
from rankscope.model.records import RangeTally, RankFacts, Reading, Tally
from runs.loaded import run_of
from scripts.alexnet_table import PARTS, Result, gathered, row_of, shares_of, tables_of, together

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "tests" / "runs" / "h200_alexnet.tar.gz"  # one rank, batch 8 and 128; and a run that was stopped
MS = 1_000_000
ALL_REDUCE = "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"
ADD = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"


def rank(number: int, marked: bool) -> Reading:
    """40 ms of GPU time: 20 all-reduce, 4 optimizer, 6 copies, 10 computing."""
    times = {ALL_REDUCE: 20, ADD: 4, "[CUDA memcpy HtoD]": 5, "[CUDA memset]": 1, "gemm": 10}
    tallies = [Tally("gpu", name, 1, time * MS) for name, time in times.items()]
    ranged: list[RangeTally] = []
    if marked:  # there, an addition outside of the range is none of the optimizer's
        optimizer = "<unnamed>/iteration\x1f<unnamed>/optimizer"
        ranged.append(RangeTally("gpu", ADD, 1, 3 * MS, within=optimizer))
        ranged.append(RangeTally("gpu", "[CUDA memset]", 1, 1 * MS, within="<unnamed>/forward"))
        told = ("nvtx", "iteration", 3, 30 * MS, "<unnamed>")
        longest = {"min_ns": 4 * MS, "max_ns": 20 * MS}
        tallies.append(Tally(*told, **longest))
        ranged.append(RangeTally(*told, within="<unnamed>/iteration", **longest))
    devices = [DeviceTotals(0, 5, 90 * MS, 25 * MS, compute_ns=0, communication_ns=0, copy_ns=0, hidden_ns=0)]
    return Reading(RankFacts(rank=number), tallies=tallies, range_tallies=ranged, devices=devices)


def test_shares_by_name_and_by_range() -> None:
    shares, by_name = shares_of(run_of([rank(0, marked=False), rank(1, marked=False)]))
    assert by_name and shares[0].gpu_ns == 40 * MS and shares[0].iteration_ns is None
    assert [shares[0].parts[part] / MS for part in PARTS] == [4, 20, 0, 0, 0, 6]
    marked, by_name = shares_of(run_of([rank(0, marked=True)]))
    assert not by_name and marked[0].gpu_ns == 40 * MS
    assert [marked[0].parts[part] / MS for part in PARTS] == [3, 20, 0, 0, 0, 6]
    assert marked[0].iteration_ns == 5 * MS, "without the longest"


def test_a_row_of_all_ranks() -> None:
    shares, _ = shares_of(run_of([rank(0, marked=False), rank(1, marked=False)]))
    told = {"iterations": 2, "first_iteration_s": 0.08, "iteration_s": 0.02}
    row = row_of(Result("ddp", 2, 8, told), together(shares))
    style, ranks, batch, which, iteration_ns, images_per_s, gpu_ns, optimizer, all_reduce, *_ = row
    assert (style, ranks, batch, which, iteration_ns, images_per_s) == ("ddp", 2, 8, "all", 20 * MS, 400)
    assert (gpu_ns, optimizer, all_reduce, row[12], row[13]) == (20 * MS, 0.1, 0.5, 0.15, 2 * MS)
    assert row[14] == 0.25, "busy: 25 of 100 ms"


def test_recorded_runs() -> None:
    merged, moving, by_rank = tables_of(gathered([ARCHIVE]))
    rows = {row[:3]: dict(zip([column.name for column in merged.columns], row, strict=True)) for row in merged.rows}
    small, large = rows["ddp", 1, 8], rows["ddp", 1, 128]
    assert round(float(str(small["images_per_s"]))) == 1582 and round(float(str(large["images_per_s"]))) == 12364
    for row in (small, large):
        assert round(float(str(row["optimizer_ns"])) / 1e6, 2) in (0.66, 0.67), "a fixed cost"
    assert (f"{small['optimizer_share']:.3f}", f"{large['optimizer_share']:.3f}") == ("0.184", "0.055")
    assert [row[3:] for row in moving.rows if row[2] == "Optimizer"] == [("18.4%", "", "5.5%")]
    assert len(by_rank.rows) == 2
    assert [text.partition(" (")[0] for text in merged.warnings] == [
        "alexnet-2-32 did not end",
        "alexnet-4-32 did not end",
    ]


def test_command() -> None:
    command = [sys.executable, ROOT / "scripts/alexnet_table.py", ARCHIVE, "--markdown"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "| ddp | 1 | 8 | all | 5.06 ms |" in done.stdout, done.stderr
