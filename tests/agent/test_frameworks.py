"""Frameworks on torch, in .envs/frameworks: trainings of benchmarks/frameworks.py, held against their own counts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import rankscope as rs
from mpis import ROOT

BIN = ROOT / ".envs" / "frameworks" / "bin"
PROGRAMS = ROOT / "benchmarks" / "framework_programs"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "torchrun").exists(), reason=".envs/frameworks is missing: make env-frameworks"),
]
STEPS = "SELECT rank, count(*) FROM steps JOIN ranks USING (process) WHERE role = 'rank' GROUP BY rank ORDER BY rank"
COLLECTIVES = """
    SELECT name, sum(calls)::BIGINT FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'gloo' AND kind = 'progress' GROUP BY name"""
PARTS = """
    SELECT sum(forward_ns), sum(backward_ns), sum(optimizer_ns), sum(communication_ns + other_ns)
    FROM steps JOIN ranks USING (process) WHERE role = 'rank'"""


def recorded(rankscope: str, folder: Path, program: str, *words: str, launcher: bool = True) -> Any:
    """The run, beside whose folder `truth` has what each rank counted itself; its observer is compiled beforehand."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RANKSCOPE_")}
    environment = {
        **kept, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "100000", "DS_ACCELERATOR": "cpu",
        "PYTHONPATH": str(PROGRAMS), "PATH": f"{BIN}:{os.environ['PATH']}",
    }  # fmt: skip
    prepare = [rankscope, "doctor", "--prepare", "--python", str(BIN / "python")]
    subprocess.run(prepare, env=environment, capture_output=True, timeout=200, check=True)
    (folder / "truth").mkdir()
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if launcher else []
    job = [str(BIN / "python"), *torchrun, str(PROGRAMS / program), *words, f"--truth={folder / 'truth'}"]
    command = [rankscope, "run", "--out", "run", *job]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return rs.open(folder / "run")


def counted(folder: Path) -> dict[str, int]:
    """Collectives by name, of both ranks, as torch's flight recorder has seen them."""
    known = [json.loads((folder / "truth" / f"{rank}.json").read_text())["collectives"] for rank in range(2)]
    return {name: known[0][name] + known[1][name] for name in known[0]}


def test_a_step_of_deepspeed_is_its_engines(rankscope: str, tmp_path: Path) -> None:
    """ZeRO 3 steps the optimizer once for each group of parameters, and communicates in backward and step."""
    run = recorded(rankscope, tmp_path, "deepspeed_training.py", "zero3", "--steps=8", "--accumulate=2")
    assert run.query(STEPS).rows == [(0, 8), (1, 8)]
    assert dict(run.query(COLLECTIVES).rows) == counted(tmp_path)
    forward, backward, optimizer, rest = run.query(PARTS).rows[0]
    assert min(forward, backward, optimizer) > 0
    assert rest < 0.5 * (forward + backward + optimizer)  # without the engine's ranges twice as much as these


def test_actors_that_ray_ends_have_not_failed(rankscope: str, tmp_path: Path) -> None:
    run = recorded(rankscope, tmp_path, "ray_training.py", "actors", "--steps=8", launcher=False)
    assert run.query(STEPS).rows == [(0, 8), (1, 8)]
    assert dict(run.query(COLLECTIVES).rows) == counted(tmp_path)
    rules = [row[-1] for row in run.table("findings").rows]
    assert "failed_ranks" not in rules
    assert not any("abnormally" in text for text in run.table("coverage").warnings)


@pytest.mark.parametrize("program", ["accelerate_training.py", "lightning_training.py"])
def test_accumulated_steps(rankscope: str, tmp_path: Path, program: str) -> None:
    by_torchrun = not program.startswith("lightning")
    run = recorded(rankscope, tmp_path, program, "ddp", "--steps=6", "--accumulate=3", launcher=by_torchrun)
    assert run.query(STEPS).rows == [(0, 6), (1, 6)]
    assert dict(run.query(COLLECTIVES).rows) == counted(tmp_path)
    assert run.query("SELECT DISTINCT backwards, accumulated FROM steps WHERE number > 1").rows == [(3, True)]
