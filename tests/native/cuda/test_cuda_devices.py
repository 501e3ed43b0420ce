"""Busy, idle and overlap of a device on a fake CUPTI: exact whatever the order of delivery, against a plain sweep."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from native.cuda.test_cuda_ranges import make_script_driver, only, play
from rankscope.rank_file import ChunkKind
from rankscope.rank_files.chunks import open_rank_file

SECOND = 10**9
COMPUTE, COMMUNICATION, COPY = "gemm", "ncclDevKernel_AllReduce", ""
GAP_BOUNDS_NS = [10 ** (3 + k) for k in range(7)]


class Activity(NamedTuple):
    start_ns: int
    end_ns: int
    kind: str

    @property
    def line(self) -> str:
        if self.kind == COPY:
            return f"c 1 {self.start_ns} {self.end_ns} 64"
        return f"k 1 {self.start_ns} {self.end_ns} {self.kind}"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_script_driver(tmp_path_factory.mktemp("devices"), "plain")


def swept(activities: Sequence[Activity]) -> dict[str, Any]:
    """The sums by counting what is open between every two moments at which anything changes."""
    changes = sorted([(a.start_ns, 1, a.kind) for a in activities] + [(a.end_ns, -1, a.kind) for a in activities])
    open_now = {COMPUTE: 0, COMMUNICATION: 0, COPY: 0}
    sums: dict[str, Any] = dict.fromkeys(("busy_ns", "compute_ns", "communication_ns", "copy_ns", "hidden_ns"), 0)
    sums |= {"gaps": [0] * 8, "gap_ns": [0] * 8}
    at_ns, idle_from = changes[0][0], changes[0][0]
    for then_ns, by, kind in changes:
        ns = then_ns - at_ns
        if ns:
            for name, of in (("compute_ns", COMPUTE), ("communication_ns", COMMUNICATION), ("copy_ns", COPY)):
                sums[name] += ns * (open_now[of] > 0)
            sums["hidden_ns"] += ns * (open_now[COMPUTE] > 0 and open_now[COMMUNICATION] > 0)
            if any(open_now.values()):
                sums["busy_ns"] += ns
                idle_from = then_ns
            elif by > 0:
                at_class = sum(then_ns - idle_from >= bound for bound in GAP_BOUNDS_NS)
                sums["gaps"][at_class] += 1
                sums["gap_ns"][at_class] += then_ns - idle_from
        at_ns = then_ns
        open_now[kind] += by
    return sums


def counted(folder: Path) -> dict[str, Any]:
    row = open_rank_file(only(folder)).parts(ChunkKind.DEVICES)[0].rows[0]
    names = ("busy_ns", "compute_ns", "communication_ns", "copy_ns", "hidden_ns")
    return {name: int(row[name]) for name in names} | {
        "gaps": [int(n) for n in row["gaps"]],
        "gap_ns": [int(n) for n in row["gap_ns"]],
    }


def device(folder: Path) -> Any:
    return open_rank_file(only(folder)).parts(ChunkKind.DEVICES)[0].rows[0]


def training(seed: int, launches: int) -> list[list[Activity]]:
    """What three launching threads gave the device: forward, backward beside all-reduces, copies; some overlap, some
    touch, some are the same, and a few are long."""
    dice = random.Random(seed)
    threads: list[list[Activity]] = [[], [], []]
    at_ns = 5 * SECOND
    for _ in range(launches):
        thread = dice.randrange(3)
        kind = dice.choice((COMPUTE, COMPUTE, COMMUNICATION, COPY))
        ns = dice.choice((1, 40, 900, 2_000, 50_000, dice.randrange(1, 300_000)))
        if dice.random() < 0.002:
            ns = dice.randrange(10**6, 400 * 10**6)
        threads[thread].append(Activity(at_ns, at_ns + ns, kind))
        at_ns += dice.choice((0, 0, 1, ns, ns, ns // 2, ns + dice.choice((1, 700, 5_000, 3_000_000))))
    return threads


def delivered(threads: Sequence[Sequence[Activity]], seed: int) -> list[Activity]:
    """Buffers of each thread in its order, of the threads in any: one may be a whole run behind another."""
    dice = random.Random(seed)
    waiting = [list(thread) for thread in threads]
    come: list[Activity] = []
    while any(waiting):
        thread = dice.choice([thread for thread in waiting if thread])
        size = dice.choice((1, 3, 200, 1200, 1200))
        come += thread[:size]
        del thread[:size]
    return come


@pytest.mark.parametrize("seed", range(12))
def test_the_sums_are_exact_in_any_order(driver: Path, tmp_path: Path, seed: int) -> None:
    threads = training(seed, 12_000)
    activities = delivered(threads, seed)
    play(driver, tmp_path, ["N 0", *(activity.line for activity in activities)])
    assert counted(tmp_path) == swept(activities)
    assert int(device(tmp_path)["late"]) == 0


def test_a_whole_thread_that_comes_last_is_not_lost(driver: Path, tmp_path: Path) -> None:
    """Forward on the main thread, backward on autograd's, whose buffers all come after the main thread's."""
    forward = [Activity(SECOND + 100 * i, SECOND + 100 * i + 40, COMPUTE) for i in range(20_000)]
    backward = [Activity(SECOND + 100 * i + 50, SECOND + 100 * i + 90, COMPUTE) for i in range(20_000)]
    play(driver, tmp_path, ["N 0", *(activity.line for activity in (*forward, *backward))])
    assert int(device(tmp_path)["busy_ns"]) == 20_000 * 80
    assert int(device(tmp_path)["late"]) == 0


def test_what_comes_after_the_past_was_forgotten_is_counted_as_late(driver: Path, tmp_path: Path) -> None:
    """At 100 s of the device's clock what lies before 70 s is settled: of later news the part after it counts."""
    before = [Activity(at * SECOND, at * SECOND + 1000, COMPUTE) for at in (10, 20, 80)]
    late = [Activity(15 * SECOND, 15 * SECOND + 300, COMPUTE), Activity(79 * SECOND, 80 * SECOND + 5000, COPY)]
    play(driver, tmp_path, [*(a.line for a in before), f"N {100 * SECOND}", "F", "W 2", *(a.line for a in late)])
    row = device(tmp_path)
    assert (int(row["late"]), int(row["late_ns"])) == (2, 300 + SECOND)
    assert (int(row["busy_ns"]), int(row["copy_ns"])) == (3000 + 4000, 5000)


def test_too_many_to_remember_lose_the_oldest_only(driver: Path, tmp_path: Path) -> None:
    """A million boundaries are the most; a straggler of the last half million still falls into its place."""
    count = 700_000
    lines = [f"k 1 {SECOND + 100 * i} {SECOND + 100 * i + 40} gemm" for i in range(count)]
    recent, old = SECOND + 100 * (count - 1000) + 50, SECOND + 50
    play(driver, tmp_path, ["N 0", *lines, f"k 1 {recent} {recent + 10} gemm", f"k 1 {old} {old + 10} gemm"])
    row = device(tmp_path)
    assert (int(row["busy_ns"]), int(row["late"]), int(row["late_ns"])) == (40 * count + 10, 1, 10)
    assert sum(int(n) for n in row["gaps"]) == count  # one was split in two


def test_the_sweep_knows_a_gap() -> None:
    sums = swept([Activity(0, 10, COMPUTE), Activity(5, 20, COMMUNICATION), Activity(2020, 2021, COPY)])
    assert (sums["busy_ns"], sums["hidden_ns"], sums["gaps"]) == (21, 5, [0, 1, 0, 0, 0, 0, 0, 0])
