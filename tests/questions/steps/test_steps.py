"""Steps, their parts and their warm-up, with numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rankscope.model.tables import Table
from rankscope.questions.steps.data import steps_of, warmup_steps
from rankscope.questions.steps.steps import step_parts, steps
from rankscope.rank_file import Part
from runs.step_runs import Parts, opened, rank
from runs.step_runs import steps as made_steps

MS = 1e6


def rows_of(table: Table) -> list[dict[str, object]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def ten(forward: float) -> list[Parts]:
    """Two steps of warm-up and eight whose backward is 1 to 8 ms."""
    slow = [{Part.DATA: 1, Part.FORWARD: 90, Part.BACKWARD: 9}] * 2
    return [*slow, *({Part.DATA: 1, Part.FORWARD: forward, Part.BACKWARD: float(at)} for at in range(1, 9))]


def two_ranks(tmp_path: Path) -> Table:
    first, second = rank(0, 2), rank(1, 2)
    first.steps(made_steps(ten(2), [{}] * 2 + [{Part.BACKWARD: 0.5}] * 8))
    second.steps(made_steps(ten(4)))
    run = opened(tmp_path, first, second)
    assert steps_of(run).left_out == 2
    return steps(run)


def test_metrics_are_those_of_the_steady_steps(tmp_path: Path) -> None:
    rows = rows_of(two_ranks(tmp_path))
    own = [row for row in rows if row["rank"] == "0"]
    step = next(row for row in own if row["name"] == "step")
    lengths = np.arange(1, 9) + 3.0  # ms: data 1, forward 2, backward 1 … 8
    assert step["steps"] == 8
    assert (step["min_ns"], step["max_ns"], step["mean_ns"]) == (4 * MS, 11 * MS, 7.5 * MS)
    assert step["variance_ms2"] == pytest.approx(np.var(lengths, ddof=1)) == pytest.approx(6.0)
    assert step["stdev_ns"] == pytest.approx(6.0**0.5 * MS)
    assert step["p50_ns"] == pytest.approx(7.5 * MS)
    assert step["p90_ns"] == pytest.approx(10.3 * MS)
    backward = next(row for row in own if row["name"] == "backward")
    assert backward["mean_ns"] == pytest.approx(4.0 * MS)  # 4.5 less the 0.5 in which it was blocked
    assert backward["share"] == pytest.approx(4.0 / 7.5)
    exposed = next(row for row in own if row["name"] == "exposed communication")
    assert exposed["mean_ns"] == pytest.approx(0.5 * MS)
    pooled = next(row for row in rows if row["rank"] == "all" and row["name"] == "forward")
    assert (pooled["steps"], pooled["mean_ns"]) == (16, 3 * MS)


def test_the_table_tells_rate_and_warm_up(tmp_path: Path) -> None:
    notes = two_ranks(tmp_path).notes
    assert notes[0] == "105.3 steps/s, by the mean step of the slowest rank."  # 9.5 ms
    assert notes[1] == "Steady steps only, without 2 steps of warm-up."


def test_parts_add_up_to_the_step(tmp_path: Path) -> None:
    made = rank(0, 1)
    parts = {part: 1.0 + part for part in Part}
    blocked = {Part.BACKWARD: 2.0, Part.COMMUNICATION: 5.5}
    made.steps(made_steps([parts] * 12, [blocked] * 12))
    (row,) = rows_of(step_parts(opened(tmp_path, made)))
    assert row["sum_share"] == pytest.approx(1.0)
    assert (row["exposed_ns"], row["backward_ns"]) == (7.5 * MS, 2 * MS)
    assert row["other_ns"] == pytest.approx(8.5 * MS)  # its own 8 and 0.5 of communication that did not block
    assert row["compute_ns"] == 9 * MS  # of programs that were compiled
    assert row["step_ns"] == 45 * MS


def test_overwritten_steps_are_told(tmp_path: Path) -> None:
    made = rank(0, 1)
    made.steps(made_steps([{Part.FORWARD: 1.0}] * 40), capacity=16)
    table = step_parts(opened(tmp_path, made))
    assert table.rows[0][2] == 16
    assert any("the oldest 24 steps were overwritten" in note for note in table.notes)


def test_a_run_without_steps_has_empty_tables(tmp_path: Path) -> None:
    run = opened(tmp_path, rank(0, 1))
    assert steps(run).rows == step_parts(run).rows == []


@pytest.mark.parametrize(
    ("lengths", "flagged", "expected"),
    [
        ([10.0] * 20, 0, 0),
        ([10.0] * 20, 2, 2),
        ([90.0, 50.0, 30.0, *([10.0] * 20)], 0, 3),
        ([90.0, *([10.0] * 9), 80.0, *([10.0] * 9)], 0, 1),  # a later stall is no warm-up
        ([10.0, 10.0, 10.0], 2, 2),
        ([30.0, 30.0], 2, 1),  # something must be left
        ([float(length) for length in range(40, 0, -1)], 0, 0),  # never steady: no later level
    ],
)
def test_warm_up_is_what_comes_before_the_steady_level(lengths: list[float], flagged: int, expected: int) -> None:
    assert warmup_steps(np.array(lengths), np.arange(len(lengths)) < flagged) == expected
