"""The task prolog that puts our variables into the tasks of those who ask for it, run as Slurm runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mpis import ROOT
from programs import recorded

PROLOG = ROOT / "examples" / "slurm" / "task_prolog.sh"


def prolog(rankscope: str, folder: Path, **variables: str) -> dict[str, str]:
    """What it adds to the environment of a task."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RANKSCOPE_")}
    environment = {**kept, "PATH": f"{Path(rankscope).parent}:{os.environ['PATH']}", **variables}
    done = subprocess.run([PROLOG], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    lines = [line.removeprefix("export ") for line in done.stdout.splitlines()]
    return dict(line.split("=", 1) for line in lines)


def test_who_does_not_ask_gets_nothing(rankscope: str, tmp_path: Path) -> None:
    assert prolog(rankscope, tmp_path) == {}
    assert prolog("/nowhere/rankscope", tmp_path, RANKSCOPE_RECORD="1", PATH="/usr/bin:/bin") == {}
    assert list(tmp_path.iterdir()) == []


def test_the_tasks_of_who_asks_are_ranks(rankscope: str, tmp_path: Path) -> None:
    for task in range(2):
        slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(task), "SLURM_STEP_NUM_TASKS": "2"}
        slurm |= {"SLURM_LOCALID": str(task), "SLURM_SUBMIT_DIR": str(tmp_path)}
        added = prolog(rankscope, tmp_path, RANKSCOPE_RECORD="1", **slurm)
        code = "import rankscope; rankscope.step(); raise SystemExit(4)"
        environment = {**os.environ, **slurm, **added}
        assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 4
    [folder] = [path for path in (tmp_path / "rankscope-runs").iterdir() if path.name == "job-7.0"]
    found = [recorded.read(path).facts for path in recorded.rank_files(folder)]
    assert sorted(facts.rank for facts in found if facts.ended_steps and facts.rank is not None) == [0, 1]
