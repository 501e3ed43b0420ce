"""Level Zero on its real loader and a scripted driver: what is recorded is what was done, to the tick."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rankscope
from native.builds import SANITIZERS, STRICT, place_recorder, recording
from rankscope.api.frame import Frame
from rankscope.model.tables import Column, Table, Unit
from rankscope.questions.run.screen import _cost
from rankscope.rank_file import ChunkKind, RuntimeState
from rankscope.rank_files.chunks import open_rank_file
from scripts import level_zero_random as level_zero
from scripts.gpu_step_truth import OPTIMIZER

ROOT = Path(__file__).parents[3]
NATIVE = ROOT / "src" / "rankscope" / "native"
COMMAND = ROOT / ".venv" / "bin" / "rankscope"
STEPS = 6
pytestmark = pytest.mark.skipif(
    level_zero.installed() is None, reason="no Level Zero loader and headers: make env-levelzero"
)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> level_zero.Scripted:
    return level_zero.Scripted(tmp_path_factory.mktemp("level_zero"))


@pytest.mark.parametrize("end", ["", "exit", "kill", "abandon", "fork"])
@pytest.mark.parametrize("threads", [1, 3])
def test_random_sequences(scripted: level_zero.Scripted, tmp_path: Path, end: str, threads: int) -> None:
    seed = 7 + threads + len(end)
    assert level_zero.run_random(scripted, tmp_path / "run", seed, 60 // threads, threads, end) == []


@pytest.mark.timeout(600)
def test_random_sequences_under_sanitizers(scripted: level_zero.Scripted, sanitizer: str, tmp_path: Path) -> None:
    flags, program = SANITIZERS[sanitizer], tmp_path / "random_work"
    place_recorder(tmp_path, flags)
    recorder = (f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}", "-Wl,--no-as-needed", "-lrankscope")
    level_zero.compile_c(program, "random_work.c", *flags, *recorder, *level_zero.loader_flags())
    (tmp_path / "run").mkdir()
    quiet = {"ASAN_OPTIONS": "detect_leaks=0:exitcode=99", "TSAN_OPTIONS": STRICT["TSAN_OPTIONS"]}
    environment = {**recording(tmp_path / "run", **quiet), **scripted.variables()}
    done = subprocess.run([program, "11", "40", "3", ""], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = (tmp_path / "run").rglob("*.rank")
    assert level_zero.differences(json.loads(done.stdout), level_zero.recorded_in(path)) == []


# ---------------------------------------------------------------- a training loop, recorded as a user does
@pytest.fixture(scope="module")
def trained(scripted: level_zero.Scripted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    done = train(scripted, str(COMMAND), "run", "--out", str(run))
    bare = train(scripted)
    assert (done.returncode, done.stdout, done.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    assert (bare.returncode, bare.stdout) == (7, "trained\n")
    return run


def train(scripted: level_zero.Scripted, *before: str, **more: str) -> subprocess.CompletedProcess[str]:
    if before and not COMMAND.exists():
        pytest.skip("no .venv: make .venv/.ready")
    environment = {**os.environ, **scripted.variables(), "RANK": "0", "WORLD_SIZE": "1", **more}
    program = [str(scripted.program("training_loop")), str(STEPS), OPTIMIZER]
    return subprocess.run(
        [*before, *program], env=environment, capture_output=True, text=True, timeout=110, check=False
    )


def told(frame: Frame) -> list[dict[str, Any]]:
    return [dict(zip(frame.columns, row, strict=True)) for row in frame.rows]


def rows(run: Path, table: str, key: str) -> dict[Any, dict[str, Any]]:
    return {row[key]: row for row in told(rankscope.open(run).table(table))}


def test_kernels_and_copies_have_their_device_time(trained: Path) -> None:
    found = rows(trained, "gpu", "name")
    assert {name: (row["calls"], row["total_ns"]) for name, row in found.items()} == {
        "gemm:200000": (3 * STEPS, 3 * STEPS * 200_000),
        "oneccl_allreduce:100000": (STEPS, STEPS * 100_000),
        "adam:50000": (STEPS, STEPS * 50_000),
        "zeCommandListAppendMemoryCopy(M2D)": (STEPS, STEPS * (100 + 4096 // 16)),
    }
    (copies,) = rows(trained, "gpu_copies", "name").values()
    assert (copies["calls"], copies["bytes"]) == (STEPS, STEPS * 4096)


def test_host_calls_are_counted_by_thread_and_failures_told(trained: Path) -> None:
    tallies = told(rankscope.open(trained).table("tallies"))
    calls = {row["name"]: row for row in tallies if row["layer"] == "ze"}
    assert calls["zeCommandListAppendLaunchKernel"]["calls"] == 5 * STEPS
    assert calls["zeInit"]["calls"] == calls["zeMemAllocDevice"]["calls"] == 1
    assert calls["zeEventHostSynchronize"]["total_ns"] > STEPS * 600_000  # it waited for the device
    assert sum(row["errors"] for row in calls.values()) == 0
    (ranked,) = rows(trained, "gpu_ranks", "rank").values()
    assert ranked["communication_ns"] == STEPS * 100_000
    assert ranked["api_ns"] == pytest.approx(sum(row["total_ns"] for row in calls.values()))


def test_steps_are_those_of_the_device(trained: Path) -> None:
    steps = told(rankscope.open(trained).query("SELECT * FROM device_steps ORDER BY number"))
    assert len(steps) == STEPS and {row["kernels"] for row in steps} == {5} and {row["copies"] for row in steps} == {1}
    assert {row["kernel_ns"] for row in steps} == {750_000} and {row["copy_bytes"] for row in steps} == {4096}
    assert {row["sync_calls"] for row in steps} == {1} and not any(row["by_time"] for row in steps)
    for row in steps:
        assert row["compute_ns"] == pytest.approx(650_000, abs=64) and row["exposed_ns"] == pytest.approx(
            100_000, abs=64
        )


def test_what_is_not_seen_is_said(trained: Path) -> None:
    covered = rows(trained, "coverage", "what")
    unseen = covered["functions that launch work on devices and are not intercepted"]
    assert (unseen["count"], unseen["where"]) == (1, "zexCommandListAppendLaunchFast")


def test_the_first_screen_speaks_of_no_cupti(trained: Path) -> None:
    run = rankscope.open(trained)

    def answer(name: str) -> Table:
        found = run.table(name)
        return Table(name, name, [Column(column, Unit.NAME) for column in found.columns], list(found.rows))

    assert _cost(answer).endswith("% without device times")


def test_the_layout_of_iprof(trained: Path) -> None:
    done = subprocess.run(
        [str(COMMAND), "report", str(trained), "--layout", "iprof"], capture_output=True, text=True, check=True
    )
    heads = [line for line in done.stdout.splitlines() if "Hostnames" in line]
    assert heads == [
        "BACKEND_ZE | 1 Hostnames | 1 Processes | 1 Threads | ",
        "BACKEND_TORCH | 1 Hostnames | 1 Processes | 1 Threads | ",
        "Device profiling | 1 Hostnames | 1 Processes | 1 Devices | ",
        "Explicit memory traffic (BACKEND_ZE) | 1 Hostnames | 1 Processes | 1 Devices | ",
    ]


def test_devices_are_described(trained: Path) -> None:
    sql = "SELECT device, name, multiprocessors, memory_bytes FROM gpus ORDER BY device"
    assert rankscope.open(trained).query(sql).rows[:3] == [
        (0, "scripted device 0", 32, 1 << 30),
        (1, "scripted device 1", 32, 1 << 30),
        (2, "scripted device 0, tile 0 of GPU 0", 32, 1 << 30),
    ]


def test_a_driver_that_was_started_past_us_is_said(scripted: level_zero.Scripted, tmp_path: Path) -> None:
    driver = shutil.copy(scripted.driver, tmp_path / "libze_intel_gpu.so.1")
    program = [sys.executable, "-c", f"import ctypes; ctypes.CDLL('{driver}')"]
    subprocess.run([str(COMMAND), "run", "--out", str(tmp_path / "run"), *program], check=True)
    notes = [row["text"] for row in told(rankscope.open(tmp_path / "run").query("SELECT text FROM notes"))]
    assert any(text.startswith("a driver of Level Zero is in the process, and was not started") for text in notes)


def test_it_can_be_switched_off(scripted: level_zero.Scripted, tmp_path: Path) -> None:
    done = train(scripted, str(COMMAND), "run", "--out", str(tmp_path / "run"), RANKSCOPE_LEVEL_ZERO="0")
    assert (done.returncode, done.stdout, done.stderr) == (7, "trained\n", "")
    for path in (tmp_path / "run").rglob("*.rank"):
        assert not open_rank_file(path).parts(ChunkKind.RUNTIMES)


def test_a_run_says_how_it_listened(trained: Path) -> None:
    (path,) = trained.rglob("*.rank")
    (part,) = open_rank_file(path).parts(ChunkKind.RUNTIMES)
    (row,) = part.rows
    assert (row["state"], row["launched"], row["timed"], row["untimed"]) == (RuntimeState.RECORDING, 36, 36, 0)


# ---------------------------------------------------------------- the declarations
FIELDS = {
    ("rs_ze_event_pool_desc", "ze_event_pool_desc_t"): "stype pNext flags count",
    ("rs_ze_event_desc", "ze_event_desc_t"): "stype pNext index signal wait",
    ("rs_ze_list_desc", "ze_command_list_desc_t"): "stype pNext commandQueueGroupOrdinal flags",
    ("rs_ze_host_desc", "ze_host_mem_alloc_desc_t"): "stype pNext flags",
    ("rs_ze_kernel_desc", "ze_kernel_desc_t"): "stype pNext flags pKernelName",
    ("rs_ze_device_properties", "ze_device_properties_t"): (
        "stype pNext type flags subdeviceId numSubslicesPerSlice numSlices timerResolution kernelTimestampValidBits"
        " uuid name"
    ),
    ("rs_ze_memory_properties", "ze_device_memory_properties_t"): "stype pNext totalSize name",
}
VALUES = {
    "RS_ZE_SUCCESS": "ZE_RESULT_SUCCESS",
    "RS_ZE_NOT_READY": "ZE_RESULT_NOT_READY",
    "RS_ZE_DEVICE_PROPERTIES_1_2": "ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2",
    "RS_ZE_LIST_DESC": "ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC",
    "RS_ZE_HOST_DESC": "ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC",
    "RS_ZE_EVENT_POOL_DESC": "ZE_STRUCTURE_TYPE_EVENT_POOL_DESC",
    "RS_ZE_EVENT_DESC": "ZE_STRUCTURE_TYPE_EVENT_DESC",
    "RS_ZE_MEMORY_PROPERTIES": "ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES",
    "RS_ZE_POOL_HOST_VISIBLE": "ZE_EVENT_POOL_FLAG_HOST_VISIBLE",
    "RS_ZE_POOL_IPC": "ZE_EVENT_POOL_FLAG_IPC",
    "RS_ZE_POOL_TIMESTAMP": "ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP",
    "RS_ZE_SUBDEVICE": "ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE",
}


def test_the_declarations_are_those_of_the_headers(tmp_path: Path) -> None:
    """Places of fields, of functions in their tables, and of arguments in their functions."""
    lines = ["#include <stddef.h>", "#include <level_zero/ze_api.h>", "#include <level_zero/ze_ddi.h>"]
    lines.append(f'#include "{NATIVE}/level_zero/ze.h"')
    for (ours, theirs), fields in FIELDS.items():
        for field in fields.split():
            places = f"offsetof(struct {ours}, {field}) == offsetof({theirs}, {field})"
            sizes = f"sizeof(((struct {ours} *)0)->{field}) == sizeof((({theirs} *)0)->{field})"
            lines.append(f'_Static_assert({places} && {sizes}, "{ours}.{field}");')
    lines.append('_Static_assert(sizeof(struct rs_ze_kernel_timestamp) == sizeof(ze_kernel_timestamp_result_t), "");')
    lines += [f'_Static_assert({ours} == (int){theirs}, "{ours}");' for ours, theirs in VALUES.items()]
    lines += [*function_checks()]
    (tmp_path / "check.c").write_text("\n".join(lines) + "\n")
    root = level_zero.installed()
    command = ["cc", "-fsyntax-only", f"-I{root}/include", str(tmp_path / "check.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def function_checks() -> list[str]:
    text, lines = (NATIVE / "level_zero" / "ze_functions.h").read_text(), []
    for kind, table, place, name, rest in re.findall(r"RS_ZE_(\w+)\((\w+), (\d+), (\w+)(.*)\)", text):
        member = name.removeprefix(table.removesuffix("Exp"))
        of_table = f"ze_{snake(table)}_dditable_t"
        lines.append(f'_Static_assert(offsetof({of_table}, pfn{member}) == 8 * {place}, "{name}");')
        if kind == "LAUNCH":
            arguments = f"ze_{snake(name)}_params_t"
            event = rest.split(",")[2]
            if not name.endswith("Ext"):  # of which the structure is in another header
                lines.append(f'_Static_assert(offsetof({arguments}, phSignalEvent) == 8 * {event}, "{name}");')
    return lines
