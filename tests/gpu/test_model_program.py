"""The model program without a GPU: what it says it did is what it called, and its kernels are valid PTX."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hatch_build
from mpis import ROOT

SCRIPTS = ROOT / "scripts"
LAUNCHES = 300 + 200 + 110 + 90 + 3 + 1 + 80 + 240 + 90 + 60 + 5 + 11  # as written in gpu_model.py, added by hand


@pytest.fixture(scope="module")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fake-cuda")
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*hatch_build.compiler(), *flags, str(ROOT / "tests/gpu/fake_cuda.c")], check=True)
    return folder


def told_by(fake_cuda: Path, *command: str) -> list[dict[str, Any]]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(fake_cuda)}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_counts_what_it_calls(fake_cuda: Path) -> None:
    (told,) = told_by(fake_cuda, str(SCRIPTS / "gpu_model.py"))
    if "ranges" in told["skipped"]:
        pytest.skip(f"no NVTX here: {told['skipped']['ranges']}")
    assert set(told["skipped"]) <= {"runtime_calls"}, "there may be no libcudart here, or one that finds no GPU"
    assert sum(told["calls"]["cuLaunchKernel"]) == LAUNCHES
    replayed = told["kernels"]["model_graph_a"]["1"] + told["kernels"]["model_graph_b"]["1"]
    launched = sum(sum(by_stream.values()) for by_stream in told["kernels"].values())
    assert (replayed, launched) == (75, LAUNCHES - 3 + 75), "three launches were captured, not run"
    inside = {name for kernels in told["within"].values() for name in kernels}
    assert {name for name in told["kernels"] if "_in_" in name} == inside | {"model_in_epoch"}
    assert told["kernels"]["model_in_inner"]["0"] == told["within"]["outer"]["model_in_inner"] == 240
    assert told["memory"]["allocations"] >= 2 + 12 + 1


def test_the_size_program_launches_every_kernel(fake_cuda: Path) -> None:
    told = told_by(fake_cuda, str(SCRIPTS / "gpu_size.py"), "0.05")
    assert told[-1]["last"] and told[-1]["launches"] % 2000 == 0 and told[-1]["launches"] > 0
    assert told[-1]["used_bytes"] is None, "nothing is recorded"


def test_the_end_is_timed(fake_cuda: Path, tmp_path: Path) -> None:
    (told,) = told_by(fake_cuda, str(SCRIPTS / "gpu_exit.py"), "100000", "5")
    assert told["kernels"] == 100_000


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_kernels_are_valid(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assembler = shutil.which("ptxas")
    if assembler is None:
        pytest.skip("no ptxas on this machine")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import gpu_driver

    kernels = [gpu_driver.EMPTY, gpu_driver.SPIN, gpu_driver.TOUCH]
    text = "".join(kernel.format(name=f"kernel_{number}") for number, kernel in enumerate(kernels))
    (tmp_path / "kernels.ptx").write_text(gpu_driver.HEAD + text)
    command = [assembler, f"-arch={target}", "kernels.ptx", "-o", "kernels.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "is not defined for option" in done.stderr:
        pytest.skip(f"this ptxas does not know {target}")
    assert done.returncode == 0, done.stderr
