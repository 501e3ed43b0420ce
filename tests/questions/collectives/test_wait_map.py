"""Who waits for whom in which step, of collectives whose times are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankscope.model.tables import Column, Table, Unit
from rankscope.questions.collectives.wait_map import wait_map, waited_until
from rankscope.questions.collectives.waiting import wait_matrix
from rankscope.questions.condense import condensed, lanes
from rankscope.questions.selection import Selection
from rankscope.questions.stragglers.lateness import peers_medians
from rankscope.rank_file import Part
from rankscope.store.run import RunTables
from runs.small_run import MILLI
from runs.step_runs import log, opened, rank, steps

WORK = {0: (10.0, 40.0), 1: (30.0, 20.0), 2: (20.0, 30.0)}  # ms before the collective of odd and of even steps
STEP_MS, LEFT_MS = 60.0, 50.0


def three_ranks(folder: Path, with_steps: bool = True) -> RunTables:
    """Steps of 60 ms: each rank works, enters an all-reduce, and all leave it 50 ms after the beginning."""
    made = []
    for number, work in WORK.items():
        one = rank(number, 3)
        if with_steps:
            one.steps(steps([{Part.FORWARD: STEP_MS}] * 6))
        at = [1000 + STEP_MS * step for step in range(6)]
        log(one, [("MPI_Allreduce", 8, begin + work[step % 2], begin + LEFT_MS) for step, begin in enumerate(at)])
        made.append(one)
    return opened(folder, *made)


def test_waiting_by_rank_and_step(tmp_path: Path) -> None:
    table = wait_map(three_ranks(tmp_path))
    assert [column.name for column in table.columns] == ["rank", *(f"step_{at}_ns" for at in range(1, 7))]
    odd, even = 30, 40  # when the last one comes
    for number, (first, second) in WORK.items():
        expected = [round((odd - first) * MILLI), round((even - second) * MILLI)] * 3
        assert table.rows[number] == (number, *expected)


def test_waiting_of_chosen_ranks(tmp_path: Path) -> None:
    run = three_ranks(tmp_path)
    assert [row[0] for row in wait_map(run, Selection(frozenset((1, 2)))).rows] == [1, 2]
    assert [row[0] for row in wait_matrix(run, Selection(frozenset((2,)))).rows] == [2]


def test_who_waits_for_whom(tmp_path: Path) -> None:
    """In odd steps all wait for rank 1, in even ones for rank 0."""
    table = wait_matrix(three_ranks(tmp_path))
    in_ms = [[round(float(str(cell)) / MILLI) for cell in row[1:]] for row in table.rows]
    assert in_ms == [[0, 60, 0], [60, 0, 0], [30, 30, 0]]


def test_without_steps_the_time_is_cut_into_slices(tmp_path: Path) -> None:
    """The shares of a rank, times the length of a slice, are its waiting."""
    run = three_ranks(tmp_path, with_steps=False)
    table = wait_map(run)
    assert table.title == "Waiting by rank and time"
    span_ms = (1300 + 40) - 1010  # from the first entering to the last
    for row, (first, second) in zip(table.rows, WORK.values(), strict=True):
        waited = sum(float(str(cell or 0)) for cell in row[1:]) * span_ms / len(row[1:])
        assert abs(waited - 3 * (30 - first) - 3 * (40 - second)) < 0.1


def test_waiting_may_reach_over_slices() -> None:
    entered, waited = (
        np.array([[12.0, 1.0], [2.0, 20.0]]),
        np.array([[5.0, 0.0], [6.0, 5.0]]),
    )
    until = waited_until(np.array([0.0, 5, 10, 15, 20, 30]), entered, waited)
    assert until.T.tolist() == [[0, 3, 6, 9, 11, 11], [0, 0, 0, 0, 0, 5]]


def test_ranks_share_rows_where_they_are_many() -> None:
    few = lanes(range(4), ["a", "a", "b", "b"], most=4)
    assert (few.kind, few.labels, few.of.tolist()) == ("rank", [0, 1, 2, 3], [0, 1, 2, 3])
    hosts = lanes(range(6), ["a", "b", "b", "a", "c", "c"], most=3)
    assert (hosts.kind, hosts.labels, hosts.of.tolist()) == ("host", ["a", "b", "c"], [0, 1, 1, 0, 2, 2])
    some = lanes(range(6), ["a", "b", "b", "a", "c", "c"], most=2)
    assert (some.kind, some.labels, some.of.tolist()) == ("hosts", ["a … b", "c … c"], [0, 0, 0, 0, 1, 1])
    alone = lanes(range(5), ["a"] * 5, most=2)
    assert (alone.kind, alone.labels, alone.sizes.tolist()) == ("ranks", ["0 … 2", "3 … 4"], [3, 2])


def test_condensed_by_host_percentile_and_outlier() -> None:
    columns = (Column("rank", Unit.NAME, "Rank"), Column("time_ns", Unit.NS, "Time"), Column("note", Unit.NAME, "Note"))
    rows = [(number, None if number == 3 else float(number), "") for number in range(10)] + [(10, 500.0, "")]
    table = Table("times", "Times", columns, list(rows))
    whole = condensed(table, {}, "time_ns", most=11)
    assert (whole.drawn, whole.label, whole.outliers) == (table, "rank", None)
    few = condensed(table, {number: f"h{number % 2}" for number in range(11)}, "time_ns", outlying=[10, 4], most=5)
    assert few.drawn.rows == [("h0", 6, (0 + 2 + 4 + 6 + 8 + 500) / 6), ("h1", 5, (1 + 5 + 7 + 9) / 4)]
    assert few.outliers is not None
    assert few.outliers.rows == [(10, 500.0, ""), (4, 4.0, "")]
    assert few.median == 5.5
    percentiles = dict(few.tables[2].rows)
    assert (percentiles["p0"], percentiles["p50"], percentiles["p100"]) == (0.0, 5.5, 500.0)


def test_medians_of_peers_are_those_of_the_others() -> None:
    random = np.random.default_rng(7)
    for ranks in (2, 3, 4, 7, 10):
        values = random.integers(0, 6, (ranks, 30)).astype(float)
        expected = [np.median(np.delete(values, place, axis=0), axis=0) for place in range(ranks)]
        assert (peers_medians(values) == np.stack(expected)).all()
