"""GPUs of two vendors in one process: the same steps, one clock, and neither ends what the other still has to tell."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from native.builds import HERE, SANITIZERS, STRICT, recording
from native.cuda.test_cuda import make_driver
from programs import recorded
from rankscope.rank_file import Backend, ChunkKind, CudaState
from rankscope.rank_files.chunks import open_rank_file
from scripts import level_zero_random as level_zero
from scripts.gpu_step_truth import OPTIMIZER

STEPS = 40
NEAR_NS = 5_000_000  # a machine that does something else between two readings of the clocks
pytestmark = [
    pytest.mark.timeout(600),  # the first one compiles the recorder with a sanitizer
    pytest.mark.skipif(level_zero.installed() is None, reason="no Level Zero loader and headers: make env-levelzero"),
]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> level_zero.Scripted:
    return level_zero.Scripted(tmp_path_factory.mktemp("scripted"))


@pytest.fixture(scope="module")
def program(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"vendors-{sanitizer}")
    make_driver(folder, sanitizer)
    found = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-lrankscope", "-l:libcupti.so.13")
    source = str(HERE / "gpu" / "two_vendors.c")
    return level_zero.compile_c(folder / "two_vendors", source, *SANITIZERS[sanitizer], *found, "-ldl")


def run(program: Path, scripted: level_zero.Scripted, folder: Path, *values: str, **more: str) -> list[tuple[int, int]]:
    """When each step began and ended, on CUPTI's clock."""
    folder.mkdir()
    allowed = f"{STRICT['TSAN_OPTIONS']}:report_signal_unsafe=0"  # the program calls exit in a handler
    quiet = {"ASAN_OPTIONS": "detect_leaks=0:exitcode=99", "TSAN_OPTIONS": allowed}
    environment = recording(folder, **quiet, FAKE_CUPTI_CLOCK="1", RANK="0", WORLD_SIZE="1", **more)
    environment |= scripted.variables()
    done = subprocess.run([program, *values], env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (5, "")
    steps = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    return [(begin, end) for begin, end in steps]


def sums(path: Path) -> dict[tuple[str, str], tuple[int, int]]:
    columns: Any = recorded.read(path).tally_columns
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for at in range(len(columns["calls"])):
        layer, name = (recorded.word(columns[key], at) for key in ("layer", "name"))
        calls, ns = found.get((layer, name), (0, 0))
        found[layer, name] = (calls + int(columns["calls"][at]), ns + round(columns["total_ns"][at]))
    return found


@pytest.mark.parametrize("first", ["cuda", "ze"])
@pytest.mark.parametrize("ending", ["return", "handler"])
def test_both_are_recorded_in_the_same_steps(
    program: Path, scripted: level_zero.Scripted, tmp_path: Path, first: str, ending: str
) -> None:
    truth = run(program, scripted, tmp_path / "run", first, str(STEPS), OPTIMIZER, ending)
    (path,) = recorded.rank_files(tmp_path / "run")
    found = sums(path)
    assert found["gpu", "add"] == (STEPS, STEPS * 300_000)
    assert found["gpu", "gemm:200000"] == (2 * STEPS, 2 * STEPS * 200_000)
    assert found["cuda_api", "cudaLaunchKernel"] == (STEPS, STEPS * 4000)
    assert found["ze", "zeCommandListAppendLaunchKernel"][0] == 2 * STEPS

    file = open_rank_file(path)
    steps = file.parts(ChunkKind.DEVICE_STEPS)[0].rows
    steps = steps[steps["number"] > 0]
    devices = sorted({int(row["device"]) for row in steps})
    assert len(devices) == 2 and devices[0] == 0  # who told of a device first has kept its number
    ze, cuda = sorted(devices, key=lambda device: -max(int(row["kernels"]) for row in steps if row["device"] == device))
    for device, kernels, each_ns in ((cuda, 1, 300_000), (ze, 2, 200_000)):
        rows = {int(row["number"]): row for row in steps if row["device"] == device}
        assert sorted(rows) == list(range(1, STEPS + 1)), device
        assert {int(row["kernels"]) for row in rows.values()} == {kernels}
        assert {int(row["kernel_ns"]) for row in rows.values()} == {kernels * each_ns}
    if first == "cuda":  # whose clock is that of the process then: the other's work lies in the same steps on it
        ends = {int(row["number"]): int(row["end_ns"]) for row in steps if row["device"] == ze}
        assert all(begin - NEAR_NS < ends[at] < end + NEAR_NS for at, (begin, end) in enumerate(truth, 1))


def test_each_says_how_it_was_recorded(program: Path, scripted: level_zero.Scripted, tmp_path: Path) -> None:
    """Recording does not pause for CUDA's sake where another vendor's devices have steps."""
    asked = {"RANKSCOPE_CUDA": "windows", "RANKSCOPE_CUDA_SECOND_NS": "10000000"}
    run(program, scripted, tmp_path / "run", "ze", str(STEPS), OPTIMIZER, "return", **asked)
    (path,) = recorded.rank_files(tmp_path / "run")
    file = open_rank_file(path)
    (how,) = file.parts(ChunkKind.CUDA)[0].rows
    assert (int(how["state"]), int(how["windows"])) == (CudaState.RECORDING, 0)
    assert [int(row["backend"]) for part in file.parts(ChunkKind.RUNTIMES) for row in part.rows] == [Backend.ZE]
    assert sums(path)["gpu", "add"] == (STEPS, STEPS * 300_000)
    assert recorded.read(path).notes == []
