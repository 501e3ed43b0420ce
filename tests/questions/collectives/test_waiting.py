"""Waiting and moving, with numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.cli.report import run as report
from rankscope.model.tables import Table
from rankscope.questions.collectives.clocks import clocks
from rankscope.questions.collectives.collectives import collectives
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.collectives.wait_map import waiting_parts
from rankscope.questions.collectives.waiting import waiting
from rankscope.questions.selection import Selection
from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.data import Steps
from rankscope.questions.steps.waits import times_of
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run
from runs.simulated import MICRO, Skew, Truth, train, write
from runs.small_run import MILLI, START

ONE_HOST = Skew([0, 0, 0], [0], [0])


def made(
    folder: Path, name: str, enter_ms: list[float], end_ms: list[float], root: int = -1, size: int = 1000
) -> RunTables:
    """One collective of three ranks of one host."""
    truth = Truth(np.array([enter_ms]) * MILLI, np.array([end_ms]) * MILLI, [name], np.array([size]), np.array([root]))
    return open_run(write(folder / "run", truth, ONE_HOST), read_rank_file)


def column(table: Table, name: str) -> list[object]:
    at = [one.name for one in table.columns].index(name)
    return [row[at] for row in table.rows]


@pytest.mark.parametrize(
    ("name", "root", "waits", "moves", "causes"),
    [
        # ranks enter at 0, 40 and 10 ms and leave at 50, 52 and 51 ms
        # all wait for all: the last rank to arrive stays 12 ms, and so long moving takes, unless one leaves sooner
        ("MPI_Allreduce", -1, [40, 0, 30], [10, 12, 11], [0, 70, 0]),
        ("MPI_Barrier", -1, [40, 0, 30], [10, 12, 11], [0, 70, 0]),
        ("MPI_Alltoallv", -1, [40, 0, 30], [10, 12, 11], [0, 70, 0]),
        ("MPI_Bcast", 1, [40, 0, 30], [10, 12, 11], [0, 70, 0]),
        ("MPI_Bcast", 2, [10, 0, 0], [40, 12, 41], [0, 0, 10]),
        ("MPI_Scatter", 0, [0, 0, 0], [50, 12, 41], [0, 0, 0]),
        ("MPI_Reduce", 0, [40, 0, 0], [10, 12, 41], [0, 40, 0]),
        ("MPI_Gather", 1, [0, 0, 0], [50, 12, 41], [0, 0, 0]),
        ("MPI_Scan", -1, [0, 0, 30], [50, 12, 11], [0, 30, 0]),
        ("MPI_Exscan", -1, [0, 0, 30], [50, 12, 11], [0, 30, 0]),
    ],
)
def test_each_operation_waits_for_whom_it_must(
    name: str, root: int, waits: list[int], moves: list[int], causes: list[int], tmp_path: Path
) -> None:
    run = made(tmp_path, name, [0, 40, 10], [50, 52, 51], root)
    table = waiting(run)
    by_rank = {rank: at for at, rank in enumerate(column(table, "rank"))}
    for column_name, expected in (("wait_ns", waits), ("transfer_ns", moves), ("caused_ns", causes)):
        values = column(table, column_name)
        assert [values[by_rank[rank]] for rank in range(3)] == [one * MILLI for one in expected], column_name
    leaving = [stay - wait - move for stay, wait, move in zip((50, 12, 41), waits, moves, strict=True)]
    assert [column(table, "leaving_ns")[by_rank[rank]] for rank in range(3)] == [one * MILLI for one in leaving]
    assert set(column(table, "wait_error_ns")) == {0.0}


def test_wait_transfer_and_exit_skew_are_the_stay(tmp_path: Path) -> None:
    """The last to come stays 12 ms; rank 0 leaves 8 ms after it, rank 2 at once: nothing is ever less than 0."""
    split = collectives_of(made(tmp_path, "MPI_Allreduce", [0, 40, 10], [60, 52, 40])).splits[0]
    assert split.wait_ns.tolist() == [[40 * MILLI, 0, 30 * MILLI]]
    assert split.transfer_ns.tolist() == [[12 * MILLI, 12 * MILLI, 0]]
    assert split.leaving_ns.tolist() == [[8 * MILLI, 0, 0]]


def test_a_rank_that_leaves_early_waited_no_longer_than_it_stayed(tmp_path: Path) -> None:
    split = collectives_of(made(tmp_path, "MPI_Alltoallv", [0, 40, 10], [20, 52, 51])).splits[0]
    assert split.wait_ns.tolist() == [[20 * MILLI, 0, 30 * MILLI]] and split.transfer_ns[0, 0] == 0


def test_bandwidth_without_the_waiting(tmp_path: Path) -> None:
    """All-reduce of 1,000 bytes by 3: moving takes the last rank to arrive 12 ms, the whole 34⅓ ms on average."""
    table = collectives(made(tmp_path, "MPI_Allreduce", [0, 40, 10], [50, 52, 51]))
    (row,) = table.rows
    told = dict(zip([one.name for one in table.columns], row, strict=True))
    assert told["up_to_bytes"] == 1024 and told["kind"] == "call" and told["collectives"] == 1
    assert told["algorithm_rate"] == pytest.approx(1000 / 0.012)
    assert told["bus_rate"] == pytest.approx(1000 / 0.012 * 4 / 3)
    assert told["naive_rate"] == pytest.approx(1000 / (0.103 / 3))
    assert told["late_p50_ns"] == 30 * MILLI and told["wait_share"] == pytest.approx(70 / 103)
    assert "68 % of the time in these collectives is spent waiting" in table.notes[0]


@pytest.mark.parametrize(
    ("name", "root", "size", "time_s", "factor"),
    [
        ("MPI_Allgather", -1, 3000, 0.012, 2 / 3),
        ("MPI_Reduce_scatter_block", -1, 1000, 0.012, 2 / 3),
        ("MPI_Alltoall", -1, 1000, 0.012, 2 / 3),
        ("MPI_Bcast", 1, 1000, 0.0105, 1),  # the two that are not the root: 10 and 11 ms
        ("MPI_Reduce", 0, 1000, 0.010, 1),  # the root
        ("MPI_Gather", 0, 3000, 0.010, 2 / 3),
    ],
)
def test_size_and_factor_of_each_operation(
    name: str, root: int, size: int, time_s: float, factor: float, tmp_path: Path
) -> None:
    table = collectives(made(tmp_path, name, [0, 40, 10], [50, 52, 51], root))
    assert column(table, "algorithm_rate") == [pytest.approx(size / time_s)]
    assert column(table, "bus_rate") == [pytest.approx(size / time_s * factor)]


def test_a_barrier_has_no_bandwidth(tmp_path: Path) -> None:
    assert column(collectives(made(tmp_path, "MPI_Barrier", [0, 40, 10], [50, 52, 51], size=0)), "naive_rate") == [None]


def simulated(folder: Path, skew: Skew, late: dict[int, float], **more: float) -> RunTables:
    truth = train(np.random.default_rng(1), 4, 300, late=late, **more)  # type: ignore[arg-type]
    return open_run(write(folder / "run", truth, skew), read_rank_file)


def test_the_late_rank_is_named_on_hosts_whose_clocks_disagree(tmp_path: Path) -> None:
    run = simulated(tmp_path, Skew([0, 0, 1, 1], [0, 2e9], [0, 5e-5]), {2: 5.0 * MILLI})
    table = waiting(run)
    assert table.rows[0][0] == 2 and column(table, "verdict") == ["straggler", "waits", "waits", "waits"]
    assert table.notes[0].startswith("The others wait for rank 2 (node1): ")
    # three others wait 5 ms in each of 300 collectives, and what the jitter adds
    assert float(str(column(table, "caused_ns")[0])) == pytest.approx(3 * 300 * 5 * MILLI, rel=0.1)
    parts = waiting_parts(run)
    assert [row[:3] for row in parts.rows] == [("group", "MPI_COMM_WORLD", 300), ("phase", "steady", 300)]
    assert set(column(parts, "awaited_rank")) == {2}


def test_nobody_is_named_where_all_are_late_in_turn(tmp_path: Path) -> None:
    table = waiting(simulated(tmp_path, Skew([0, 0, 1, 1], [0, 2e9], [0, 5e-5]), {}, jitter=0.3))
    assert "straggler" not in column(table, "verdict")
    assert table.notes[0] == "No rank stands out as the one that the others wait for."


def test_an_effect_below_the_clocks_error_is_inconclusive(tmp_path: Path) -> None:
    """Transfers of 30 ms with 5 ms of lateness: nothing in the log says more than about 30 ms."""
    run = simulated(
        tmp_path, Skew([0, 1, 2, 3], [0, 2e9, 1e9, -1e9], [0, 0, 0, 0]), {2: 5.0 * MILLI}, transfer_ns=30 * MILLI
    )
    table = waiting(run)
    assert "straggler" not in column(table, "verdict") and "inconclusive" in column(table, "verdict")
    assert any(note.startswith("Inconclusive") for note in table.notes)


def test_nobody_is_named_for_a_few_collectives(tmp_path: Path) -> None:
    assert column(waiting(made(tmp_path, "MPI_Allreduce", [0, 40, 10], [50, 52, 51])), "verdict")[0] == ""


def test_nobody_is_named_for_one_collective_however_long(tmp_path: Path) -> None:
    """The first, say, for which one starts late: all come last equally often afterwards."""
    truth = train(np.random.default_rng(1), 4, 300, jitter=0.3)
    truth.enter_ns[1:] += 900 * MILLI
    truth.end_ns += 900 * MILLI
    truth.enter_ns[0, 2] += 900 * MILLI
    run = open_run(write(tmp_path / "run", truth, Skew([0] * 4, [0], [0])), read_rank_file)
    table = waiting(run)
    assert table.rows[0][0] == 2 and float(str(column(table, "caused_share")[0])) > 0.5
    assert "straggler" not in column(table, "verdict")
    assert table.notes[0] == "No rank stands out as the one that the others wait for."


def test_a_selection_shows_some_and_compares_all(tmp_path: Path) -> None:
    run = made(tmp_path, "MPI_Allreduce", [0, 40, 10], [50, 52, 51])
    table = waiting(run, Selection(frozenset({0})))
    assert [row[:4] for row in table.rows] == [(0, "node0", 1, 40 * MILLI)]
    assert column(collectives(run, Selection(frozenset({0}))), "wait_ns") == [40 * MILLI]


def test_by_step_where_there_are_steps(tmp_path: Path) -> None:
    truth = train(np.random.default_rng(2), 3, 10)
    run = open_run(write(tmp_path / "run", truth, ONE_HOST), read_rank_file)
    known = collectives_of(run)
    starts = START + truth.enter_ns[::5].min(axis=1).astype(np.int64) - MICRO
    ends = np.append(starts[1:] - 1, START + 2**60)

    def of(rank: int, numbers: list[int], begin_ns: Any, end_ns: Any) -> RankSteps:
        values = {"begin_ns": begin_ns, "length_ns": (end_ns - begin_ns).astype(np.float64)}
        return RankSteps(rank, "node0", np.array(numbers), np.zeros(len(numbers), bool), values)

    alike = times_of(known.log, Steps([of(rank, [7, 8], starts, ends) for rank in range(3)], "recorded"))
    assert alike is not None
    assert alike.codes(known.splits[0]).tolist() == [[0, 0, 0]] * 5 + [[1, 1, 1]] * 5
    # the second has only the later one, the third is ahead of the others, and its last step is over soon
    ahead = np.array([starts[0] - 2**40, starts[0], starts[1]]), np.array([starts[0] - 1, starts[1] - 1, starts[1]])
    others = [of(0, [7, 8], starts, ends), of(1, [8], starts[1:], ends[1:]), of(2, [6, 7, 9], *ahead)]
    uneven = times_of(known.log, Steps(others, "recorded"))
    assert uneven is not None
    split = replace(known.splits[0], steps=None)
    assert uneven.numbers.tolist() == [6, 7, 8, 9]
    assert uneven.codes(split).tolist() == [[1, -1, 1]] * 5 + [[2, 2, -1]] * 5


def test_runs_of_one_host_or_one_rank_are_not_noisy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path / "three", "MPI_Allreduce", [0, 40, 10], [50, 52, 51])
    assert clocks(run).rows == [] and clocks(run).warnings == []
    single = Truth(np.array([[1.0]]) * MILLI, np.array([[2.0]]) * MILLI, ["MPI_Barrier"], np.zeros(1), np.full(1, -1))
    folder = write(tmp_path / "one", single, Skew([0], [0], [0]))
    assert report([str(folder)]) == 0
    text = capsys.readouterr().out
    assert "Waiting" not in text and "Clocks" not in text


def test_in_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path, "MPI_Allreduce", [0, 40, 10], [50, 52, 51])
    for form in ("text", "csv", "json", "markdown"):
        assert report([str(tmp_path / "run"), "--table", "waiting", "--table", "collectives", "--format", form]) == 0
    out = capsys.readouterr().out
    assert "40000000.0" in out and "40.0 ms" in out
