"""Gaps, copies, memory and the spread over ranks, on figures worked out by hand."""

from __future__ import annotations

from rankscope.model import Figure, RankFacts, Reading, Table, Tally
from rankscope.questions.gpu.device_time import gpu_gaps, gpu_spread
from rankscope.questions.gpu.kernels import gpu_copies
from rankscope.questions.gpu.memory import gpu_memory
from rankscope.questions.registry import default_tables
from rankscope.questions.run.overview import figures
from rankscope.questions.selection import Selection, spread
from runs.loaded import run_of

GB = 10**9


def sums(**values: float) -> list[Figure]:
    return [Figure("GPU 0", name.replace("_", " "), value, "ns") for name, value in values.items()]


def rank(number: int, given: list[Figure], *tallies: Tally) -> Reading:
    return Reading(RankFacts(rank=number), figures=given, tallies=list(tallies))


def rows(table: Table) -> dict[object, dict[str, object]]:
    names = [column.name for column in table.columns]
    return {row[0]: dict(zip(names, row, strict=True)) for row in table.rows}


def test_spread_names_the_ranks() -> None:
    assert spread([(5.0, 7), (1.0, 8), (3.0, 9), (9.0, 2)]) == (4, 1.0, 8, 3.0, 9.0, 2)
    assert spread([(5.0, 7)]) == (1, None, None, None, None, None)


def test_gpu_time_over_the_ranks() -> None:
    first = sums(first_to_last=100, busy=60, compute=40, communication=30, copy=5, communication_hidden=10)
    second = sums(first_to_last=100, busy=20, compute=20, communication=10, copy=0, communication_hidden=10)
    run = run_of([rank(0, first), rank(1, second)])
    told = rows(gpu_spread(run))
    assert (told["busy"]["total_ns"], told["busy"]["share"]) == (80, 0.4)
    assert [told["idle"][name] for name in ("least_rank_ns", "least_rank", "most_rank_ns", "most_rank")] == [
        40,
        0,
        80,
        1,
    ]
    assert told["communication exposed"]["total_ns"] == 20 + 0
    assert told["communication hidden"]["median_rank_ns"] == 10
    assert {"gpu_time", "gpu_spread"} <= set(default_tables(run)) and "kernels" not in default_tables(run)
    assert figures(run).rows == [], "they have tables of their own"


def test_gaps_by_length() -> None:
    def gaps(*told: tuple[str, int, float]) -> list[Figure]:
        counts = [Figure("GPU 0", f"idle gaps {length}", number, "count") for length, number, _ in told]
        return counts + [Figure("GPU 0", f"idle in gaps {length}", ns, "ns") for length, _, ns in told]

    run = run_of(
        [rank(0, gaps((">= 1 s", 1, 2e9), ("< 10 us", 4, 8e3))), rank(1, gaps(("< 1 ms", 2, 1e6), ("< 10 us", 1, 2e3)))]
    )
    table = gpu_gaps(run)
    assert [row[0] for row in table.rows] == ["< 10 us", "< 1 ms", ">= 1 s"]
    told = rows(table)["< 10 us"]
    assert (told["gaps"], told["idle_ns"], told["mean_ns"], told["ranks"]) == (5, 1e4, 2e3, 2)
    assert (told["least_rank"], told["most_rank"], told["most_rank_ns"]) == (1, 0, 8e3)
    assert sum(float(str(row[3])) for row in table.rows) == 1
    assert len(gpu_gaps(run, Selection(frozenset({1}))).rows) == 2


def test_copies_and_their_bandwidth() -> None:
    def copy(size: int, ns: float, within: str = "") -> Tally:
        return Tally("gpu", "[CUDA memcpy HtoD]", 2, ns, bytes=size, within=within)

    kernel = Tally("gpu", "memory_bound_kernel", 1, 5.0, bytes=0)
    run = run_of([rank(0, [], copy(4 * GB, 1e9), kernel), rank(1, [], copy(2 * GB, 2e9), copy(2 * GB, 2e9, "a/b"))])
    (row,) = rows(gpu_copies(run)).values()
    assert (row["calls"], row["bytes"], row["mean_bytes"], row["rate"]) == (4, 6 * GB, 1.5 * GB, 2 * GB)
    assert (row["least_rank_rate"], row["least_rank"], row["most_rank_rate"], row["most_rank"]) == (GB, 1, 4 * GB, 0)


def test_memory_of_each_gpu() -> None:
    def device(number: int) -> list[Figure]:
        told = {
            "allocations": 3,
            "allocated": 300,
            "releases": 1,
            "released": 100,
            "memory in use": 200,
            "memory in use, peak": 250,
        }
        return [Figure(f"GPU {number}", name, value, "bytes") for name, value in told.items()]

    pinned = Figure("host", "pinned memory in use, peak", 64, "bytes")
    table = gpu_memory(run_of([rank(3, [*device(0), *device(1), pinned]), rank(4, [])]))
    untold = (None,) * 7
    assert table.rows == [
        (3, "0", 3, 300, 1, 100, 200, 250, *untold, 64),
        (3, "1", 3, 300, 1, 100, 200, 250, *untold, None),
    ]
