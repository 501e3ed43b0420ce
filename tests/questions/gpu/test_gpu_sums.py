"""Gaps, copies, memory and the spread over ranks, on figures worked out by hand."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from mpis import ROOT
from rankscope.model.gpu import DeviceGaps, DeviceTotals
from rankscope.model.records import Figure, RangeTally, RankFacts, Reading, Tally
from rankscope.model.tables import Table
from rankscope.questions.gpu.device_time import gpu_gaps, gpu_spread, gpu_time
from rankscope.questions.gpu.kernels import gpu_copies
from rankscope.questions.gpu.memory import gpu_memory
from rankscope.questions.registry import default_tables
from rankscope.questions.run.overview import figures
from rankscope.questions.selection import Selection, spread
from rankscope.rank_file import CUDA, DEVICE
from rankscope.rank_files.cuda import add_devices
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import OpenOptions, open_run
from runs.loaded import run_of

GB = 10**9


def rank(number: int, *tallies: Tally, **known: Any) -> Reading:
    return Reading(RankFacts(rank=number), tallies=list(tallies), **known)


def rows(table: Table) -> dict[object, dict[str, object]]:
    names = [column.name for column in table.columns]
    return {row[0]: dict(zip(names, row, strict=True)) for row in table.rows}


def test_spread_names_the_ranks() -> None:
    assert spread([(5.0, 7), (1.0, 8), (3.0, 9), (9.0, 2)]) == (4, 1.0, 8, 3.0, 9.0, 2)
    assert spread([(5.0, 7)]) == (1, None, None, None, None, None)


def test_gpu_time_over_the_ranks() -> None:
    first = DeviceTotals(0, 9, 100, busy_ns=60, compute_ns=40, communication_ns=30, copy_ns=5, hidden_ns=10)
    second = DeviceTotals(0, 9, 100, busy_ns=20, compute_ns=20, communication_ns=10, copy_ns=0, hidden_ns=10)
    run = run_of([rank(0, devices=[first]), rank(1, devices=[second])])
    told = rows(gpu_spread(run))
    assert (told["busy"]["total_ns"], told["busy"]["share"]) == (80, 0.4)
    assert [told["idle"][name] for name in ("least_rank_ns", "least_rank", "most_rank_ns", "most_rank")] == [
        40,
        0,
        80,
        1,
    ]
    assert told["communication exposed"]["total_ns"] == 20 + 0
    assert told["communication overlapped"]["median_rank_ns"] == 10
    assert {"gpu_time", "gpu_spread"} <= set(default_tables(run)) and "kernels" not in default_tables(run)
    assert figures(run).rows == [], "they have tables of their own"


def test_gaps_by_length() -> None:
    first = [DeviceGaps(0, 10**9, None, 1, 2 * 10**9), DeviceGaps(0, 1000, 10_000, 3, 6000)]
    first.append(DeviceGaps(1, 1000, 10_000, 1, 2000))
    second = [DeviceGaps(0, 100_000, 10**6, 2, 10**6), DeviceGaps(0, 1000, 10_000, 1, 2000)]
    run = run_of([rank(0, device_gaps=first), rank(1, device_gaps=second)])
    table = gpu_gaps(run)
    assert [row[0] for row in table.rows] == ["< 10 us", "< 1 ms", ">= 1 s"]
    told = rows(table)["< 10 us"]
    assert (told["gaps"], told["idle_ns"], told["mean_ns"], told["ranks"]) == (5, 1e4, 2e3, 2)
    assert (told["least_rank"], told["most_rank"], told["most_rank_ns"]) == (1, 0, 8e3)
    assert sum(float(str(row[3])) for row in table.rows) == 1
    assert len(gpu_gaps(run, Selection(frozenset({1}))).rows) == 2


def test_copies_and_their_bandwidth() -> None:
    def copy(size: int, ns: float) -> Tally:
        return Tally("gpu", "[CUDA memcpy HtoD]", 2, ns, bytes=size)

    kernel = Tally("gpu", "memory_bound_kernel", 1, 5.0, bytes=0)
    second = rank(1, copy(2 * GB, 2e9))
    second.range_tallies.append(RangeTally("gpu", "[CUDA memcpy HtoD]", 2, 2e9, bytes=2 * GB, within="a/b"))
    run = run_of([rank(0, copy(4 * GB, 1e9), kernel), second])
    (row,) = rows(gpu_copies(run)).values()
    assert (row["calls"], row["bytes"], row["mean_bytes"], row["rate"]) == (4, 6 * GB, 1.5 * GB, 2 * GB)
    assert (row["least_rank_rate"], row["least_rank"], row["most_rank_rate"], row["most_rank"]) == (GB, 1, 4 * GB, 0)


def test_memory_of_each_gpu() -> None:
    told = {"allocations": 3, "allocated_bytes": 300, "releases": 1, "released_bytes": 100}
    told |= {"current_bytes": 200, "peak_bytes": 250}
    both = rank(3, devices=[DeviceTotals(10, **told), DeviceTotals(2, **told), DeviceTotals(3, activities=5)])
    both.facts.pinned_peak_bytes = 64
    table = gpu_memory(run_of([both, rank(4, devices=[DeviceTotals(0, migrated_in_bytes=None)])]))
    untold = (None,) * 7
    assert table.rows == [
        (3, "2", 3, 300, 1, 100, 200, 250, *untold, 64),
        (3, "10", 3, 300, 1, 100, 200, 250, *untold, None),
    ]


def test_what_no_other_table_tells_of_a_device_is_a_figure() -> None:
    """What is refused or zero is none; those of one device stand together, before those that were read as figures."""
    first = rank(0, devices=[DeviceTotals(1, late_ns=7, gpu_faults=2), DeviceTotals(0, migrations=3, migration_ns=40)])
    first.facts.unified_faults = 5
    second = rank(1, devices=[DeviceTotals(0, migrations=None, migration_ns=9)], figures=[Figure("a", "b", 1, "ns")])
    shown = [(row[0], row[1], row[5] or row[7], row[-1]) for row in figures(run_of([first, second])).rows]
    assert shown == [
        ("GPU 0", "unified memory moving", 40, 0),
        ("GPU 0", "unified memory moving", 9, 1),
        ("GPU 0", "unified memory moves", 3, 0),
        ("GPU 1", "too late to be placed, at most", 7, 0),
        ("GPU 1", "unified memory fault groups", 2, 0),
        ("host", "unified memory faults", 5, 0),
        ("a", "b", 1, 1),
    ]
    assert [row[0] for row in figures(run_of([first, second]), Selection(frozenset({1}))).rows] == ["GPU 0", "a"]


def test_a_damaged_row_of_a_device_still_makes_tables() -> None:
    """Every number is 2**64 - 1, beyond what the tables can hold."""
    damaged = np.frombuffer(b"\xff" * 2 * DEVICE.itemsize, DEVICE).copy()
    damaged["first_ns"], damaged["device"] = 0, (0, 1)
    reading = rank(0)
    add_devices(reading, np.zeros(1, CUDA), damaged)
    assert {one.busy_ns for one in reading.devices} == {2**63 - 1} and len(reading.device_gaps) == 2 * 8
    run = run_of([reading])
    assert len(gpu_time(run).rows) == len(gpu_memory(run).rows) == 2
    assert len(gpu_gaps(run).rows) == 8 and len(figures(run).rows) == 2 * 4 and gpu_spread(run).rows


def test_on_the_h200_gaps_and_busy_time_are_the_whole_time(tmp_path: Path) -> None:
    """To the nanosecond: all are integers on their way from the recorder's sums."""
    with tarfile.open(ROOT / "tests" / "runs" / "h200_runs.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    seen = 0
    for folder in sorted({path.parents[2] for path in tmp_path.rglob("*.rank")}):
        sql = """SELECT span_ns, busy_ns, sum(idle_ns)::BIGINT FROM devices JOIN device_gaps USING (process, device)
            GROUP BY ALL"""
        for span_ns, busy_ns, idle_ns in open_run(folder, read_rank_file, OpenOptions(events=False)).query(sql):
            assert span_ns == busy_ns + idle_ns
            seen += 1
    assert seen == 3  # two ranks of ddp, one of model-all
