"""`make studies`: all that were asked for are run, and what each left is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT
from studies.studying import ENVIRONMENT

TOOL = ROOT / "tools" / "run_studies.py"


def tool(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOOL, *words], env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, check=False
    )


def test_unknown_studies_are_refused(tmp_path: Path) -> None:
    done = tool(tmp_path, "smoke")
    assert done.returncode == 2 and "smoke: choose of" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_of_them(tmp_path: Path) -> None:
    if not (ROOT / ".envs" / "torch" / "bin" / "python").exists():
        pytest.skip(".envs/torch is missing: run make envs")
    done = tool(tmp_path, "--scale", "1,2", "startup")
    assert done.returncode == 0, done.stdout + done.stderr
    line, together = done.stdout.splitlines()
    assert line.startswith("startup ") and " done" in line and together.startswith("together")
    document = tmp_path / line.rpartition(": ")[2]
    assert document.read_text().startswith("# Start-up") and document.with_suffix(".html").exists()
