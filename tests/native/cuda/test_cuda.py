"""The CUDA recorder on a fake CUPTI: every count, time and byte worked out by hand, and sanitizers find nothing."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from native.builds import HERE, SANITIZERS, STRICT, compile_c, place_recorder, recording
from programs import recorded
from rankscope.model.records import Reading
from rankscope.questions.gpu.device_time import gpu_time
from rankscope.rank_file import CUDA, DEVICE, ChunkKind, CudaState
from rankscope.rank_files.chunks import open_rank_file
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run

pytestmark = pytest.mark.timeout(600)  # the first one compiles the recorder with a sanitizer

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
MAIN, OTHER = "GPU 0 stream 7", "GPU 0 stream 20"
GPU_ROWS = {  # (group, name) -> calls, ns, shortest, longest, bytes
    (MAIN, "gemm"): (2, 30_000, 10_000, 20_000, 0),
    (MAIN, "add"): (1, 10_000, 10_000, 10_000, 0),
    (OTHER, NCCL): (3, 60_000, 10_000, 30_000, 0),
    ("GPU 1 stream 7", "empty"): (1, 0, 0, 0, 0),
    (MAIN, "[CUDA memcpy HtoD]"): (1, 10_000, 10_000, 10_000, 4096),
    (MAIN, "[CUDA memcpy DtoH]"): (2, 3_000, 1_000, 2_000, 103),
    (MAIN, "[CUDA memcpy PtoP]"): (1, 1_000, 1_000, 1_000, 50),
    (MAIN, "[CUDA memset]"): (1, 5_000, 5_000, 5_000, 1 << 20),
}
API_ROWS = {
    ("", "cudaLaunchKernel"): (2, 17, 5, 12, 0),
    ("", "cudaMalloc"): (1, 100, 100, 100, 0),
    ("", "cuMemAlloc"): (1, 1, 1, 1, 0),
    ("", "cuLaunchKernel"): (1, 10, 10, 10, 0),
}
NVTX_ROWS = {
    ("<unnamed>", "step"): (2, 1501, 1, 1500, 0),
    ("model", "forward"): (1, 300, 300, 300, 0),
    ("model", "here"): (1, 0, 0, 0, 0),
    ("NCCL", "ncclAllReduce"): (1, 3000, 3000, 3000, 0),
}
LOSSES = {"records": 34, "dropped": 11, "instants": 1, "unfinished": 1, "other_kinds": 1, "open_ranges": 1}
DEVICE_0 = {
    "activities": 11,
    "busy_ns": 89_000,  # 0-40, 50-70, 80-100 and 9 us much later
    "compute_ns": 40_000,
    "communication_ns": 60_000,
    "copy_ns": 19_000,
    "hidden_ns": 30_000,  # 10-20, 30-40, 60-70
    "late": 0,
    "allocations": 2,
    "releases": 1,
    "allocated_bytes": 1500,
    "released_bytes": 1000,
    "current_bytes": 500,
    "peak_bytes": 1500,
}
GAPS, GAP_NS = [0, 0, 2, 0, 1, 0, 0, 0], [0, 0, 20_000, 0, 1_900_000, 0, 0, 0]


def make_driver(folder: Path, sanitizer: str, *fake_flags: str) -> Path:
    flags = SANITIZERS[sanitizer]
    place_recorder(folder, flags)
    fake = folder / "libcupti.so.13"
    compile_c(fake, HERE / "cuda" / "fake_cupti.c", "-fPIC", "-shared", f"-Wl,-soname,{fake.name}", *flags, *fake_flags)
    found = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-lrankscope", "-l:libcupti.so.13")
    return compile_c(folder / "cuda", HERE / "cuda" / "cuda_driver.c", *flags, *found)


@pytest.fixture(scope="session")
def driver(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_driver(tmp_path_factory.mktemp(f"cuda-{sanitizer}"), sanitizer)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_driver(tmp_path_factory.mktemp("cuda"), "plain")


def run(driver: Path, folder: Path, *arguments: str, code: int = 0, **settings: str) -> str:
    environment = recording(folder, **{**STRICT, **settings})
    command = [str(driver), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def only(folder: Path) -> Path:
    (path,) = recorded.rank_files(folder)
    return path


def rows(reading: Reading, layer: str) -> dict[tuple[str, str], tuple[int, ...]]:
    """Calls, total, shortest, longest and bytes by group and name, over threads, sizes and phases."""
    columns: Any = reading.tally_columns
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    for i in range(len(columns["calls"])):
        if recorded.word(columns["layer"], i) != layer:
            continue
        key = recorded.word(columns["group"], i), recorded.word(columns["name"], i)
        calls, total, least, most, size = (
            round(columns[name][i]) for name in ("calls", "total_ns", "min_ns", "max_ns", "bytes")
        )
        before = found.get(key, (0, 0, 1 << 62, 0, 0))
        found[key] = (
            *(before[0] + calls, before[1] + total, min(before[2], least), max(before[3], most), before[4] + size),
        )
    return found


def row_of(path: Path, kind: ChunkKind, number: int = 0) -> Any:
    return open_rank_file(path).parts(kind)[0].rows[number]


def check_everything(path: Path) -> None:
    reading = recorded.read(path)
    assert rows(reading, "gpu") == GPU_ROWS
    assert rows(reading, "cuda_api") == API_ROWS
    assert rows(reading, "nvtx") == NVTX_ROWS
    how, device = row_of(path, ChunkKind.CUDA), row_of(path, ChunkKind.DEVICES)
    assert {name: int(how[name]) for name in LOSSES} == LOSSES
    assert (how["cupti_version"], how["state"]) == (130001, CudaState.RECORDING)
    assert (how["pinned_bytes"], how["pinned_peak_bytes"]) == (0, 64)
    assert {name: int(device[name]) for name in DEVICE_0} == DEVICE_0
    assert device["last_ns"] - device["first_ns"] == 2_009_000
    assert (device["gaps"].tolist(), device["gap_ns"].tolist()) == (GAPS, GAP_NS)
    assert int(row_of(path, ChunkKind.DEVICES, 1)["activities"]) == 1


def test_every_record_is_where_it_belongs(driver: Path, tmp_path: Path) -> None:
    run(driver, tmp_path)
    check_everything(only(tmp_path))


def test_fast_exit_loses_nothing(driver: Path, tmp_path: Path) -> None:
    run(driver, tmp_path, "fast", code=3)
    check_everything(only(tmp_path))


def test_errors_of_calls_and_threads_of_ranges(plain: Path, tmp_path: Path) -> None:
    run(plain, tmp_path)
    columns: Any = recorded.read(only(tmp_path)).tally_columns
    names = [recorded.word(columns["name"], i) for i in range(len(columns["calls"]))]
    assert {name: int(errors) for name, errors in zip(names, columns["errors"], strict=True) if errors} == {
        "cudaMalloc": 1
    }
    tids = {
        int(row["slot"]): int(row["tid"]) for row in open_rank_file(only(tmp_path)).parts(ChunkKind.THREADS)[0].rows
    }
    threads = {(names[i], tids[int(columns["thread"][i])]) for i in range(len(names)) if names[i] in ("step", "here")}
    assert threads == {("step", 501), ("step", 502), ("here", 502)}


def test_records_and_notes_say_it_to_the_reports(plain: Path, tmp_path: Path) -> None:
    run(plain, tmp_path)
    reading = recorded.read(only(tmp_path))
    first, second = reading.devices
    assert (first.device, second.device, first.busy_ns, first.span_ns) == (0, 1, 89_000, 2_009_000)
    gaps = {(one.device, one.least_ns, one.below_ns): one.gaps for one in reading.device_gaps}
    assert gaps[0, 1_000_000, 10_000_000] == 1 and sum(one.idle_ns for one in reading.device_gaps) == 2_009_000 - 89_000
    assert reading.facts.pinned_peak_bytes == 64 and reading.figures == []
    assert reading.facts.devices == "GPU 0, GPU 1"
    assert [note.text.split()[0] for note in reading.notes] == ["11", "1", "1", "1"]


def test_gpu_time_of_a_recorded_run(plain: Path, tmp_path: Path) -> None:
    """Exposed: 60 us of communication, 30 of them hidden. Idle: 2,009 us less 89."""
    run(plain, tmp_path, RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    (tmp_path / "run.json").write_text('{"format": 1, "name": "x", "command": ["x"], "expected_ranks": 1}')
    table = gpu_time(open_run(tmp_path, read_rank_file))
    cells = dict(zip([column.name for column in table.columns], table.rows[0], strict=True))
    assert (cells["rank"], cells["device"], cells["span_ns"], cells["busy_ns"]) == (0, "0", 2_009_000, 89_000)
    assert (cells["idle_ns"], cells["hidden_ns"], cells["exposed_ns"]) == (1_920_000, 30_000, 30_000)


def test_many_threads_and_buffers(driver: Path, tmp_path: Path) -> None:
    run(driver, tmp_path, "threads")
    found = rows(recorded.read(only(tmp_path)), "gpu")
    assert len(found) == 200
    assert set(found.values()) == {(400, 24_000, 60, 60, 0)}
    assert int(row_of(only(tmp_path), ChunkKind.DEVICES)["activities"]) == 80_000


def test_names_that_count_do_not_fill_the_file(driver: Path, tmp_path: Path) -> None:
    run(driver, tmp_path, "ranges", "20000")
    found, how = rows(recorded.read(only(tmp_path)), "nvtx"), row_of(only(tmp_path), ChunkKind.CUDA)
    assert sum(row[0] for row in found.values()) == 19_000
    assert len(found) == 2049
    assert (int(how["open_ranges"]), int(how["lost_ranges"]), int(how["folded_ranges"])) == (1000, 0, 20_000 - 2048)


def test_what_comes_last_falls_into_its_place(plain: Path, tmp_path: Path) -> None:
    run(plain, tmp_path, "long", "50000")
    device = row_of(only(tmp_path), ChunkKind.DEVICES)
    assert (int(device["activities"]), int(device["busy_ns"])) == (100_001, 50 * 50_000 + 40)
    assert (int(device["late"]), int(device["late_ns"])) == (0, 0)
    assert only(tmp_path).stat().st_blocks * 512 < 1 << 20


def test_a_kill_leaves_the_buffers_completed_until_then(plain: Path, tmp_path: Path) -> None:
    run(plain, tmp_path, "killed", code=-signal.SIGKILL)
    assert rows(recorded.read(only(tmp_path)), "gpu") == {(MAIN, "done"): (1, 10, 10, 10, 0)}


def test_a_kill_loses_at_most_what_one_flush_period_holds(plain: Path, tmp_path: Path) -> None:
    """The driver fills no buffer; the flusher had its turn before the kill."""
    run(plain, tmp_path, "kept", code=-signal.SIGKILL)
    assert rows(recorded.read(only(tmp_path)), "gpu") == {(MAIN, "done"): (1, 10, 10, 10, 0)}
    assert int(row_of(only(tmp_path), ChunkKind.DEVICES)["busy_ns"]) == 10


def test_a_child_does_not_write_its_parents_records(driver: Path, tmp_path: Path) -> None:
    run(driver, tmp_path, "fork", ASAN_OPTIONS="detect_leaks=0")  # it does not work in the child of a threaded parent
    found = [rows(recorded.read(path), "gpu") for path in recorded.rank_files(tmp_path)]
    assert sorted(found, key=len) == [{}, {(MAIN, "before"): (1, 10, 10, 10, 0), (MAIN, "after"): (1, 10, 10, 10, 0)}]


def test_another_client_gets_cupti_and_we_say_so(driver: Path, tmp_path: Path) -> None:
    assert run(driver, tmp_path, "aside") == "0 0 2\n"
    reading = recorded.read(only(tmp_path))
    assert rows(reading, "gpu") == {(MAIN, "ours"): (1, 10, 10, 10, 0)}
    assert int(row_of(only(tmp_path), ChunkKind.CUDA)["state"]) == CudaState.ASIDE
    assert any("torch.profiler" in note.text for note in reading.notes)


def test_another_client_before_recording_has_begun(plain: Path, tmp_path: Path) -> None:
    assert run(plain, tmp_path, "early", RANKSCOPE_CUDA="windows") == "0 0 1\n"
    (note,) = recorded.read(only(tmp_path)).notes
    assert "before recording began: nothing is recorded" in note.text


def test_what_our_own_thread_asks_the_driver_is_no_call_of_the_program(driver: Path, tmp_path: Path) -> None:
    run(driver, tmp_path, "own", RANKSCOPE_CUDA_API="all")
    assert rows(recorded.read(only(tmp_path)), "cuda_api") == {("", "cuInit"): (1, 1, 1, 1, 0)}


def test_devices_beyond_the_last_that_has_a_timeline(driver: Path, tmp_path: Path) -> None:
    run(driver, tmp_path, "devices")
    groups = {group for group, _ in rows(recorded.read(only(tmp_path)), "gpu")}
    assert groups == {f"GPU {device} stream 7" for device in range(0, 80, 10)}
    told = [int(row["device"]) for part in open_rank_file(only(tmp_path)).parts(ChunkKind.DEVICES) for row in part.rows]
    assert sorted(told) == [0, 10, 20, 30, 40, 50, 60]


def test_an_end_that_hangs_in_cupti_is_not_waited_for(plain: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    run(plain, tmp_path, "everything", FAKE_CUPTI_HANGS="1")
    assert time.monotonic() - began < 60
    assert recorded.read(only(tmp_path)).facts.exit_code == 0


REFUSALS = {
    "too old": ({"FAKE_CUPTI_VERSION": "17"}, CudaState.TOO_OLD, "too old"),
    "another profiler": ({"FAKE_CUPTI_REFUSES": "39"}, CudaState.REFUSED, "another profiler is active"),
    "no kernels": ({"FAKE_CUPTI_REFUSES_KIND": "10"}, CudaState.REFUSED, "refused to record kernels"),
    "no ranges": ({"FAKE_CUPTI_REFUSES_KIND": "12"}, CudaState.RECORDING, "refused to record NVTX ranges"),
    "no library": ({"RANKSCOPE_CUPTI": "/nowhere/libcupti.so"}, CudaState.NO_LIBRARY, "no libcupti found"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cupti_refuses_is_said_and_nothing_else_happens(case: str, plain: Path, tmp_path: Path) -> None:
    settings, state, told = REFUSALS[case]
    run(plain, tmp_path, "nothing", **settings)
    assert int(row_of(only(tmp_path), ChunkKind.CUDA)["state"]) == state
    assert any(told in note.text for note in recorded.read(only(tmp_path)).notes)


def test_switched_off(plain: Path, tmp_path: Path) -> None:
    run(plain, tmp_path, "nothing", RANKSCOPE_CUDA="0")
    assert recorded.rank_files(tmp_path) == []  # a process that uses CUDA alone has nothing else to tell


@pytest.mark.parametrize(("asked", "said"), [("sync", "6 0 1"), ("none", "0 0 1"), ("all", "-1 1 1"), ("", "6 0 1")])
def test_which_calls_are_recorded(asked: str, said: str, plain: Path, tmp_path: Path) -> None:
    """By default what launches, allocates or blocks: 3 of the fake runtime's calls, at first none of its driver's.

    With `all` every one but a call of the driver that CUDA makes for tools.
    """
    assert run(plain, tmp_path, "selected", RANKSCOPE_CUDA_API=asked) == f"{said}\n"


def test_a_cupti_that_cannot_choose_calls_records_none_and_says_so(tmp_path: Path) -> None:
    for folder in ("built", "run"):
        (tmp_path / folder).mkdir()
    old = make_driver(tmp_path / "built", "plain", "-DFAKE_CUPTI_OLD")
    assert run(old, tmp_path / "run", "selected", RANKSCOPE_CUDA_API="sync") == "0 0 1\n"
    (note,) = recorded.read(only(tmp_path / "run")).notes
    assert "--cuda-api all" in note.text


def test_nvtx_is_handed_to_cupti(plain: Path, tmp_path: Path) -> None:
    assert run(plain, tmp_path, "nvtx") == "1 0\n"


def test_without_a_run_nothing_is_asked_of_cupti(plain: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([plain, "selected"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 0 0\n")


def test_rows_fit_their_pages() -> None:
    assert CUDA.itemsize <= 4096 - 64 and DEVICE.itemsize * 8 <= 4096 - 64
