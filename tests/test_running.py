"""How the tests themselves are run: by whom, and beside which others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT

BESIDE_EACH_OTHER = """
import time
from pathlib import Path
import pytest

INSIDE = Path({folder!r})

@pytest.mark.parametrize("number", range({beside}))
def test_beside_others(number):
    (INSIDE / str(number)).touch()
    time.sleep(0.05)
    (INSIDE / str(number)).unlink()
"""
ALONE = """
@pytest.mark.alone
@pytest.mark.parametrize("number", range(3))
def test_alone(number):
    assert list(INSIDE.iterdir()) == []
    (INSIDE / "alone").touch()
    time.sleep(0.1)
    assert [path.name for path in INSIDE.iterdir()] == ["alone"]
    (INSIDE / "alone").unlink()
"""


def pytest_of_its_own(
    *arguments: str | Path, shell: str = "", turns: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *map(str, arguments)]
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    if turns:
        outer["TESTS_TURNS"] = str(turns)
    words = ["sh", "-c", f'{shell}"$@"', "sh", *command]
    return subprocess.run(words, cwd=ROOT, env=outer, capture_output=True, text=True, check=False)


def test_programs_that_tests_start_can_be_interrupted_where_the_caller_ignores_it() -> None:
    """A shell ignores SIGINT for what it starts in the background."""
    killed = "tests/record/test_run.py::test_killed_by_signal"
    done = pytest_of_its_own(killed, "-k", "SIGINT or 2", shell="trap '' INT; exec ")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_nothing_else_runs_beside_a_test_that_must_be_alone(tmp_path: Path) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is missing: run make envs")
    inside = tmp_path / "inside"
    inside.mkdir()
    for name, beside in (("test_a.py", 40), ("test_b.py", 40)):
        body = BESIDE_EACH_OTHER.format(folder=str(inside), beside=beside) + (ALONE if name == "test_a.py" else "")
        (tmp_path / name).write_text(body.replace("str(number)", f'f"{name}-{{number}}"'))
    options = ["-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "conftest", "-n", "2"]
    done = pytest_of_its_own(*options, "--dist", "loadgroup", tmp_path, turns=tmp_path / "turns")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "83 passed" in done.stdout
