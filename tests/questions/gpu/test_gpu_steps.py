"""The step on the GPUs: sums worked out by hand, and trainings on an H200 with a problem put in, and without it."""

from __future__ import annotations

import re
import tarfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpis import ROOT
from rankscope.model.gpu import DeviceStep, DeviceTotals, GpuRecording
from rankscope.model.records import RankFacts, Reading, Step
from rankscope.questions.findings.table import findings_of
from rankscope.questions.gpu.step_without import sync_saving_ns
from rankscope.questions.gpu.steps import CAUSES, device_steps_of, gpu_steps
from rankscope.questions.steps.startup import startup_parts
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run
from runs.loaded import run_of

MS = 1_000_000
STEPS = 20
H200 = ROOT / "benchmarks" / "results" / "h200"
ARCHIVE = H200 / "gpu_problems-2026-11-16.tar.xz"


def training(rank: int = 0, step_ms: float = 10.0, runnable_ms: float = 0.0, **parts_ms: float) -> Reading:
    """A rank of equal steps on one GPU; what no part is given is compute."""
    given = {f"{name}_ns": round(value * MS) for name, value in parts_ms.items() if not name.startswith("count_")}
    given |= {name.removeprefix("count_"): round(value) for name, value in parts_ms.items() if "count_" in name}
    busy_or_idle = [name for name in given if name in ("exposed_ns", "copy_ns") or name.startswith("idle_")]
    given["compute_ns"] = round(step_ms * MS) - sum(given[name] for name in busy_or_idle)
    number = np.arange(1, STEPS + 1)
    end = number * round(step_ms * MS)
    places = {"number": number, "begin_ns": end - round(step_ms * MS), "end_ns": end}
    device = {field.name: np.full(STEPS, given.get(field.name, 0)) for field in fields(DeviceStep)} | places
    device |= {name: np.zeros(STEPS, bool) for name in ("cut", "by_time")}
    steps: dict[str, Any] = {field.name: np.zeros(STEPS, np.int64) for field in fields(Step)} | places
    steps |= {name: np.zeros(STEPS, bool) for name in ("warmup", "accumulated", "skipped", "told")}
    steps |= {"other_ns": end - places["begin_ns"], "runnable_ns": np.full(STEPS, round(runnable_ms * MS))}
    facts = RankFacts(rank=rank, elapsed_ns=round(STEPS * step_ms * MS))
    return Reading(facts, step_columns=steps, device_step_columns=device)


def first_finding(run: RunTables) -> tuple[str, float]:
    found = [one for one in findings_of(run) if one.saved_ns is not None]
    return found[0].rule, found[0].saved_ns or 0.0


def test_the_parts_add_up_to_the_step() -> None:
    idle = {f"idle_{cause}": 0.1 * place for place, cause in enumerate(CAUSES, 1)}
    run = run_of([training(exposed=1.0, copy=0.5, overlapped=0.3, **idle)])
    table = gpu_steps(run)
    row = dict(zip((column.name for column in table.columns), table.rows[0], strict=True))
    assert row["step_ns"] == row["compute_ns"] + row["exposed_ns"] + row["copy_ns"] + row["idle_ns"] == 10 * MS
    assert row["idle_ns"] == pytest.approx(sum(idle.values()) * MS)
    assert row["idle_ns"] == pytest.approx(sum(row[f"{cause}_ns"] for cause in (*CAUSES, "preempted")))
    assert row["exposed_share"] == pytest.approx(0.1) and row["wait_ns"] is None


def test_without_a_cpu_the_host_launches_nothing() -> None:
    (one,) = device_steps_of(run_of([training(runnable_ms=2.0, idle_launch=3.0, idle_python=1.0, idle_data=2.0)]))
    assert one.idle["preempted"] == 2 * MS
    assert (one.idle["launch"], one.idle["python"], one.idle["data"]) == (1.5 * MS, 0.5 * MS, 2 * MS)
    (all_of_it,) = device_steps_of(run_of([training(runnable_ms=50.0, idle_launch=3.0)]))
    assert (all_of_it.idle["preempted"], all_of_it.idle["launch"]) == (3 * MS, 0.0)


