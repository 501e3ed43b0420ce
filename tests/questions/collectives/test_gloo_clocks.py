"""A real job on Gloo with one late rank, read again with clocks that disagree: waiting and moving stay the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpis import ROOT, job_environment
from programs.jobs import PROGRAMS
from programs.other_clocks import OtherClock, with_clocks
from rankscope.questions.collectives.wait_and_transfer import Collectives, collectives_of
from rankscope.questions.collectives.waiting import sums
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run

BINARIES = ROOT / ".envs" / "torch" / "bin"
RANKS, LATE_RANK, LATE_MS, STEPS = 3, 1, 8, 100
SECOND = 1_000_000_000


def analysed(folder: Path) -> Collectives:
    return collectives_of(open_run(folder, read_rank_file))


def total_ns(known: Collectives, name: str) -> float:
    return float(sum(getattr(split, name).sum() for split in known.splits))


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_other_clocks_change_nothing(tmp_path: Path) -> None:
    if not (BINARIES / "torchrun").exists():
        pytest.skip(".envs/torch is missing: run make envs")
    environment = {**job_environment(BINARIES, {}), "PYTHONPATH": str(ROOT / "src")}
    record = [sys.executable, "-m", "rankscope", "run", "--out", str(tmp_path / "run"), str(BINARIES / "torchrun")]
    launch = ["--standalone", "--nproc-per-node", str(RANKS), str(PROGRAMS / "late_gloo.py")]
    told = [str(value) for value in (STEPS, LATE_RANK, LATE_MS, 1000)]
    done = subprocess.run([*record, *launch, *told], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = analysed(tmp_path / "run")
    assert int(np.argmax(sums(expected).caused_ns)) == LATE_RANK
    assert expected.log.collectives >= STEPS
    random = np.random.default_rng(3)
    for case in range(8):
        clocks = {
            rank: OtherClock(f"other{rank}", int(random.uniform(-2, 2) * SECOND), float(random.uniform(-50e-6, 50e-6)))
            for rank in (1, 2)
        }
        found = analysed(with_clocks(tmp_path / "run", tmp_path / str(case), clocks))
        for name in ("wait_ns", "transfer_ns"):
            assert total_ns(found, name) == pytest.approx(total_ns(expected, name), rel=0.1), name
        assert int(np.argmax(sums(found).caused_ns)) == LATE_RANK
