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

from native.builds import HERE, SANITIZERS, compile_c, recording
from native.test_cuda import make_driver
from native.test_driver import STRICT, compiler_has
from programs import recorded
from rankscope.analyse.cuda_api import cuda_api
from rankscope.analyse.gpu import gpu
from rankscope.analyse.iprof import iprof_parts
from rankscope.analyse.nvprof import nvprof_processes, nvprof_rows
from rankscope.analyse.nvtx_ranges import nvtx_ranges
from rankscope.analyse.overhead import overhead
from rankscope.analyse.tallies import tallies
from rankscope.model import INSIDE
from rankscope.rankfile import ChunkKind
from rankscope.readers.chunks import open_rank_file
from rankscope.readers.rankfile import read_rank_file
from rankscope.report.nvprof import to_nvprof
from rankscope.store.run import Run, open_run

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
    return compile_c(folder / "script", HERE / "cuda_script.c", *SANITIZERS[sanitizer], *found)


@pytest.fixture(scope="session", params=list(SANITIZERS))
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param != "plain" and not compiler_has(request.param):
        pytest.skip(f"the C compiler has no {request.param} sanitizer")
    return make_script_driver(tmp_path_factory.mktemp(f"script-{request.param}"), request.param)


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


def opened(folder: Path) -> Run:
    (folder / "run.json").write_text('{"format": 1, "name": "x", "command": ["x"], "expected_ranks": 1}')
    return open_run(folder, read_rank_file)


def cuda_row(folder: Path) -> Any:
    return open_rank_file(only(folder)).parts(ChunkKind.CUDA)[0].rows[0]


def attributed(path: Path) -> Sums:
    """What is counted by range, over threads, sizes and phases."""
    columns: Any = recorded.read(path).tally_columns
    found: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for i in range(len(columns["calls"])):
        within = recorded.word(columns["within"], i).replace(INSIDE, "|")
        if within:
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
    assert sorted(len(one) for one in found) == [0, 3]


# --- what the reports make of it ---

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
