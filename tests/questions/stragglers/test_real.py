"""Real DDP jobs on Gloo: their steps add up, and what is wrong with which rank is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from mpis import ROOT
from questions.stragglers.judging import first_cause
from questions.stragglers.schedule import windows_of
from rankscope.questions.steps.data import steps_of
from rankscope.questions.steps.phases import phase_ranks
from rankscope.questions.steps.steps import step_parts
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run

PYTHON = ROOT / ".envs" / "torch" / "bin" / "python"
SEED, RANKS, CASES, STEPS = 5, 4, 6, 40


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunTables, str]:
    """One recorded job through all its cases, and what it printed."""
    if not PYTHON.exists():
        pytest.skip(".envs/torch is missing: run make envs")
    folder = tmp_path_factory.mktemp("ddp") / "run"
    said = {"CASE_SEED": SEED, "CASE_COUNT": CASES, "CASE_STEPS": STEPS, "OMP_NUM_THREADS": 1}
    environment = {**os.environ, **{name: str(value) for name, value in said.items()}, "PYTHONPATH": str(ROOT / "src")}
    record = [sys.executable, "-m", "rankscope", "run", "--out", str(folder)]
    launch = [str(PYTHON), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    program = str(ROOT / "tests" / "questions" / "stragglers" / "train_ddp.py")
    done = subprocess.run([*record, *launch, program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return open_run(folder, read_rank_file), done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_parts_of_the_step_add_up_to_what_the_program_measures(job: tuple[RunTables, str]) -> None:
    run, printed = job
    measured_s = float(re.search(r"steps in ([\d.]+) s", printed).group(1))  # type: ignore[union-attr]
    for one in steps_of(run).ranks:
        assert len(one.number) == CASES * STEPS
        assert one.length_ns.sum() / 1e9 == pytest.approx(measured_s, rel=0.03)
    table = step_parts(run)
    at = [column.name for column in table.columns].index("sum_share")
    assert all(row[at] == pytest.approx(1.0, abs=0.03) for row in table.rows)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_phases_add_up(job: tuple[RunTables, str]) -> None:
    table = phase_ranks(job[0])
    assert len(table.rows) == RANKS
    for row in table.rows:
        assert sum(int(str(cell or 0)) for cell in row[2:]) == row[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rank_and_cause_are_found(job: tuple[RunTables, str]) -> None:
    found = steps_of(job[0])
    caused = [window for window in windows_of(SEED, RANKS, CASES, STEPS) if window.cause]
    told = [first_cause(found, window) for window in caused]
    right = [
        one is not None and (one.late.rank, one.name) == window.told for one, window in zip(told, caused, strict=True)
    ]
    assert len(caused) >= 4
    assert sum(right) >= len(caused) - 1  # other programs may hold up a rank of ours meanwhile