@pytest.mark.parametrize(
    ("rule", "parts", "saved_ms"),
    [
        ("gpu_communication", {"exposed": 4.0, "idle_launch": 1.0}, 4.0),
        ("launch_bound", {"idle_launch": 6.0, "exposed": 1.0, "count_kernels": 500}, 6.0),
        ("data_bound", {"idle_data": 5.0, "idle_launch": 2.0}, 5.0),
        ("gpu_copies", {"copy": 3.0}, 3.0),
        ("between_parts", {"idle_python": 2.0}, 2.0),
        ("host_collectives", {"idle_blocked": 2.0}, 2.0),
        ("gc_bound", {"idle_gc": 2.0}, 2.0),
        ("recompiling", {"idle_compile": 2.0}, 2.0),
        ("without_cpu", {"idle_launch": 2.0, "runnable_ms": 2.0}, 2.0),
        # busy for 7 ms of 10, the host 8 ms in a call that waits: without it the device decides
        ("synchronising", {"idle_launch": 3.0, "sync": 8.0, "count_sync_calls": 1}, 3.0),
        # the host takes 9 ms beside that call, the device 7: only 1 ms can be saved, launching is the problem
        ("launch_bound", {"idle_launch": 3.0, "sync": 1.0, "count_sync_calls": 1}, 2.0),
    ],
)
def test_the_problem_is_named_with_what_it_costs(rule: str, parts: dict[str, float], saved_ms: float) -> None:
    run = run_of([training(rank, **parts) for rank in (0, 1)])
    assert first_finding(run) == (rule, pytest.approx(saved_ms * MS * STEPS))


def test_nothing_is_found_where_the_gpus_compute() -> None:
    assert findings_of(run_of([training(exposed=0.2, copy=0.1, idle_launch=0.3)])) == []


def test_gaps_of_the_device_itself_cannot_be_saved() -> None:
    (one,) = device_steps_of(run_of([training(idle_device=2.0, idle_launch=1.0, sync=9.0, count_sync_calls=1)]))
    assert sync_saving_ns(one) == pytest.approx(1 * MS)


def sampled(reading: Reading, recorded: int) -> Reading:
    """As if recorded in windows: of the device only the first steps are known."""
    columns: Any = reading.device_step_columns
    reading.device_step_columns = {name: values[:recorded] for name, values in columns.items()}
    reading.gpu_recordings = [GpuRecording(1, 0, 0, STEPS, float(recorded), 1, 0.5, 0.1, 0, None)]
    return reading


def test_inference_that_leaves_the_gpu_idle_is_found() -> None:
    """Windows of 2 of 20 s, in which the device is busy for a tenth: what the whole run loses."""
    totals = DeviceTotals(0, 1000, 2000 * MS, 200 * MS, 200 * MS, 0, 0, 0)
    windows = GpuRecording(3, 2000 * MS, 20_000 * MS, 0, 0.0, 0, None, None, 10 * MS, None)
    run = run_of([Reading(RankFacts(rank=0, elapsed_ns=25_000 * MS), devices=[totals], gpu_recordings=[windows])])
    (finding,) = (finding for finding in findings_of(run) if finding.rule == "gpu_active_window")
    assert finding.title == "The GPU is idle for 1.8 s of the 2 s recorded (90 %)"
    assert finding.saved_ns == pytest.approx(18_000 * MS)
    assert "500 kernels and copies a second of 200 µs each" in finding.evidence[1]


def test_steps_outside_windows_tell_what_recording_added() -> None:
    """Recorded steps take 12 ms, of which the device computes 4; the others take 10."""
    reading = sampled(training(step_ms=12.0, idle_launch=8.0), 8)
    steps: Any = reading.step_columns
    steps["end_ns"] = np.cumsum(np.where(np.asarray(steps["number"]) <= 8, 12 * MS, 10 * MS))
    steps["begin_ns"] = np.concatenate([[0], steps["end_ns"][:-1]])
    steps["other_ns"] = steps["end_ns"] - steps["begin_ns"]
    run = run_of([reading])
    (finding,) = (finding for finding in findings_of(run) if finding.rule == "launch_bound")
    assert finding.title.endswith("for 6 ms of each 10 ms unrecorded step (60 %)")
    assert finding.saved_ns == pytest.approx(6 * MS * STEPS)


def test_a_host_that_recording_makes_slower_waits_longer_without() -> None:
    """Recorded, the host takes 11 of 12 ms for itself and waits for 1; outside windows the step takes 10."""
    (device,) = device_steps_of(
        run_of([sampled(training(step_ms=12.0, idle_launch=4.0, sync=1.0, count_sync_calls=1), 16)])
    )
    assert sync_saving_ns(device, 10.0 * MS) == pytest.approx((10 - 11 / 1.28) * MS)
    assert sync_saving_ns(device, 8.0 * MS) == pytest.approx(0.0, abs=1)  # the device alone takes that long


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("problems")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
    return folder / "problems"


