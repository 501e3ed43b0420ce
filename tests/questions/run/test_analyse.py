"""Each analysis answers with numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rankscope.model.records import RankFacts, Reading
from rankscope.model.tables import Table
from rankscope.questions.mpi.messages import edges, matrix, sizes
from rankscope.questions.mpi.routines import communication, communicators, routines
from rankscope.questions.ranks.ranks import balance, ranks
from rankscope.questions.run.coverage import coverage, overhead
from rankscope.questions.run.overview import overview
from rankscope.questions.selection import Selection
from rankscope.questions.wording import ending_text, ranges
from rankscope.rank_file import Flag, State, size_class
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run
from runs.loaded import run_of
from runs.small_run import MILLI, SECOND, mpi_rank, process, write_run


def two_ranks() -> list[RankFileWriter]:
    """Rank 0 waits 4 of its 8 s in MPI, rank 1 only 1 s; rank 0 receives without blocking what rank 1 sends."""
    first, second = mpi_rank(0, 2), mpi_rank(1, 2, host=b"node1")
    for made in (first, second):
        made.world = made.group("MPI_COMM_WORLD", identity=1, size=2, collectives=4)  # type: ignore[attr-defined]
        made.tally("MPI_Init", 1, SECOND // 2)
    world: int = first.world  # type: ignore[attr-defined]
    first.tally("MPI_Allreduce", 4, 3 * SECOND, group=world, bytes=32, size_class=4, **spread(600, 900))
    first.tally("MPI_Wait", 2, SECOND, group=world)
    first.tally("MPI_Irecv", 2, 2 * MILLI, group=world)
    first.tally("MPI_Irecv", 1, SECOND // 2, group=world, bytes=1000, size_class=size_class(1000), kind=1)
    first.tally("MPI_Irecv", 1, SECOND // 4, group=world, bytes=24, size_class=size_class(24), kind=1)
    second.tally("MPI_Allreduce", 4, SECOND, group=world, bytes=32, size_class=4, **spread(100, 400))
    half = second.group("", identity=0xBEEF, size=1)
    second.tally("MPI_Isend", 1, MILLI, group=half, bytes=1000, size_class=size_class(1000), errors=1)
    second.tally("MPI_Isend", 1, MILLI, group=half, bytes=24, size_class=size_class(24))
    second.tally("MPI_Isend", 2, 10 * MILLI, group=half, kind=1)
    second.peers([(0, 2, 1024)])
    return [first, second]


def spread(min_ms: int, max_ms: int) -> dict[str, Any]:
    low, high = min_ms * MILLI, max_ms * MILLI
    return {"min_ticks": low, "max_ticks": high, "sum_squares_ticks2": 2.0 * low * low + 2.0 * high * high}


@pytest.fixture
def run(tmp_path: Path) -> RunTables:
    return opened(tmp_path, *two_ranks(), expected_ranks=2)


def opened(folder: Path, *processes: RankFileWriter, **job: Any) -> RunTables:
    return open_run(write_run(folder, *processes, **job), read_rank_file)


def cells(table: Table, key: Any) -> dict[str, Any]:
    """The row that begins with a key, by column."""
    row = next(row for row in table.rows if row[0] == key)
    return dict(zip((column.name for column in table.columns), row, strict=True))


def test_routines_over_all_ranks(run: RunTables) -> None:
    table = routines(run)
    found = cells(table, "MPI_Allreduce")
    assert (found["calls"], found["bytes"], found["mean_bytes"]) == (8, 64, 8)
    assert (found["total_ns"], found["mean_ns"]) == (4 * SECOND, SECOND / 2)
    assert (found["min_ns"], found["max_ns"]) == (100 * MILLI, 900 * MILLI)
    assert found["share"] == 4 / 16  # of two spans of 8 s
    # two calls each of 0.1, 0.4, 0.6 and 0.9 s: mean 0.5, variance (0.16 + 0.01 + 0.01 + 0.16) / 4
    assert found["stdev_ns"] == pytest.approx(math.sqrt(0.085) * SECOND)
    assert [row[0] for row in table.rows][:2] == ["MPI_Allreduce", "MPI_Init"]


def test_init_is_listed_but_is_no_part_of_the_span(run: RunTables) -> None:
    assert cells(routines(run), "MPI_Init")["share"] is None


def test_bytes_of_a_nonblocking_receive_are_those_known_at_completion(run: RunTables) -> None:
    found = cells(routines(run), "MPI_Irecv")
    assert (found["calls"], found["bytes"], found["mean_bytes"]) == (2, 1024, 512)
    assert (found["total_ns"], found["progress_ns"]) == (2 * MILLI, 750 * MILLI)


def test_bytes_of_a_nonblocking_send_are_not_counted_twice(run: RunTables) -> None:
    found = cells(routines(run), "MPI_Isend")
    assert (found["calls"], found["bytes"], found["errors"], found["progress_ns"]) == (2, 1024, 1, 10 * MILLI)


def test_routines_of_one_rank(run: RunTables) -> None:
    found = cells(routines(run, Selection(ranks=frozenset((1,)))), "MPI_Allreduce")
    assert (found["calls"], found["total_ns"], found["share"]) == (4, SECOND, 1 / 8)


def test_sorting_and_cutting(run: RunTables) -> None:
    table = routines(run, Selection(sort="bytes", top=2))
    assert [row[0] for row in table.rows] == ["MPI_Irecv", "MPI_Isend"]
    assert "more rows" in table.notes[-1]
    assert [row[0] for row in routines(run, Selection(sort="name")).rows] == [
        "MPI_Allreduce", "MPI_Init", "MPI_Irecv", "MPI_Isend", "MPI_Wait",
    ]  # fmt: skip


def test_sizes(run: RunTables) -> None:
    rows = {(row[0], row[2]): row for row in sizes(run).rows}
    assert rows["MPI_Allreduce", 8] == ("MPI_Allreduce", 4, 8, 8, 64, 8.0, 4.0 * SECOND, SECOND / 2, "call")
    assert rows["MPI_Irecv", 1024] == ("MPI_Irecv", 512, 1024, 1, 1000, 1000.0, SECOND / 2, SECOND / 2, "progress")
    assert rows["MPI_Isend", 32] == ("MPI_Isend", 16, 32, 1, 24, 24.0, MILLI, MILLI, "call")
    assert {name for name, _ in rows} == {"MPI_Allreduce", "MPI_Irecv", "MPI_Isend"}


def test_the_bins_of_a_routine_sum_up_to_it(run: RunTables) -> None:
    whole = {row[0]: (row[1], row[8]) for row in routines(run).rows}
    for name in ("MPI_Allreduce", "MPI_Irecv", "MPI_Isend"):
        bins = [row for row in sizes(run).rows if row[0] == name]
        assert (sum(row[3] for row in bins), sum(row[4] for row in bins)) == whole[name]  # type: ignore[misc]


@pytest.mark.parametrize(("size", "expected"), [(0, (None, 0)), (1, (0, 1)), (2, (1, 2)), (8, (4, 8)), (9, (8, 16))])
def test_edges_of_the_classes(size: int, expected: Any) -> None:
    assert edges(size_class(size)) == expected


def test_communicators(run: RunTables) -> None:
    table = communicators(run)
    assert cells(table, "MPI_COMM_WORLD") == {
        "group": "MPI_COMM_WORLD", "kind": "communicator", "size": 2, "ranks": 2, "calls": 12,
        "total_ns": 5 * SECOND + 2 * MILLI, "share": pytest.approx(5.002 / 5.004), "bytes": 64 + 1024,
    }  # fmt: skip
    assert cells(table, "communicator #0000beef")["calls"] == 2


def test_communication_names_the_ranks(run: RunTables) -> None:
    rows = communication(run).rows
    assert rows[0] == ("minimum", 1, "node1", SECOND + 2 * MILLI, 8 * SECOND, pytest.approx(1.002 / 8))
    assert [row[:2] for row in rows] == [("minimum", 1), ("median", 1), ("maximum", 0)]
    assert rows[2][3] == 4 * SECOND + 2 * MILLI


def test_balance_names_the_rank_that_is_waited_for(run: RunTables, tmp_path: Path) -> None:
    three = [mpi_rank(rank, 3) for rank in range(3)]
    for made, spent in zip(three, (4, 4, 1), strict=True):
        made.tally("MPI_Allreduce", 1, spent * SECOND)
    table = balance(opened(tmp_path / "three", *three))
    assert [row[0] for row in table.rows] == [2, 0, 1]
    assert [row[4] for row in table.rows] == [7 * SECOND, 4 * SECOND, 4 * SECOND]
    assert table.rows[0][5] == pytest.approx(7 / 5)
    assert table.notes[0] == "MPI time, largest / mean: 1.33."
    assert table.notes[1] == "Time outside MPI, largest / mean: 1.40."
    assert table.notes[2].startswith("Rank 2 (node0) spends the least time in MPI: where ranks wait")


def test_an_even_run_blames_nobody(tmp_path: Path) -> None:
    even = [mpi_rank(rank, 3) for rank in range(3)]
    for rank, made in enumerate(even):
        made.tally("MPI_Allreduce", 1, SECOND + rank * MILLI)
    assert balance(opened(tmp_path, *even)).notes[-1].startswith("No rank spends noticeably less")


def test_ranks(tmp_path: Path) -> None:
    usage = {"user_ns": 7, "system_ns": 8, "max_rss_bytes": 9, "voluntary_switches": 10, "threads": 3}
    usage |= {"involuntary_switches": 1, "minor_faults": 20, "major_faults": 2}
    table = ranks(opened(tmp_path, mpi_rank(0, 1, facts=usage, state=State.SIGNALLED, end_signal=9)))
    assert table.rows == [
        (0, "node0", 0, 8 * SECOND, 10 * SECOND - 1 + 1, 7, 8, 9, 11, 22, 3, "SIGKILL", 100)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "ended"),
    [
        (RankFacts(rank=0, tool="nvprof"), None),
        (RankFacts(rank=0, tool="strace", ending="exited", exit_code=3), "exit 3"),
        (RankFacts(rank=0), "unknown"),
    ],
)
def test_the_end_of_a_loaded_rank_is_told_only_if_it_is_known(facts: RankFacts, ended: str | None) -> None:
    table = ranks(run_of([Reading(facts)]))
    assert [row[-2] for row in table.rows] == [ended]


def test_matrix(run: RunTables) -> None:
    assert matrix(run).rows == [(1, 0, 2, 1024, 512.0)]


def test_overhead_is_calls_times_calibrated_cost(tmp_path: Path) -> None:
    made = mpi_rank(0, 1, call_cost_milliticks=20_000, collective_cost_milliticks=30_000, setup_ticks=5 * MILLI)
    made.tally("MPI_Allreduce", 1000, SECOND)
    made.tally("MPI_Send", 500, SECOND)
    made.group("MPI_COMM_WORLD", collectives=1000)
    found = cells(overhead(opened(tmp_path, made)), "maximum")
    assert found["cost_ns"] == 500 * 20 + 1000 * 30
    assert found["share"] == pytest.approx((40_000 + 5 * MILLI) / (10 * SECOND), rel=1e-6)


def test_overhead_holds_what_was_measured_at_steps_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    made = mpi_rank(0, 1, call_cost_milliticks=20_000, steps_cost_kiloticks=84, setup_ticks=0)
    made.tally("torch.autograd.backward", 1, SECOND)
    told = overhead(opened(tmp_path, made))
    found = cells(told, "maximum")
    assert found["steps_cost_ns"] == 84_000 and found["cost_ns"] == 84_000 + 20
    assert found["collective_cost_ns"] is None  # not calibrated: not known, and not 0
    assert any(note.startswith("Not included: ") for note in told.notes)


def test_overview(run: RunTables) -> None:
    found = cells(overview(run), "mpirun -n 2 'a b'")
    assert (found["ranks"], found["hosts"], found["processes"], found["launcher"]) == (2, 2, 2, "openmpi")
    assert found["started"] == "2027-01-15 07:59:59 UTC"
    assert found["elapsed_ns"] == 11 * SECOND  # run.json was written a second before the first process began
    assert found["versions"] == "rankscope 0.1.0; Open MPI v5.0.11"
    assert found["comm_ns"] == 5 * SECOND + 4 * MILLI
    assert found["comm_share"] == pytest.approx(5.004 / 16)


def counts(table: Table) -> dict[str, tuple[Any, Any]]:
    return {str(row[0]): (row[1], row[2]) for row in table.rows}


def test_coverage_of_a_whole_run(run: RunTables) -> None:
    table = coverage(run)
    assert table.warnings == []
    assert counts(table) == {
        "ranks expected by run.json": (2, ""),
        "ranks expected by world size": (2, ""),
        "ranks seen": (2, "0-1"),
        "hosts seen": (2, "node0, node1"),
        "ended: exit 0": (2, "0-1"),
        "calls, records or names lost": (0, ""),
        "MPI entry points not intercepted": (0, ""),
    }


def test_coverage_tells_all_that_is_missing(tmp_path: Path) -> None:
    lossy = mpi_rank(0, 4, lost_calls=7, lost_ticks=2 * SECOND, log_written=30, log_capacity=20, untracked_requests=3)
    lossy.set(folded_groups=4, lost_strings=5, paused_calls=6)
    lossy.tally("MPI_Send", 1, 1, seq=3)
    lossy.unwrapped("MPIX_A", "MPIX_B")
    killed = mpi_rank(2, 4, state=State.SIGNALLED, end_signal=15, flags=Flag.MPI_STARTED)
    helper, launcher = process(pid=70, parent_pid=102), process(pid=1, parent_pid=0)
    again = mpi_rank(2, 4, pid=500, started_realtime_ns=2**62)
    table = coverage(opened(tmp_path, lossy, killed, helper, launcher, again, expected_ranks=3))
    found = counts(table)
    assert found["ranks expected by run.json"] == (3, "") and found["ranks expected by world size"] == (4, "")
    assert found["ranks seen"] == (2, "0, 2")
    assert found["helper processes"] == (2, "") and found["launcher processes"] == (1, "")
    assert found["ended: SIGTERM"] == (1, "2") and found["MPI_Finalize not reached"] == (1, "2")
    assert found["calls that did not fit into the file"] == (7, "0")
    assert found["log records overwritten by newer ones"] == (10, "0")
    assert found["rows caught in an update: off by at most one call"] == (1, "0")
    assert found["nonblocking operations not followed to completion"] == (3, "0")
    assert found["communicators that did not fit"] == (4, "0")
    assert found["names that did not fit"] == (5, "0")
    assert found["calls skipped while paused"] == (6, "0")
    assert found["MPI entry points not intercepted"] == (2, "MPIX_A, MPIX_B")
    told = "\n".join(table.warnings)
    assert "of 3 ranks expected by run.json, 1 not recorded: 1" in told
    assert "of 4 ranks expected by world size, 2 not recorded: 1, 3" in told
    assert "1 rank ended abnormally (SIGTERM): 2" in told
    assert "the tables lack 7 calls (2.000 s)" in told
    assert "more processes than ranks (1) used MPI, again as rank 2: several MPI jobs" in told


def test_a_replaced_program_image_is_no_further_process(tmp_path: Path) -> None:
    run = opened(tmp_path, mpi_rank(0, 1), process(pid=100, state=State.REPLACED))
    assert counts(coverage(run))["program images replaced by exec"] == (1, "")
    assert overview(run).rows[0][5] == 1


def test_singletons_are_told_once(tmp_path: Path) -> None:
    lonely = [
        mpi_rank(0, 1, pid=50 + i, flags=Flag.SINGLETON | Flag.MPI_STARTED, launcher_world_size=4) for i in range(2)
    ]
    warnings = coverage(opened(tmp_path, *lonely)).warnings
    assert len([text for text in warnings if "wrong mpirun" in text]) == 1


def test_a_run_that_goes_on_is_said_to(tmp_path: Path) -> None:
    from rankscope.rank_files.facts import Here

    def read(path: Path) -> Any:
        return read_rank_file(path, here=Here(host="elsewhere", now_ns=lambda: 0))

    folder = write_run(tmp_path, mpi_rank(0, 1, state=State.RUNNING, ended_ticks=0))
    run = open_run(folder, read)
    assert "still going on (1 rank: 0)" in overview(run).warnings[0]
    assert counts(coverage(run))["ended: still running"] == (1, "0")


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([], ""), ([3], "3"), ([2, 0, 1, 5, 7, 8], "0-2, 5, 7-8"), (range(0, 40, 2), "0, 2, 4, 6, 8, 10 and 14 more")],
)
def test_ranges(numbers: Any, expected: str) -> None:
    assert ranges(numbers) == expected


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (("exited", 3, None), "exit 3"),
        (("signalled", None, 9), "SIGKILL"),
        (("signalled", None, 250), "signal 250"),
        (("aborted", 6, None), "MPI_Abort(6)"),
        (("running", None, None), "still running"),
        (("vanished", None, None), "vanished"),
    ],
)
def test_endings_in_words(ending: Any, expected: str) -> None:
    assert ending_text(*ending) == expected
