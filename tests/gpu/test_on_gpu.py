"""The recorder on a real GPU: what the programs did is what the rank files say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT

SKIPPED = 77  # what gpu_check.sh says where there is no GPU


@pytest.mark.timeout(900)
def test_known_work_is_recorded_exactly(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no NVIDIA driver on this machine")
    environment = {**os.environ, "OUT": str(tmp_path), "PYTHON": os.environ.get("GPU_PYTHON", sys.executable)}
    done = subprocess.run([ROOT / "scripts/gpu_check.sh"], env=environment, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    command = [sys.executable, ROOT / "scripts/gpu_verify.py", tmp_path / "gpu_check.tar.gz"]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