@pytest.mark.parametrize(
    ("name", "rule"), [("launch", "launch_bound"), ("data", "data_bound"), ("pageable", "gpu_copies")]
)
def test_on_the_h200_it_names_the_problem_and_what_removing_it_saved(problems: Path, name: str, rule: str) -> None:
    measured = {line.split()[0]: line.split()[1:] for line in (problems / "seconds.txt").read_text().splitlines()}
    steps, _, recorded_s, without_s = map(float, measured[name])
    run = open_run(problems / name, read_rank_file)
    found, saved_ns = first_finding(run)
    every_step = run.query("SELECT count(*) FROM steps")[0][0]
    assert found == rule
    assert saved_ns / 1e9 / every_step * steps == pytest.approx(recorded_s - without_s, rel=0.15)


@pytest.mark.parametrize("name", ["launch", "data", "item", "pageable"])
def test_on_the_h200_every_step_adds_up(problems: Path, name: str) -> None:
    run = open_run(problems / name, read_rank_file)
    idle = " + ".join(f"idle_{cause}_ns" for cause in CAUSES)
    sql = f"SELECT end_ns - begin_ns AS step, compute_ns + exposed_ns + copy_ns + {idle} AS parts FROM device_steps"
    found = run.columns(sql)
    assert len(found["step"]) > 60
    assert np.abs(found["step"] - found["parts"]).max() <= 0.001 * found["step"].max()


@pytest.mark.parametrize("name", ["launch", "data", "item", "pageable"])
def test_on_the_h200_steps_and_device_agree(problems: Path, name: str) -> None:
    """These programs compute in their steps only: what all steps computed is what the device did."""
    run = open_run(problems / name, read_rank_file)
    ((of_steps, of_device),) = run.query(
        "SELECT (SELECT sum(compute_ns) FROM device_steps), sum(compute_ns) FROM devices"
    )
    assert int(of_steps) == pytest.approx(int(of_device), rel=0.001)


def unpacked(name: str, folder: Path, *members: str) -> Path:
    with tarfile.open(H200 / name) as packed:
        chosen = [one for one in packed if one.name.startswith(members)]
        packed.extractall(folder, chosen, filter="data")
    return folder / members[0]


def test_what_the_start_of_a_gpu_job_waits_for(tmp_path: Path) -> None:
    run = open_run(unpacked("gpu_problems_turns-2026-11-16.tar.xz", tmp_path, "problems/compute/"), read_rank_file)
    (found,) = (one for one in findings_of(run) if one.rule == "slow_start")
    assert re.search(r"s of it \(\d+ % of the run\) in later imports \(torch._dynamo\)$", found.title)
    assert 4.4e9 < found.saved_ns < 5e9 and found.evidence[1].startswith("startup: ")
    parts = {part.name: part.median_ns for part in startup_parts(run)}
    assert 0.1e9 < parts["CUDA until first work"] < 1e9 and 0.1e9 < parts["loading GPU code"] < 2e9
    at_ns = dict(run.query("SELECT name, at_ns FROM marks"))
    assert at_ns["import_end"] < at_ns["cuda_begin"] < at_ns["gpu_begin"] < at_ns["first_step_begin"]


def test_steps_in_windows_are_told_though_the_hosts_are_overwritten(tmp_path: Path) -> None:
    folder = unpacked("gpu_windows-2026-11-16.tar.xz", tmp_path, "windows/together/windows/")
    run = open_run(folder, read_rank_file)
    first, last = run.query("SELECT min(number), max(number) FROM device_steps")[0]
    assert last < run.query("SELECT min(number) FROM steps")[0][0]
    (one,) = device_steps_of(run)
    assert 0.9 * run.query("SELECT count(*) FROM device_steps")[0][0] < one.steps and first == 1
    assert one.idle["launch"] > 0.5 * one.step_ns


