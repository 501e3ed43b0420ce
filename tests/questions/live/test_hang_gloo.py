"""Deliberate hangs of a real torch job on Gloo, and a healthy one, seen by `rankscope hang` and `rankscope top`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpis import ROOT, job_environment
from questions.live.jobs import HERE, command, going, kill_behind_the_launchers_back, until_hang, until_written

TORCHRUN = ROOT / ".envs" / "torch" / "bin" / "torchrun"
AT = 7  # three steps of two, and the one that goes wrong

pytestmark = [
    pytest.mark.skipif(not TORCHRUN.exists(), reason=".envs/torch is missing: run make envs"),
    pytest.mark.timeout(300),
]


@contextmanager
def started(how: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "rankscope", "run", "--out", folder / "run", TORCHRUN, "--nproc-per-node", "4"]
    environment = {**job_environment(TORCHRUN.parent, {}), "PYTHONPATH": str(ROOT / "src")}
    with going([*map(str, words), str(HERE / "hangs_gloo.py"), how, str(folder)], environment) as job:
        assert job.stdout is not None
        for line in job.stdout:
            if line.startswith("going"):
                break
        yield job


CASES = {
    # how: kind, operation, sequence, guilty, waiting
    "skips": ("skipped_or_order", "all_reduce", AT, "2", "0-1, 3"),
    "swaps": ("skipped_or_order", "all_reduce", AT, "2", "0-1, 3"),
    "sleeps": ("not_arrived", "all_reduce", AT, "3", "0-2"),
}


@pytest.mark.parametrize("how", ["skips", "sleeps", pytest.param("swaps", marks=pytest.mark.slow)])
def test_a_deliberate_hang(how: str, tmp_path: Path) -> None:
    with started(how, tmp_path) as job:
        found = until_hang(job, tmp_path / "run")
    told = found.verdict
    assert tuple(told[name] for name in ("kind", "operation", "sequence", "guilty", "waiting")) == CASES[how], found.out
    assert told["group"].startswith("default_pg")


def test_a_dead_rank(tmp_path: Path) -> None:
    """Gloo ends the others at once: the answer is about a job that is over."""
    with started("dies", tmp_path) as job:
        pid = int(until_written(tmp_path / "pid"))
        kill_behind_the_launchers_back(job, pid, tmp_path / "run")
        found = until_hang(job, tmp_path / "run", patience_s=100)
    told = found.verdict
    assert told["kind"] in ("died", "dead"), found.out
    assert (told["operation"], told["sequence"], told["guilty"]) == ("all_reduce", AT, "1")


@pytest.mark.slow
def test_a_rank_of_ddp_stuck_in_data_loading(tmp_path: Path) -> None:
    with started("ddp_sleeps", tmp_path) as job:
        found = until_hang(job, tmp_path / "run")
        frame = command("top", tmp_path / "run", "--once", "--interval", "0.5")
    told = found.verdict
    assert (told["kind"], told["guilty"], told["waiting"]) == ("not_arrived", "3", "0-2"), found.out
    assert "all_reduce" in told["operation"] or "allreduce" in told["operation"]
    assert re.search(r"Steps +3 done, 0 a second", frame.out), frame.out


@pytest.mark.slow
def test_a_healthy_job(tmp_path: Path) -> None:
    with started("ddp", tmp_path) as job:
        answers = [
            command("hang", tmp_path / "run", "--format", "json", "--wait", wait, "--patience", "0.3")
            for wait in ("0.1", "0.3", "1")
        ]
        frame = command("top", tmp_path / "run", "--once", "--interval", "1.5")
        assert job.poll() is None
    assert [(answer.code, answer.verdict["kind"]) for answer in answers] == [(0, "no_hang")] * 3
    assert re.search(r"Steps +\d+( to \d+)? done, [\d.]+ a second", frame.out), frame.out
    assert re.search(r"Of a step +\w+ \d+ %", frame.out), frame.out
