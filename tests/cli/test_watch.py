"""`rankscope watch`: says what happens to a job, and calls commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.cli import watch
from rankscope.rank_file import Part
from runs.small_run import write_run
from runs.step_runs import rank
from runs.step_runs import steps as made_steps


def test_a_slow_down_is_told_once_and_the_command_gets_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = rank(0, 1)
    made.steps(made_steps([{Part.FORWARD: 10.0 + 0.01 * (at % 7)} for at in range(100)] + [{Part.FORWARD: 15.0}] * 60))
    write_run(tmp_path, made)
    command = 'echo "$RANKSCOPE_TROUBLE $RANKSCOPE_STEP $RANKSCOPE_WHAT"'
    assert watch.run([str(tmp_path), "--on-slow", command, "--every", "1", "--once"]) == 0
    told, called = capfd.readouterr().out.splitlines()[:2]
    assert "slow: Steps take 15 ms instead of 10 ms since step 101 (+50 %): forward of" in told
    assert called == "slow 101 forward"
