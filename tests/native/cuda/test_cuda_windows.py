"""Recording the GPU in windows: what it may cost, and that what is told of the steps in them is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hatch_build
import rankscope
from native.builds import HERE, SANITIZERS, compile_c, recording
from native.cuda.test_cuda import make_driver
from native.cuda.test_cuda_ranges import only
from native.cuda.test_cuda_steps import compare, driver, play, rows_of
from programs import recorded
from rankscope.rank_file import ChunkKind, DeviceStepFlag, Idle
from rankscope.rank_files.chunks import open_rank_file
from scripts.gpu_step_truth import OPTIMIZER, Truth, expected

pytestmark = pytest.mark.timeout(600)  # the first one compiles the recorder
WINDOWS = {"RANKSCOPE_CUDA": "windows", "RANKSCOPE_CUDA_SECOND_NS": "10000000", "LOOP_COST_NS": "60000"}
__all__ = ["driver"]  # a fixture
STEP = ["b backward", "s 300", *["l 0 0 60 compute"] * 3, "l 1 1 40 communication", "e backward"]
STEP += [f"b {OPTIMIZER}", "l 0 0 20 compute", f"e {OPTIMIZER}", "d 0", "d 1"]


# ---------------------------------------------------------------- the policy alone, in simulated time
@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    sources = (HERE / "cuda" / "window_policy.c", str(hatch_build.NATIVE / "cuda" / "cuda_windows.c"))
    included = (f"-I{one}" for one in hatch_build.NATIVE.iterdir() if one.is_dir())
    return compile_c(folder / "policy", *sources, *SANITIZERS["address"], *included)


def simulate(
    policy: Path,
    step_ms: float,
    cost: float,
    seconds: float,
    noise: float = 0.05,
    records: int = 0,
    seed: int = 1,
    pause_s: float = 0,
    drift: float = 0,
    interrupted: bool = False,
    busy: float = 0,
) -> dict[str, float]:
    """A job of so long steps, longer by `cost` while recorded, in which each switch takes 60 ms.

    One second after its start, and every 100 s from then on, a step lasts longer by a pause. By the machine's `drift`
    all steps of two seconds are longer or shorter. With `records` kernels in each, nobody tells of the steps;
    `interrupted`: recording may pause all the same.
    """
    values = map(str, (step_ms, cost, noise, 60, seconds, records, seed, pause_s, drift, int(interrupted), busy))
    done = subprocess.run([str(policy), *values], capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("step_ms", [1, 9, 60])
@pytest.mark.parametrize("cost", [0.02, 0.2, 0.4])
@pytest.mark.parametrize("seconds", [300, 3600])
def test_recording_costs_a_hundredth_at_most(policy: Path, step_ms: float, cost: float, seconds: float) -> None:
    found = simulate(policy, step_ms, cost, seconds)
    assert found["overhead"] < 0.0101
    assert found["told_overhead"] == pytest.approx(found["overhead"], rel=0.05)
    assert found["cost"] == pytest.approx(cost, rel=0.1, abs=0.004)
    assert found["windows"] >= 2 and found["recorded_steps"] >= 50
    share = found["recorded_steps"] / found["seen_steps"]
    assert share == pytest.approx(found["recorded"] / (1 + cost) / (1 - found["overhead"]), rel=0.1)


@pytest.mark.parametrize("cost", [0.03, 0.06, 0.2])
def test_what_only_chance_makes_cheap_is_not_recorded_for_minutes(policy: Path, cost: float) -> None:
    """On a machine whose speed changes by some per cent, the first windows may seem to cost nothing."""
    found = [simulate(policy, 9, cost, 300, seed=seed, drift=0.05) for seed in range(40)]
    assert max(one["overhead"] for one in found) < 0.0101
    overhead, told = (sum(one[name] for one in found) / len(found) for name in ("overhead", "told_overhead"))
    assert overhead < 0.007
    assert told == pytest.approx(overhead, rel=0.1)
    assert all(1 / 1.5 < one["told_overhead"] / one["overhead"] < 1.5 for one in found)


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.9])
def test_noisy_steps_cost_no_more(policy: Path, noise: float) -> None:
    assert all(simulate(policy, 9, 0.2, 600, noise, seed=seed)["overhead"] < 0.011 for seed in range(5))


@pytest.mark.parametrize("pause_s", [0.5, 5])
def test_a_pause_is_not_taken_for_what_recording_costs(policy: Path, pause_s: float) -> None:
    figures = simulate(policy, 9, 0.2, 600, pause_s=pause_s)
    assert figures["cost"] == pytest.approx(0.2, rel=0.1)
    assert figures["overhead"] < 0.0101
    assert figures["told_overhead"] == pytest.approx(figures["overhead"], rel=0.1)
    assert figures["windows"] > simulate(policy, 9, 0.2, 600)["windows"] / 2


def test_what_costs_nothing_is_recorded_nearly_whole(policy: Path) -> None:
    """As soon as it is sure: which takes some windows, each of which costs its switches."""
    jobs = [simulate(policy, 200, 0.002, 1800, seed=seed) for seed in range(1, 9)]
    assert sum(job["recorded"] for job in jobs) / len(jobs) > 0.5
    assert max(job["overhead"] for job in jobs) < 0.006


def test_a_short_job_is_recorded_from_its_start(policy: Path) -> None:
    found = simulate(policy, 9, 0.2, 2.5)
    assert found["windows"] == 0 and found["recorded"] == 1.0


def test_without_steps_all_is_recorded_where_nothing_can_interrupt_the_program(policy: Path) -> None:
    assert simulate(policy, 1, 0.1, 600, records=100)["recorded"] == 1.0


@pytest.mark.parametrize("seconds", [300, 3600])
@pytest.mark.parametrize("kernels", [20, 400])
def test_without_steps_the_cost_is_that_of_its_kernels(policy: Path, kernels: int, seconds: float) -> None:
    """5 µs each, as is assumed; kernels in 9 ms."""
    found = simulate(policy, 9, kernels * 5e-6 / 9e-3, seconds, records=kernels, interrupted=True)
    assert found["overhead"] < 0.0101 and found["windows"] >= 2
    assert found["told_overhead"] == pytest.approx(found["overhead"], rel=0.25)
    assert found["costs"] == 0


def test_without_steps_what_costs_nothing_is_recorded_whole(policy: Path) -> None:
    """Ten kernels a second, and any number of them where the device always has more to do than is launched."""
    assert simulate(policy, 100, 0.0, 600, records=1, interrupted=True)["recorded"] == 1.0
    found = simulate(policy, 9, 0.0, 600, records=400, interrupted=True, busy=0.99)
    assert found["recorded"] == 1.0 and found["told_overhead"] == 0


# ---------------------------------------------------------------- the recorder, in real time
def windows_of(folder: Path) -> tuple[Any, Any]:
    file = open_rank_file(only(folder))
    (how,) = file.parts(ChunkKind.CUDA)[0].rows
    parts = file.parts(ChunkKind.WINDOWS)
    rows = parts[0].rows if parts else np.zeros(0)
    return how, rows[rows["number"] > 0] if parts else rows


def steps_within(truth: Truth, spans: list[tuple[int, int]]) -> float:
    """Of all steps but the first, those in these times, with parts of steps."""
    steps = list(zip(truth.ends_ns, truth.ends_ns[1:], strict=False))
    inside = [
        max(0, min(end, till) - max(begin, since)) / (end - begin) for begin, end in steps for since, till in spans
    ]
    return sum(inside)


def test_steps_in_windows_are_told_as_if_there_were_none(driver: Path, tmp_path: Path) -> None:
    truth = play(driver, tmp_path, STEP * 1200, **WINDOWS)
    how, windows = windows_of(tmp_path)
    assert int(how["windows"]) == len(windows) >= 1
    assert int(how["costs"]) >= 1 and 0 < int(how["switching_ns"]) <= int(how["spent_ns"])
    spans = [(int(one["begin_ns"]), int(one["end_ns"])) for one in windows]
    assert int(how["window_ns"]) == sum(end - begin for begin, end in spans)
    if how["window_begin_ns"]:
        spans.append((int(how["window_begin_ns"]), truth.ends_ns[-1]))
    assert int(how["seen_steps"]) == pytest.approx(len(truth.ends_ns) - 1, abs=300)  # the last turn is before the end
    assert int(how["window_millisteps"]) / 1000 == pytest.approx(steps_within(truth, spans), rel=0.1, abs=20)

    rows = rows_of(tmp_path)
    told = dict(enumerate(expected(truth), 1))
    assert len(rows) > 0.3 * int(how["window_millisteps"]) / 1000
    assert len(rows) < int(how["window_millisteps"]) / 1000 < 0.95 * len(truth.ends_ns)
    compare_some(rows, told)
    for window in windows[1:]:
        assert any(window["begin_ns"] <= row["begin_ns"] < window["end_ns"] for row in rows)
    reading = recorded.read(only(tmp_path))
    (device,) = reading.devices
    assert device.span_ns is not None and device.busy_ns is not None
    assert device.busy_ns < device.span_ns <= sum(end - begin for begin, end in spans)
    check_estimates(tmp_path, len(truth.ends_ns))


def check_estimates(folder: Path, steps: int) -> None:
    """Five kernels a step, whether recorded or not."""
    run = rankscope.open(folder)
    (row,) = run.table("gpu_windows").to_arrow().to_pylist()
    assert row["kernels"] < 0.95 * 5 * steps
    assert row["estimated_kernels"] == pytest.approx(5 * steps, rel=0.3)
    assert row["recorded_steps"] == pytest.approx(row["kernels"] / 5, rel=0.3)
    assert row["cost"] >= 0 and 0 < row["spent_share"] < 1
    assert run.table("overhead").to_arrow().to_pylist()[0]["gpu_cost_ns"] == row["spent_ns"]
    notes = [note for name in ("gpu", "gpu_time", "gpu_steps") for note in run.table(name).notes]
    assert sum(note.startswith("Recorded in") for note in notes) == 3


def compare_some(rows: Any, told: dict[int, dict[str, float]]) -> None:
    for row in rows:
        one = row.copy()
        number = int(one["number"])
        one["number"] = 1
        compare([one], [told[number]])


def test_waits_are_recorded_in_the_first_window_and_estimated_in_others(driver: Path, tmp_path: Path) -> None:
    """300 µs in each step in which the device has nothing to do and the host waits for it."""
    step = ["b backward", "s 200", "l 0 0 60 compute", "y 0 300", "e backward"]
    play(driver, tmp_path, [*step, f"b {OPTIMIZER}", f"e {OPTIMIZER}", "d 0"] * 1200, **WINDOWS)
    rows = rows_of(tmp_path)
    late = (rows["flags"] & DeviceStepFlag.NO_WAITS) != 0
    waits_ns = rows["idle_ns"][:, Idle.SYNC]
    assert late.any() and not late.all() and not waits_ns[late].any()
    assert (waits_ns[~late][2:] > 250_000).all()
    columns = recorded.read(only(tmp_path)).device_step_columns
    late = np.isin(columns["number"], rows["number"][late])
    share = columns["idle_sync_ns"] / (columns["end_ns"] - columns["begin_ns"])
    assert share[late].mean() == pytest.approx(share[~late][2:].mean(), rel=0.3)


def test_where_the_device_never_waits_for_launches_all_is_recorded(driver: Path, tmp_path: Path) -> None:
    """Without CUDA's calls, of which CUPTI tells nothing if they are chosen so late; each step has its own kernels.

    Kernels are long, so that a host that has no CPU for a moment does not keep the device waiting for 3 % of a step.
    """
    step = [
        "b backward",
        *["l 0 0 15000 compute"] * 2,
        "s 1200",
        "e backward",
        f"b {OPTIMIZER}",
        f"e {OPTIMIZER}",
        "y 0 0",
        "d 0",
    ]
    settings = WINDOWS | {"LOOP_COST_NS": "0", "RANKSCOPE_CUDA_SECOND_NS": "700000000"}
    truth = play(driver, tmp_path, step * 200, **settings)
    how, windows = windows_of(tmp_path)
    assert (int(how["windows"]), len(windows), int(how["window_begin_ns"]) > 0) == (0, 0, True)
    rows = rows_of(tmp_path)
    assert len(rows) > 130 and ((rows["flags"] & DeviceStepFlag.BY_TIME) != 0).all()
    starts_ns = [activity.start_ns for activity in truth.activities]
    own = np.diff(np.searchsorted(starts_ns, [0, *truth.ends_ns]))  # of each step: those that start until it ends
    assert np.mean(rows["kernels"] == own[rows["number"] - 1]) > 0.95
    assert np.median(rows["end_ns"] - rows["begin_ns"]) > 25_000_000


def test_all_is_recorded_where_nothing_else_is_asked_for(driver: Path, tmp_path: Path) -> None:
    play(driver, tmp_path, STEP * 400, **(WINDOWS | {"RANKSCOPE_CUDA": ""}))
    how, windows = windows_of(tmp_path)
    assert (int(how["windows"]), len(windows)) == (0, 0)


@pytest.mark.parametrize("setting", [{"FAKE_CUPTI_VERSION": "22"}, {"LOOP_GRAPH": "1"}, {"LOOP_NVTX": "1"}])
def test_all_is_recorded_where_cupti_cannot_be_taken_off(driver: Path, tmp_path: Path, setting: dict[str, str]) -> None:
    """By an older one; where a graph would not be seen any more; where NVTX still calls it."""
    play(driver, tmp_path, STEP * 400, **WINDOWS, **setting)
    how, _ = windows_of(tmp_path)
    assert int(how["windows"]) == 0 and int(how["window_begin_ns"]) > 0
    notes = [note.text for note in recorded.read(only(tmp_path)).notes]
    assert any("all is recorded" in text for text in notes), notes


def test_recording_begins_with_the_fourth_step(driver: Path, tmp_path: Path) -> None:
    """Until then a program loads its kernels, which stay slower if CUPTI is there."""
    truth = play(driver, tmp_path, STEP * 400, **WINDOWS)
    how, windows = windows_of(tmp_path)
    begin_ns = int(windows[0]["begin_ns"]) if len(windows) else int(how["window_begin_ns"])
    assert begin_ns > truth.ends_ns[3] - 1_000_000
    assert min(rows_of(tmp_path)["number"]) > 4


def test_a_short_program_without_steps_is_told_how_to_be_recorded(driver: Path, tmp_path: Path) -> None:
    play(driver, tmp_path, ["l 0 0 60 compute", "s 300000", "d 0"], **WINDOWS)
    how, _ = windows_of(tmp_path)
    assert int(how["windows"]) == 0 and int(how["window_begin_ns"]) == 0
    assert any("--cuda exact" in note.text for note in recorded.read(only(tmp_path)).notes)


AUTO = WINDOWS | {"RANKSCOPE_CUDA": "auto"}


def test_a_program_without_torch_is_recorded_whole(driver: Path, tmp_path: Path) -> None:
    """However short it is, with its calls: nothing would tell of its steps."""
    play(driver, tmp_path, ["l 0 0 60 compute", "s 300", "d 0"], **AUTO)
    how, _ = windows_of(tmp_path)
    assert int(how["windows"]) == 0 and int(how["window_begin_ns"]) > 0 and int(how["api"]) > 0
    assert "gemm" in {row.name for row in recorded.rows_of(recorded.read(only(tmp_path)))}


def test_a_training_is_recorded_in_windows(driver: Path, tmp_path: Path) -> None:
    play(driver, tmp_path, STEP * 1200, LOOP_TORCH="1", **AUTO)
    how, windows = windows_of(tmp_path)
    assert int(how["windows"]) == len(windows) >= 1


@pytest.mark.slow
def test_torch_without_an_optimizer_is_recorded_after_three_seconds(driver: Path, tmp_path: Path) -> None:
    """It may only infer; a training that is being prepared has ten."""
    begun = ["l 0 0 60 compute", "s 4500000", "l 0 0 60 compute", "d 0"]
    for made, is_recorded in (("0", True), ("1", False)):
        folder = tmp_path / made
        folder.mkdir()
        play(driver, folder, begun, LOOP_TORCH=made, **AUTO)
        how, _ = windows_of(folder)
        assert (int(how["window_begin_ns"]) > 0) == is_recorded
        names = {row.name for row in recorded.rows_of(recorded.read(only(folder)))}
        assert ("gemm" in names) == is_recorded


INFERS = """
import ctypes, os, threading, time
from rankscope.agent import recorder
loop = ctypes.CDLL(os.environ["LOOP"])
loop.infer.argtypes = [ctypes.c_double]
loop.rankscope_optimizers(0)
recorder.lend_interpreter(recorder.recorder())
assert loop.InitializeInjection() == 1
"""
BETWEEN_INSTRUCTIONS = """
until = time.monotonic() + 6
while time.monotonic() < until:
    loop.infer(0.001)
