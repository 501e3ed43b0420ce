"""Work attributed to NVTX ranges, on a fake CUPTI: scripts of records, against sums made the plain way here."""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from native.builds import HERE, SANITIZERS, STRICT, compile_c, recording
from native.cuda.test_cuda import make_driver
from programs import recorded
from rankscope.model.records import INSIDE
from rankscope.rank_file import ChunkKind
from rankscope.rank_files.chunks import open_rank_file

pytestmark = pytest.mark.timeout(600)  # the first one compiles the recorder with a sanitizer

LAUNCH, MALLOC = 2, 3  # the fake runtime's numbers of cudaLaunchKernel and cudaMalloc; in the driver 2 launches
Sums = dict[tuple[str, str, str], tuple[int, int, int]]  # layer, path, name -> calls, ns, bytes


@dataclass
class Range:
    number: int
    tid: int
    domain: str
    name: str
    start_ns: int
    end_ns: int


@dataclass
class Launch:
    correlation: int
    tid: int
    start_ns: int
    end_ns: int
    work: list[tuple[str, str, int, int]]  # letter, name, ns, bytes


def make_script_driver(folder: Path, sanitizer: str) -> Path:
    make_driver(folder, sanitizer)
    found = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-lrankscope", "-l:libcupti.so.13")
    return compile_c(folder / "script", HERE / "cuda" / "cuda_script.c", *SANITIZERS[sanitizer], *found)


