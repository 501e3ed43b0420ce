"""Steps and marks of a rank file come out of it in nanoseconds, and reach the tables of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.rank_file import STEP, STEP_BLOCK, MarkKind, Part, Rows, StepFlag, TickSource
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND


def writer() -> RankFileWriter:
    """A process loaded at tick 1,000 with a clock of 2 ticks a nanosecond."""
    anchor = {"ticks": 1_000 + 6 * SECOND, "monotonic_ns": 50 + 3 * SECOND, "realtime_ns": START + 3 * SECOND}
    return RankFileWriter(
        host=b"node7",
        pid=4242,
        rank=3,
        tick_source=TickSource.TSC,
        loaded={"ticks": 1_000, "monotonic_ns": 50, "realtime_ns": START},
        started_realtime_ns=START - SECOND,
        facts={"anchor": anchor},
    )


def step(number: int, flags: int = 0) -> Rows:
    row = np.zeros(1, STEP)
    row["number"], row["flags"] = number, flags
    row["begin_ticks"], row["end_ticks"] = 1_000 + number * 2_000_000, 1_000 + (number + 1) * 2_000_000
    row["part_ticks"][0, Part.FORWARD], row["part_ticks"][0, Part.BACKWARD] = 500_000, 1_500_000
    row["blocked_ticks"][0, Part.BACKWARD] = 400_000
    row["covered_ticks"], row["progress_ticks"] = 1_000_000, 1_200_000
    row["cpu_ns"], row["backwards"] = 600_000, 2
    return row


def columns_of(made: RankFileWriter, folder: Path) -> dict[str, Any]:
    return dict(read_rank_file(made.write(folder / "4242.rank")).step_columns)


def test_times_are_in_nanoseconds_and_parts_add_up(tmp_path: Path) -> None:
    made = writer()
    made.steps(step(1, StepFlag.WARMUP | StepFlag.ACCUMULATED))
    one = {name: values[0] for name, values in columns_of(made, tmp_path).items()}
    assert (one["begin_ns"], one["end_ns"]) == (START + 1_000_000, START + 2_000_000)
    assert (one["forward_ns"], one["backward_ns"], one["data_ns"]) == (250_000, 750_000, 0)
    assert sum(one[f"{part.name.lower()}_ns"] for part in Part) == one["end_ns"] - one["begin_ns"]
    assert (one["exposed_ns"], one["covered_ns"], one["hidden_ns"]) == (200_000, 500_000, 300_000)
    assert (one["cpu_ns"], one["backwards"]) == (600_000, 2)
    assert (one["warmup"], one["accumulated"], one["skipped"], one["told"]) == (True, True, False, False)


def test_a_full_ring_keeps_the_newest_in_order_and_tells_what_is_gone(tmp_path: Path) -> None:
    made = writer()
    made.steps(np.concatenate([step(number) for number in range(1, 8)]), capacity=4)
    reading = read_rank_file(made.write(tmp_path / "4242.rank"))
    assert reading.step_columns["number"].tolist() == [4, 5, 6, 7]
    assert any("oldest 3 steps" in note.text for note in reading.notes)


def test_a_step_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    made = writer()
    rows = np.concatenate([step(number) for number in (1, 2, 3)])
    made.steps(rows)
    made._tables[0][1]["number"][2] = 0  # killed in the middle of the third
    assert columns_of(made, tmp_path)["number"].tolist() == [1, 2]


def test_marks_come_in_the_order_of_time_with_those_of_the_header(tmp_path: Path) -> None:
    made = writer()
    made.marks((MarkKind.INIT_BEGIN, 1_000 + 2_000, "MPI_Init"), (MarkKind.INTERPRETER, 1_000 + 200, ""))
    found = read_rank_file(made.write(tmp_path / "4242.rank")).marks
    assert [(mark.name, mark.at_ns - START, mark.what) for mark in found] == [
        ("process_start", -SECOND, ""),
        ("interpreter", 100, ""),
        ("init_begin", 1_000, "MPI_Init"),
    ]


def test_steps_and_marks_are_tables_of_a_run(tmp_path: Path) -> None:
    made = writer()
    made.steps(step(1))
    made.marks((MarkKind.FIRST_STEP_END, 5_000, ""))
    made.write(tmp_path / "ranks/node7/4242.rank")
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "command": ["x"]}))
    run = open_run(tmp_path, read_rank_file)
    assert run.query("SELECT process, number, backward_ns FROM steps") == [(0, 1, 750_000)]
    assert ("first_step_end", 2_000 + START) in run.query("SELECT name, at_ns FROM marks")


def test_what_is_no_number_in_a_damaged_step_becomes_0(tmp_path: Path) -> None:
    row = step(1)
    row["part_ticks"][0, Part.DATA], row["gc_ticks"], row["blocked_ticks"][0, 0] = np.nan, np.inf, -np.inf
    made = writer()
    made.steps(row)
    columns = columns_of(made, tmp_path)
    assert (columns["data_ns"][0], columns["gc_ns"][0], columns["blocked_data_ns"][0]) == (0, 0, 0)
    assert columns["exposed_ns"][0] == 200_000


def test_blocks_of_steps_are_in_order_and_those_that_were_joined_count_once(tmp_path: Path) -> None:
    rows = np.zeros(6, STEP_BLOCK)
    rows["first"], rows["steps"] = [35, 3, 3, 1, 0, 67], [32, 32, 64, 2, 0, 32]
    rows["seq"][5] = 3  # its writer was killed
    rows["own_ticks"][:, Part.FORWARD], rows["median_ticks"], rows["runnable_ns"] = 2_000, 64, 7
    rows["begin_ticks"], rows["end_ticks"] = 1_000, 3_000
    made = writer()
    made.step_blocks(rows)
    columns = read_rank_file(made.write(tmp_path / "4242.rank")).step_block_columns
    assert (columns["first"].tolist(), columns["steps"].tolist()) == ([1, 3], [2, 64])
    assert (columns["own_forward_ns"][0], columns["median_ns"][0], columns["runnable_ns"][0]) == (1_000, 32, 7)
    assert (columns["begin_ns"][0], columns["end_ns"][0]) == (START, START + 1_000)
