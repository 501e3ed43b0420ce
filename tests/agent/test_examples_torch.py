"""The GPU examples run without a GPU, too, where torch is there: two ranks over Gloo, recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".envs" / "torch" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=".envs/torch is missing: make envs")


def ran(tmp_path: Path, *arguments: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "rankscope", "run", "--out", str(tmp_path / "run"), str(PYTHON), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "run").glob("ranks/*/*.rank"))) >= 3, "the starter and two ranks"
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.slow
@pytest.mark.parametrize("style", ["ddp", "data-parallel"])
def test_alexnet(tmp_path: Path, style: str) -> None:
    sizes = ["--batch", "2", "--iterations", "2", "--classes", "10", "--ranks", "2"]
    (told,) = ran(tmp_path, "examples/train_alexnet.py", "--style", style, *sizes)
    assert (told["ranks"], told["batch"], told["iterations"], told["style"]) == (2, 2, 2, style)


@pytest.mark.slow
def test_two_passes_of_ddp(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    told = ran(tmp_path, "examples/train_ddp_003.py", "--batches", "2", "--profiler", str(counts))
    assert sorted((row["rank"], row["pass"]) for row in told) == [
        (0, "measured"), (0, "warmup"), (1, "measured"), (1, "warmup")
    ]  # fmt: skip
    for rank in (0, 1):
        rows = {row["name"]: row["calls"] for row in json.loads(counts.with_suffix(f".{rank}.json").read_text())}
        assert rows["c10d::allreduce_"] == 1 + 3 * 3, "one in the first batch, then three buckets"
