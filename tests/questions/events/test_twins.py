"""The compiled sums over events say what the plain ones in Python say, and what must be true of both."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from native.read import in_python
from rankscope.model.tables import Words
from rankscope.questions.events import sums as compiled
from rankscope.questions.events.sums import FIRST, LENGTH_SUM, RANGE_SUM, empty_covers, empty_sums
from rankscope.questions.events.tables import RangeWork
from rankscope.rank_file import EVENT, LAP, LayerNumber
from rankscope.rank_files.clock import Clock, CuptiClock
from rankscope.rank_files.trace import Seen, TraceClocks

TIMES = st.tuples(st.integers(0, 60), st.integers(0, 20))
SIZES = st.sampled_from([1, 977, 2**40])


def arrays(rows: list[tuple[int, ...]], scale: int = 1) -> tuple[Any, Any]:
    start_ns = np.array([row[0] for row in rows], np.int64) * scale
    return start_ns, start_ns + np.array([row[1] for row in rows], np.int64) * scale


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**47), st.integers(0, 4)), max_size=40))
def test_lengths(rows: list[tuple[int, int, int]]) -> None:
    start_ns, end_ns = arrays([row[:2] for row in rows])
    codes = np.array([row[2] for row in rows], np.int32)
    found = [empty_sums(LENGTH_SUM, 5) for _ in range(2)]
    compiled.add_lengths(codes, start_ns, end_ns, found[0])
    in_python.add_lengths(codes, start_ns, end_ns, found[1])
    assert (found[0] == found[1]).all()


@given(st.lists(st.tuples(TIMES, st.integers(0, 3), st.integers(0, 2), st.integers(-1, 60)), max_size=40), SIZES)
def test_walk(rows: list[tuple[tuple[int, int], int, int, int]], scale: int) -> None:
    """Also in two parts: the second goes on where the first ended."""
    rows = sorted(rows, key=lambda row: row[0][0])
    times = arrays([row[0] for row in rows], scale)
    kind, stream = np.array([row[1] for row in rows], np.uint8), np.array([row[2] for row in rows], np.int32)
    launch = np.array([row[3] for row in rows], np.int64) * scale
    found = []
    for walk in (compiled.walk_device, in_python.walk_device):
        covers, done, gaps = empty_covers(), np.full(3, FIRST, np.int64), []
        for part in (slice(0, len(rows) // 2), slice(len(rows) // 2, None)):
            made = walk((times[0][part], times[1][part]), kind[part], stream[part], launch[part], covers, done)
            gaps += list(zip(*(column.tolist() for column in made), strict=True))
        found.append((covers.tolist(), done.tolist(), sorted(gaps)))
    assert found[0] == found[1]


def swept(ranges: list[tuple[int, int]], calls: list[int], sweep: Any) -> Any:
    """Ranges that have each a code of their own, the calls launching 1, 2, … activities."""
    ordered = sorted(ranges, key=lambda one: (one[0], -one[1]))
    sums = empty_sums(RANGE_SUM, len(ranges))
    launches = np.array(sorted(calls), np.int64)
    weights = np.arange(1, len(calls) + 1)
    sweep(arrays(ordered), np.arange(len(ranges), dtype=np.int32), (launches, weights, weights * 10), sums)
    return ordered, launches, sums


@given(st.lists(TIMES, max_size=12), st.lists(st.integers(0, 80), max_size=8))
def test_sweep(ranges: list[tuple[int, int]], calls: list[int]) -> None:
    found = [swept(ranges, calls, sweep)[2] for sweep in (compiled.sweep_ranges, in_python.sweep_ranges)]
    assert (found[0] == found[1]).all()


@given(st.lists(TIMES, max_size=12), st.lists(st.integers(0, 80), max_size=8))
def test_each_moment_belongs_to_the_range_begun_last(ranges: list[tuple[int, int]], calls: list[int]) -> None:
    """By counting moments: none is counted twice, none that a range covers is left out."""
    ordered, launches, sums = swept(ranges, calls, compiled.sweep_ranges)
    own = [0] * len(ordered)
    for moment in range(100):
        open_ones = [at for at, (start, length) in enumerate(ordered) if start <= moment < start + length]
        if open_ones:
            own[open_ones[-1]] += 1
    assert sums["own_ns"].tolist() == own
    for at, (start, length) in enumerate(ordered):
        inside = [weight for weight, call in enumerate(launches.tolist(), 1) if start <= call < start + length]
        assert int(sums["activities"][at]) == sum(inside)


def test_ranges_on_their_threads_by_hand() -> None:
    """Thread 1: a 0-100 holds b 10-30 and b 40-50, which holds c 41-49; thread 2: b 0-20. Blocks cut them anywhere."""
    rows = [("a", 1, 0, 100), ("b", 1, 10, 30), ("c", 1, 41, 49), ("b", 1, 40, 50), ("b", 2, 0, 20)]
    for cut in range(len(rows) + 1):
        work = RangeWork()
        for part in (rows[cut:], rows[:cut]):
            if part:
                work.add(_columns(part), np.arange(len(part)))
        sums = work.sums({})
        found = {key[2]: (int(one["calls"]), int(one["total_ns"])) for key, one in zip(work.keys(), sums, strict=True)}
        assert found == {"a": (1, 100), "b": (3, 50), "c": (1, 8)}
        own = {key[2]: int(one["own_ns"]) for key, one in zip(work.keys(), sums, strict=True)}
        assert own == {"a": 70, "b": 42, "c": 8}


def _columns(rows: list[tuple[str, int, int, int]]) -> dict[str, Any]:
    return {
        "layer": Words(np.zeros(len(rows), np.int32), ["nvtx"]),
        "name": Words(np.arange(len(rows), dtype=np.int32), [row[0] for row in rows]),
        "group": Words(np.zeros(len(rows), np.int32), [""]),
        "thread": np.array([row[1] for row in rows]),
        "start_ns": np.array([row[2] for row in rows], np.int64),
        "end_ns": np.array([row[3] for row in rows], np.int64),
    }


CUPTI = [("started_ns", "u8"), ("started_ticks", "u8"), ("flushed_ns", "u8"), ("flushed_ticks", "u8")]


@given(
    st.lists(st.tuples(st.integers(0, 2**63), st.integers(0, 2**47), st.sampled_from([1, 3, 7, 15, 200])), max_size=20),
    st.sampled_from([1, 3, 2_400_000_001]),
)
def test_times(rows: list[tuple[int, int, int]], ticks: int) -> None:
    header = {
        "tick_source": 1,
        "loaded": {"ticks": 5, "monotonic_ns": 7, "realtime_ns": 1_800_000_000 * 10**9},
        "facts": {"anchor": {"ticks": 5 + ticks, "monotonic_ns": 7 + 10**9}},
    }
    clock = Clock(header)
    cuda = np.array([(10**9, 10**9, 16 * 10**9, 36 * 10**9 + 17)], CUPTI)
    clocks = TraceClocks(clock, CuptiClock(clock, cuda))
    made = np.zeros(len(rows), EVENT)
    for row, (start, duration, layer) in zip(made, rows, strict=True):
        row["start_ticks"], row["duration_low"], row["mark"] = start, duration % 2**32, LAP + (duration >> 32)
        row["layer"], row["name"], row["group"], row["flags"] = layer, layer, 3, layer % 16
    seen = Seen(), Seen()
    found, twin = clocks.times(made, seen[0]), in_python.times(clocks, made, seen[1])
    assert all((one == other).all() for one, other in zip(found, twin, strict=True))
    assert (seen[0].kept == seen[1].kept).all() and (seen[0].most == seen[1].most).all()
    assert LayerNumber.GPU == 3
