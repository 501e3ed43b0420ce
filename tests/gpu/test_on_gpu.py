"""The recorder on a real GPU: what the programs did is what the rank files say, and recording stays within its bars."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT

SKIPPED = 77  # what the scripts say where there is no GPU


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("script", "reader"),
    [
        ("gpu_check", "gpu_verify.py"),
        pytest.param("gpu_neighbours", "gpu_neighbours_verify.py", marks=pytest.mark.slow),
        pytest.param("gpu_cost", "gpu_cost_report.py", marks=pytest.mark.slow),
    ],
)
def test_on_a_gpu(script: str, reader: str, tmp_path: Path) -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no NVIDIA driver on this machine")
    environment = {**os.environ, "OUT": str(tmp_path), "PYTHON": os.environ.get("GPU_PYTHON", sys.executable)}
    command = [str(ROOT / "scripts" / f"{script}.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    command = [sys.executable, str(ROOT / "scripts" / reader), str(tmp_path / f"{script}.tar.gz")]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