@pytest.fixture(scope="session")
def driver(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_script_driver(tmp_path_factory.mktemp(f"script-{sanitizer}"), sanitizer)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_script_driver(tmp_path_factory.mktemp("script"), "plain")


def play(driver: Path, folder: Path, script: Sequence[str], code: int = 0, **settings: str) -> str:
    environment = recording(folder, **{**STRICT, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", **settings})
    text = "\n".join(script) + "\n"
    done = subprocess.run(
        [str(driver)], input=text, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def only(folder: Path) -> Path:
    (path,) = recorded.rank_files(folder)
    return path


def cuda_row(folder: Path) -> Any:
    return open_rank_file(only(folder)).parts(ChunkKind.CUDA)[0].rows[0]


def attributed(path: Path) -> Sums:
    """What is counted by range, over threads, sizes and phases."""
    columns: Any = recorded.read(path).range_tally_columns
    found: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for i in range(len(columns.get("calls", ()))):
        within = recorded.word(columns["within"], i).replace(INSIDE, "|")
        row = found[recorded.word(columns["layer"], i), within, recorded.word(columns["name"], i)]
        for at, name in enumerate(("calls", "total_ns", "bytes")):
            row[at] += round(columns[name][i])
    return {key: (row[0], row[1], row[2]) for key, row in found.items()}


# --- a program, and what must come of it ---


def path_at(ranges: Sequence[Range], tid: int, at_ns: int) -> str:
    """The ranges that are open on a thread at a moment, outermost first."""
    around = [one for one in ranges if one.tid == tid and one.start_ns <= at_ns < one.end_ns]
    return "|".join(f"{one.domain}/{one.name}" for one in sorted(around, key=lambda one: one.start_ns))


def expected(ranges: Sequence[Range], launches: Sequence[Launch]) -> Sums:
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])

    def add(layer: str, path: str, name: str, ns: int, size: int = 0) -> None:
        if path:
            row = sums[layer, path, name]
            row[0], row[1], row[2] = row[0] + 1, row[1] + ns, row[2] + size

    for one in ranges:
        add("nvtx", path_at(ranges, one.tid, one.start_ns), one.name, one.end_ns - one.start_ns)
    for launch in launches:
        path = path_at(ranges, launch.tid, launch.start_ns)
        add("cuda_api", path, "cudaLaunchKernel", launch.end_ns - launch.start_ns)
        for _, name, ns, size in launch.work:
            add("gpu", path, name, ns, size)
    return {key: (row[0], row[1], row[2]) for key, row in sums.items()}


def lines(ranges: Sequence[Range], launches: Sequence[Launch]) -> list[str]:
    """The records of the program, each with the moment at which CUPTI could have written it."""
    made: list[tuple[int, str]] = []
    for one in ranges:
        domain = "-" if one.domain == "<unnamed>" else one.domain
        made.append((one.start_ns, f"s {one.number} {one.tid} {one.start_ns} {domain} {one.name}"))
        made.append((one.end_ns, f"e {one.number} {one.tid} {one.end_ns}"))
    for launch in launches:
        made.append((launch.end_ns, f"r {launch.correlation} {launch.tid} {LAUNCH} {launch.start_ns} {launch.end_ns}"))
        for letter, name, ns, size in launch.work:
            start_ns = launch.end_ns + 5000
            told = f"{letter} {launch.correlation} {start_ns} {start_ns + ns} "
            made.append((start_ns + ns, told + (name if letter == "k" else str(size))))
    return [line for _, line in sorted(made)]


def program(seed: int, steps: int = 40) -> tuple[list[Range], list[Launch]]:
    """Nested ranges of three domains on two threads; one launch of a graph with many kernels; ranges with nothing."""
    chance = random.Random(seed)
    ranges: list[Range] = []
    launches: list[Launch] = []
    now_ns = 10_000

    def tick() -> int:
        nonlocal now_ns
        now_ns += chance.randrange(1, 300)
        return now_ns

    def launch(tid: int) -> None:
        start_ns = tick()
        kind = chance.randrange(6)
        work = [
            ("k", f"kernel_{chance.randrange(5)}", chance.randrange(1, 999), 0) for _ in range(20 if kind == 0 else 1)
        ]
        if kind == 1:
            work = [("c", "[CUDA memcpy HtoD]", 50, 4096)]
        elif kind == 2:
            work = [("z", "[CUDA memset]", 7, 100)]
        launches.append(Launch(len(launches) + 1, tid, start_ns, tick(), work))

    def inside(tid: int, depth: int) -> None:
        one = Range(0, tid, chance.choice(("<unnamed>", "model", "NCCL")), f"range_{chance.randrange(3)}", tick(), 0)
        one.number = one.start_ns  # as CUPTI's, they grow with time
        ranges.append(one)
        for _ in range(chance.randrange(4)):
            if depth < 4 and chance.random() < 0.5:
                inside(tid, depth + 1)
            else:
                launch(tid)
        one.end_ns = tick()

    for _ in range(steps):
        inside(chance.choice((501, 502)), 0)
        launch(chance.choice((501, 502)))
    return ranges, launches


def first_range_first(script: list[str]) -> list[str]:
    """Nothing is kept before the first range: one that is there before the rest is shuffled."""
    return ["s 4000000000 501 1 first early", "e 4000000000 501 2", "F", *script]


EARLY = {("nvtx", "first/early", "early"): (1, 1, 0)}


def test_nested_ranges_in_any_order(driver: Path, tmp_path: Path) -> None:
    ranges, launches = program(1)
    script = lines(ranges, launches)
    random.Random(2).shuffle(script)
    play(driver, tmp_path, first_range_first(script))
    assert attributed(only(tmp_path)) == {**expected(ranges, launches), **EARLY}
    row = cuda_row(tmp_path)
    assert [int(row[name]) for name in ("unattributed", "unplaced_calls", "late_markers", "folded_nodes")] == [0] * 4
    depths = [path.count("|") for _, path, _ in attributed(only(tmp_path))]
    assert max(depths) == 4 and len({key[1].partition("/")[0] for key in expected(ranges, launches)}) == 3


@pytest.mark.parametrize("seed", range(3, 9))
def test_in_the_order_of_time_and_with_flushes_between(seed: int, plain: Path, tmp_path: Path) -> None:
    ranges, launches = program(seed)
    script = lines(ranges, launches)
    for at in range(len(script) - 1, 0, -50):
        script.insert(at, "F")
    play(plain, tmp_path, script)
    assert attributed(only(tmp_path)) == expected(ranges, launches)


def test_ranges_that_overlap_and_end_on_another_thread(plain: Path, tmp_path: Path) -> None:
    """nvtxRangeStart: A 100-300 on thread 501, ended by 502; B 200-400. At 350 only B is open, though it began in A."""
    script = [
        *("s 1 501 100 - A", "s 2 501 200 - B", "e 1 502 300", "e 2 501 400"),
        *(f"r {at} 501 {LAUNCH} {at} {at + 10}" for at in (150, 250, 350, 450)),
        *(f"k {at} 1000 1001 at_{at}" for at in (150, 250, 350, 450)),
        f"r 900 502 {LAUNCH} 160 170",
        "k 900 1000 1001 of_the_other_thread",
    ]
    play(plain, tmp_path, script)
    found = attributed(only(tmp_path))
    a, b = "<unnamed>/A", "<unnamed>/B"
    assert {key[1:]: row for key, row in found.items() if key[0] == "gpu"} == {
        (a, "at_150"): (1, 1, 0),
        (f"{a}|{b}", "at_250"): (1, 1, 0),
        (b, "at_350"): (1, 1, 0),
    }
    assert {key[1:]: row for key, row in found.items() if key[0] == "nvtx"} == {
        (a, "A"): (1, 200, 0),
        (f"{a}|{b}", "B"): (1, 200, 0),
    }


def test_what_is_placed_while_the_program_runs_survives_a_kill(plain: Path, tmp_path: Path) -> None:
    ranges, launches = program(3, steps=3)
    play(plain, tmp_path, [*lines(ranges, launches), "N 10000000000", "W 3", "K"], code=-9)
    assert attributed(only(tmp_path)) == expected(ranges, launches)


def test_a_program_without_ranges_keeps_nothing_by_range(plain: Path, tmp_path: Path) -> None:
    _, launches = program(4)
    play(plain, tmp_path, lines([], launches))
    assert attributed(only(tmp_path)) == {}
    assert int(cuda_row(tmp_path)["unattributed"]) == 0


def test_launches_before_the_first_range_need_none(plain: Path, tmp_path: Path) -> None:
    script = [f"r 5 501 {LAUNCH} 50 60", "F", "s 1 501 100 - A", f"r 6 501 {LAUNCH} 150 160", "e 1 501 200"]
    play(plain, tmp_path, [*script, "k 5 500 510 before", "k 6 510 520 inside"])
    assert attributed(only(tmp_path))["gpu", "<unnamed>/A", "inside"] == (1, 10, 0)
    assert int(cuda_row(tmp_path)["unattributed"]) == 0


def test_a_kernel_of_the_first_range_may_be_told_before_it(plain: Path, tmp_path: Path) -> None:
    """CUPTI may complete the buffer with the kernel before those with its call and with the start of the range."""
    script = [f"r 5 501 {LAUNCH} 50 60", "k 5 500 510 before", "k 6 510 520 inside", "F"]
    play(plain, tmp_path, [*script, "s 1 501 100 - A", f"r 6 501 {LAUNCH} 150 160", "e 1 501 200"])
    found = attributed(only(tmp_path))
    assert {key[2]: row for key, row in found.items() if key[0] == "gpu"} == {"inside": (1, 10, 0)}
    assert int(cuda_row(tmp_path)["unattributed"]) == 0


def test_calls_of_another_thread_may_be_told_first(plain: Path, tmp_path: Path) -> None:
    """A later call (9) of another thread is there before the first range; the kernel of call 6 is not older than it."""
    script = [f"r 9 502 {LAUNCH} 300 310", "k 5 500 510 before", "F", "s 1 501 100 - A", "k 6 510 520 inside"]
    play(plain, tmp_path, [*script, f"r 6 501 {LAUNCH} 150 160", "e 1 501 200", "F", "F", "F"])
    found = attributed(only(tmp_path))
    assert {key[2]: row for key, row in found.items() if key[0] == "gpu"} == {"inside": (1, 10, 0)}
    assert int(cuda_row(tmp_path)["unattributed"]) == 0


def test_kernels_whose_call_nobody_saw_are_counted(plain: Path, tmp_path: Path) -> None:
    play(plain, tmp_path, ["s 1 501 100 - A", "e 1 501 200", "k 77 500 510 lost", "k 78 500 510 lost"])
    assert [int(cuda_row(tmp_path)[name]) for name in ("unattributed", "unplaced_calls")] == [2, 0]
    assert any("2 GPU activities" in note.text for note in recorded.read(only(tmp_path)).notes)


def test_no_calls_no_attribution(plain: Path, tmp_path: Path) -> None:
    ranges, launches = program(5, steps=3)
    play(plain, tmp_path, lines(ranges, launches), RANKSCOPE_CUDA_API="none")
    assert attributed(only(tmp_path)) == {}


def test_more_than_there_is_room_for(driver: Path, tmp_path: Path) -> None:
    """40,000 launches in one range, no flush between: the windows slide, and nothing is lost that comes in order."""
    script = ["s 1 501 1 - all"]
    for i in range(2, 40_002):
        script += [f"r {i} 501 {LAUNCH} {10 * i} {10 * i + 5}", f"k {i} {10 * i + 6} {10 * i + 8} tiny"]
    script += [f"k {40_001} {500_000 + i} {500_001 + i} of_a_graph" for i in range(40_000)]
    play(driver, tmp_path, [*script, "e 1 501 900000"])
    found = attributed(only(tmp_path))
    place = "<unnamed>/all"
    assert found["cuda_api", place, "cudaLaunchKernel"] == (40_000, 200_000, 0)
    assert found["gpu", place, "tiny"] == (40_000, 80_000, 0)
    assert found["gpu", place, "of_a_graph"] == (40_000, 40_000, 0)
    assert int(cuda_row(tmp_path)["unattributed"]) == 0


def test_too_many_ranges_fold_and_are_counted(plain: Path, tmp_path: Path) -> None:
    script = []
    for i in range(2, 3_002):
        at = 100 * i
        script += [f"s {i} 501 {at} - step_{i % 1500}", f"r {i} 501 {LAUNCH} {at + 5} {at + 10}"]
        script += [f"e {i} 501 {at + 90}", f"k {i} {at + 20} {at + 21} tiny"]
    play(plain, tmp_path, script)
    found, row = attributed(only(tmp_path)), cuda_row(tmp_path)
    assert sum(calls for (layer, _, _), (calls, _, _) in found.items() if layer == "gpu") == 3_000
    folded = sum(calls for (_, path, name), (calls, _, _) in found.items() if "other names" in path and name == "tiny")
    assert folded == int(row["folded_nodes"]) == 2 * (1500 - 1024)
    assert len({path for _, path, _ in found}) == 1025


def test_a_child_has_none_of_its_parents_ranges(driver: Path, tmp_path: Path) -> None:
    script = ["s 1 501 100 - A", f"r 2 501 {LAUNCH} 110 120", "F", "f", "k 2 200 210 inside", "e 1 501 300"]
    play(driver, tmp_path, script, ASAN_OPTIONS="detect_leaks=0")
    found = [attributed(path) for path in recorded.rank_files(tmp_path)]
    assert [len(one) for one in found] == [3]  # the child, with nothing to tell, left no file