"""
BLOCKED = """
def infer():
    loop.infer(8)
    print("forced", loop.fake_forced())
thread = threading.Thread(target=infer)
thread.start()
thread.join()
"""
AFTER_PYTHON = """
loop.infer(0.1)
loop.infer_at_exit()
"""


def infer(folder: Path, program: str) -> tuple[Path, list[str]]:
    """A Python program without steps on the GPU, which asks for a window's end as torch's agent does."""
    make_driver(folder, "plain")
    found = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-lrankscope", "-l:libcupti.so.13")
    loop = compile_c(folder / "loop.so", HERE / "cuda" / "cuda_loop.c", "-fPIC", "-shared", *found)
    run = folder / "run"
    run.mkdir()
    settings = AUTO | {"RANKSCOPE_CUDA_SECOND_NS": "1000000", "LOOP_COST_NS": "0", "FAKE_CUPTI_CLOCK": "1"}
    environment = recording(run, **settings, RANK="0", WORLD_SIZE="1", LOOP=str(loop))
    environment["LD_PRELOAD"] = str(folder / "librankscope.so")
    command = [sys.executable, "-c", INFERS + program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return run, done.stdout.splitlines()


def starts_ns_of(lines: list[str]) -> list[int]:
    return [int(line.split()[3]) for line in lines if line.startswith("activity")]


def check_all_is_recorded(run: Path, lines: list[str], windows_ended: int = 0) -> None:
    """From the moment on at which recording has begun, to the end; in a window that is open then or, at most, ended."""
    how, windows = windows_of(run)
    assert int(how["windows"]) == len(windows) <= windows_ended
    begin_ns = int(windows[0]["begin_ns"] if len(windows) else how["window_begin_ns"])
    assert begin_ns > 0
    kernels = sum(row.calls for row in recorded.rows_of(recorded.read(only(run))) if row.name == "gemm")
    after = sum(start_ns > begin_ns for start_ns in starts_ns_of(lines))
    assert kernels == pytest.approx(after, abs=60) and after > 1000  # a run of 50 is cut at its beginning


def test_an_interpreter_that_has_ended_is_not_asked(tmp_path: Path) -> None:
    """What is left of the program goes on with the GPU: there Py_AddPendingCall would end the process."""
    run, lines = infer(tmp_path, AFTER_PYTHON)
    assert lines[-1] == "inferred"
    check_all_is_recorded(run, lines)


def test_an_interpreter_whose_main_thread_is_blocked_is_asked_once(tmp_path: Path) -> None:
    """Each time flushes by force, which cuts kernels that are under way, and then waits instead of flushing."""
    run, lines = infer(tmp_path, BLOCKED)
    assert lines[-1] == "forced 1"
    check_all_is_recorded(run, lines, windows_ended=1)  # once it goes on, it may still do what it was asked for


def test_inference_of_python_is_recorded_in_windows(tmp_path: Path) -> None:
    """Nobody tells of steps: the interpreter's main thread takes CUPTI off, between two instructions of the program."""
    run, lines = infer(tmp_path, BETWEEN_INSTRUCTIONS)
    how, windows = windows_of(run)
    assert int(how["windows"]) == len(windows) >= 2
    assert int(how["seen_steps"]) == int(how["costs"]) == 0 < int(how["spent_ns"])
    starts_ns = starts_ns_of(lines)
    spans = [(int(window["begin_ns"]), int(window["end_ns"])) for window in windows]
    if how["window_begin_ns"]:
        spans.append((int(how["window_begin_ns"]), starts_ns[-1]))
    inside = sum(begin_ns <= start_ns <= end_ns for start_ns in starts_ns for begin_ns, end_ns in spans)
    (row,) = rankscope.open(run).table("gpu_windows").to_arrow().to_pylist()
    assert row["kernels"] < len(starts_ns)
    assert row["kernels"] == pytest.approx(inside, rel=0.1, abs=60 * len(spans))  # a run of 50 is cut at either end
    share = sum(end_ns - begin_ns for begin_ns, end_ns in spans) / (starts_ns[-1] - spans[0][0])
    assert row["time_share"] == pytest.approx(share, rel=0.1) and share < 0.9
    assert row["step_share"] is None and row["cost"] is None
    assert row["estimated_kernels"] == pytest.approx(row["kernels"] / row["time_share"])
    (note,) = (note for note in rankscope.open(run).table("gpu").notes if note.startswith("Recorded in"))
    assert "% of the time" in note


@pytest.mark.slow
def test_a_kill_between_windows_loses_nothing_of_them(driver: Path, tmp_path: Path) -> None:
    truth = play(driver, tmp_path, [*STEP * 1200, "K"], code=-9, **WINDOWS)
    how, windows = windows_of(tmp_path)
    assert int(how["windows"]) >= 1 and len(windows) == int(how["windows"])
    compare_some(rows_of(tmp_path)[:200], dict(enumerate(expected(truth), 1)))
