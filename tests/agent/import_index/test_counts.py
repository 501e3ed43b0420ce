"""How many questions to the file system `import torch` is spared. Counts, not times."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.import_index.environments import AGENT_START, Environment
from mpis import ROOT
from slow_file_system import slow_file_system

PYTHON = ROOT / ".envs" / "torch" / "bin" / "python"
SHARES = {"total": 6, "openat": 5, "newfstatat": 20}


def job(index: Path | None) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("RANKSCOPE", "PYTHONPATH"))}
    return {**plain, "PYTHONPATH": str(AGENT_START), "RANKSCOPE_INDEX": str(index)} if index else plain


def counted(python: Path, index: Path | None, log: Path) -> dict[str, int]:
    command = ["strace", "-f", "-c", "-o", str(log), str(python), "-c", "import torch"]
    subprocess.run(command, env=job(index), cwd=log.parent, check=True)
    rows = [line.split() for line in log.read_text().splitlines()]
    return {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit()}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--statement", "import torch"], marks=pytest.mark.slow, id="of the statement"),
        pytest.param([], id="of everything"),
    ],
)
def test_calls(tmp_path: Path, options: list[str]) -> None:
    if not PYTHON.exists():
        pytest.skip(".envs/torch is missing: run make envs")
    if not shutil.which("strace"):
        pytest.skip("strace is missing")
    python = PYTHON.parents[1].resolve() / "bin" / "python"  # the fewest links: without us it has the fewest calls then
    environment = Environment(python, tmp_path / "torch.rsindex")
    environment.build(*options)
    without, used = (counted(python, index, tmp_path / "log") for index in (None, environment.index))
    least = 1.0 if options else 0.9  # of everything: the order is a guess, and a little more is read
    missed = {name for name, share in SHARES.items() if used[name] * share * least > without[name]}
    assert missed == set(), (used, without)


@pytest.mark.slow
def test_operations_of_a_file_server_without_client_caches(tmp_path: Path) -> None:
    if not PYTHON.exists():
        pytest.skip(".envs/torch is missing: run make envs")
    with slow_file_system(PYTHON.parents[1].resolve(), cache="none") as mount:
        environment = Environment(mount.path / "bin" / "python", tmp_path / "torch.rsindex")
        environment.build("--statement", "import torch")
        taken = []
        for index in (None, environment.index):
            before = mount.counters()["metadata"]
            command = [str(environment.python), "-c", "import torch"]
            subprocess.run(command, env=job(index), cwd=tmp_path, check=True)
            taken.append(mount.counters()["metadata"] - before)
    assert taken[1] * 20 <= taken[0], taken