@pytest.mark.parametrize("windows", [0, 2])
def test_a_pause_in_a_window_does_not_stand_for_the_run(windows: int) -> None:
    """All recorded, its share of the mean is its share of the run; windows do not know how often there are pauses."""
    reading = training(idle_launch=4.0)
    device: Any = reading.device_step_columns
    device["end_ns"][-1] += 90 * MS
    device["idle_python_ns"] = np.where(device["number"] == STEPS, 90 * MS, 0)
    reading.gpu_recordings = [GpuRecording(windows, 0, 0, 1000, float(STEPS), 1, 0.1, 0.01, 0, None)]
    run = run_of([reading])
    (gpu,) = device_steps_of(run)
    assert gpu.step_ns == (10 * MS if windows else pytest.approx(10 * MS + 90 * MS / gpu.steps))
    assert gpu.idle["python"] == (0 if windows else pytest.approx(90 * MS / gpu.steps))
    assert any("1 step of more than 3 medians left out" in note for note in gpu_steps(run).notes) == bool(windows)


def test_what_a_step_could_save_counts_for_steps_that_are_overwritten() -> None:
    reading = training(idle_launch=4.0)
    for columns in (reading.step_columns, reading.device_step_columns):
        assert columns is not None
        columns["number"] = np.asarray(columns["number"]) + 980
    rule, saved_ns = first_finding(run_of([reading]))
    assert rule == "launch_bound" and saved_ns == pytest.approx(4.0 * MS * 1000)


# what removing the problem saves, by turns in one process (gpu_savings.py says both); in the first archive the same one
SAME, AGAIN = "gpu_problems_turns-2026-11-18.tar.xz problems", "gpu_windows_again-2026-11-18.tar.xz again/problems"
SAVED_MS = {
    SAME: {"launch": 9.18, "data": 15.09, "item": 5.30, "pageable": 10.19, "ddp": 4.75, "fsdp": 18.63},
    AGAIN: {"launch": 8.80, "data": 20.18, "pageable": 11.37, "fsdp": 19.55},
    "gpu_problems_resnet-2026-11-19.tar.xz problems": {"resnet": 62.98},
}
RULES = {
    "launch": "launch_bound",
    "data": "data_bound",
    "resnet": "data_bound",
    "item": "synchronising",
    "pageable": "gpu_copies",
    "ddp": "gpu_communication",
    "fsdp": "gpu_communication",
}


@pytest.mark.parametrize(("where", "problem"), [(where, name) for where, named in SAVED_MS.items() for name in named])
def test_recorded_in_windows_the_first_finding_promises_what_is_saved(where: str, problem: str, tmp_path: Path) -> None:
    archive, inside = where.split()
    folder = unpacked(archive, tmp_path, f"{inside}/{problem}/")
    run = open_run(folder, read_rank_file)
    rule, saved_ns = first_finding(run)
    (steps,) = run.query("SELECT max(number) FROM steps")[0]
    assert rule == RULES[problem]
    assert saved_ns / steps == pytest.approx(SAVED_MS[where][problem] * MS, rel=0.15)


def test_a_loop_that_waits_for_data_does_not_wait_for_the_gpu(tmp_path: Path) -> None:
    """ResNet-50 never asks the GPU for a result: five calls wait in 239 steps, 4 ms in all."""
    run = open_run(unpacked("gpu_problems_resnet-2026-11-19.tar.xz", tmp_path, "problems/resnet/"), read_rank_file)
    assert {finding.rule for finding in findings_of(run)} <= {"data_bound", "launch_bound", "slow_start"}
    (steps,) = device_steps_of(run)
    assert steps.counts["sync_calls"] < 0.1 and sync_saving_ns(steps, 88.4 * MS) < 0.01 * steps.step_ns


def test_what_holds_the_host_up_takes_no_longer_for_being_recorded(tmp_path: Path) -> None:
    """A call in every step waits for 2 ms; 60 of 80 ms are data loading, with recording and without."""
    (steps,) = device_steps_of(
        run_of([training(step_ms=80.0, idle_data=60.0, idle_launch=10.0, sync=2.0, count_sync_calls=1)])
    )
    assert sync_saving_ns(steps, 78.0 * MS) == pytest.approx((78 - 60 - 18 / 1.28) * MS, rel=0.01)


def test_steps_of_a_busy_gpu_each_have_their_kernels(tmp_path: Path) -> None:
    """Recorded all the time and without calls, and in windows: both ranks of FSDP2 have 288 kernels a step."""
    archive, inside = AGAIN.split()
    run = open_run(unpacked(archive, tmp_path, f"{inside}/fsdp/"), read_rank_file)
    kernels = run.query("SELECT median(kernels), median(end_ns - begin_ns) / 1e6 FROM device_steps GROUP BY process")
    assert [count for count, _ in kernels] == [288, 288] and all(30 < ms < 40 for _, ms in kernels)
