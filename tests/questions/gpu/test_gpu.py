"""The questions about GPU time, on figures worked out by hand."""

from __future__ import annotations

from mpis import ROOT
from rankscope.formats.nvprof import read
from rankscope.formats.source import Source
from rankscope.model.records import Figure, RangeTally, RankFacts, Reading, Tally
from rankscope.model.tables import Table
from rankscope.questions.gpu.checks import common_factor, gpu_checks
from rankscope.questions.gpu.kernels import cuda_api, gpu, gpu_ranks
from rankscope.questions.selection import Selection
from runs.loaded import run_of, shared_file

MS = 1e6
LOG = ROOT / "tests" / "formats" / "fixtures" / "nvprof_log.txt"


def named(table: Table, row: int = 0) -> dict[str, object]:
    return dict(zip([column.name for column in table.columns], table.rows[row], strict=True))


def rank(number: int, *tallies: Tally, **facts: int) -> Reading:
    return Reading(RankFacts(rank=number, **facts), tallies=list(tallies))  # type: ignore[arg-type]


def kernel(name: str, calls: int, total_ms: float, min_ms: float | None = None) -> Tally:
    return Tally("gpu", name, calls, total_ms * MS, min_ns=min_ms and min_ms * MS)


def test_activities_over_all_ranks_and_their_spread() -> None:
    ranks = [rank(n, kernel("a", 10, total), kernel("b", 1, 10)) for n, total in enumerate((30.0, 10.0, 20.0))]
    ranks[0].range_tallies.append(RangeTally("gpu", "a", 10, 30 * MS, within="x/y"))  # not counted once more
    table = gpu(run_of(ranks))
    first = named(table)
    assert (first["calls"], first["total_ns"], first["mean_ns"]) == (30, 60 * MS, 2 * MS)
    assert first["share"] == 60 / 90
    spread = [first[name] for name in ("ranks", "least_rank_ns", "median_rank_ns", "most_rank_ns", "most_rank")]
    assert spread == [3, 10 * MS, 20 * MS, 30 * MS, 0]


def test_one_rank_has_no_spread() -> None:
    run = run_of([rank(0, kernel("a", 1, 3)), rank(1, kernel("a", 1, 5))])
    assert named(gpu(run, Selection(frozenset({1}))))["total_ns"] == 5 * MS
    assert named(gpu(run, Selection(frozenset({1}))))["most_rank"] is None


def test_shares_are_of_the_whole_where_rows_are_missing() -> None:
    reading = rank(0, kernel("a", 1, 30), Tally("gpu", "b", None, None))
    reading.figures.append(Figure("gpu", "time of all rows", 120 * MS, "ns", statistic="total"))
    table = gpu(run_of([reading]))
    assert named(table)["share"] == 0.25
    assert table.warnings == ["75 % of the time is in rows that the source left out"]
    assert named(table, 1) == {**named(table, 1), "name": "b", "calls": None, "total_ns": None, "mean_ns": None}
    assert named(gpu_ranks(run_of([reading])))["unlisted_ns"] == 90 * MS


def test_ranks_by_kind_of_work() -> None:
    row = named(gpu_ranks(run_of(read(Source(LOG)))))
    assert (row["gpu_ns"], row["communication_ns"], row["copy_ns"], row["compute_ns"]) == (
        2000 * MS,
        1500 * MS,
        20 * MS,
        480 * MS,
    )
    assert row["communication_share"] == 0.75 and row["api_ns"] == 10_000 * MS


def test_cuda_calls() -> None:
    first = named(cuda_api(run_of(read(Source(LOG)))))
    assert (first["name"], first["calls"], first["share"]) == ("cudaMemcpy", 100, 0.9)


def test_uneven_collectives_name_the_rank_that_is_waited_for() -> None:
    table = gpu_checks(run_of(read(Source(LOG))))
    (row,) = [row for row in table.rows if row[0] == "uneven collective"]
    assert row[1:5] == ("0-1", "ncclKernel_AllReduce(ncclWork)", 1000 * MS, 1000 / 1500)
    assert "67 % of the first is waiting for rank 1" in str(row[5])
    assert len(table.warnings) == 1


def test_equal_collectives_and_other_kernels_are_no_finding() -> None:
    even = [
        rank(n, kernel("ncclAllReduce", 7, total, 5), kernel("gemm", 7, 900 * n + 1)) for n, total in ((0, 50), (1, 55))
    ]
    assert gpu_checks(run_of(even)).rows == []


def test_other_calls_are_not_compared() -> None:
    other = [rank(0, kernel("ncclAllReduce", 7, 50)), rank(1, kernel("ncclAllReduce", 8, 500))]
    assert gpu_checks(run_of(other)).rows == []


def test_waiting_inside_a_collective() -> None:
    (row,) = gpu_checks(run_of([rank(0, kernel("ncclBroadcast", 10, 100, 1))])).rows
    assert row[:5] == ("waiting inside", "0", "ncclBroadcast", 90 * MS, 0.9)
    assert gpu_checks(run_of([rank(0, kernel("gemm", 10, 100, 1))])).rows == []


def test_common_factors() -> None:
    assert common_factor({512, 526, 58, 288, 102, 48, 8, 71}) == 16
    assert common_factor({96, 131, 1418, 1302, 32, 320, 8, 726, 640, 128, 2, 102, 52}) == 32
    assert common_factor({3, 5, 7, 11, 13}) is None
    assert common_factor({2, 4, 6}) is None
    assert common_factor(set()) is None


def test_the_second_document_gives_away_who_waits() -> None:
    table = gpu_checks(run_of(read(Source(shared_file("seeds/003*")))))
    (row,) = [row for row in table.rows if row[0] == "uneven collective"]
    assert round(float(row[3] or 0)) == 294_350_000 - 81_845_000
    assert "72 % of the first is waiting for rank 1" in str(row[5])
    assert any("multiples of 32" in str(row[5]) for row in table.rows)
