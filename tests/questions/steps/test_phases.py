"""The way from process start to end, phase by phase."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankscope.model.records import PHASES
from rankscope.questions.findings.startup import slow_start
from rankscope.questions.steps.phases import phase_calls, phase_ranks, phases
from rankscope.questions.steps.startup import startup
from rankscope.rank_file import COLLECTIVE, GroupKind, LayerNumber, MarkKind
from rankscope.rank_file_writer import RankFileWriter
from runs.small_run import MILLI, SECOND
from runs.step_runs import log, opened, rank

K = MarkKind


def torch_rank(number: int, import_ms: int) -> RankFileWriter:
    """Imports from 200 ms on, init for 100 ms, the first collective within the first step of 1 s; 10 s in all."""
    made = rank(number, 2, mpi_started_ticks=0, mpi_finalized_ticks=0, flags=0)
    done = 200 + import_ms
    moments = [
        (K.INTERPRETER, 50, ""),
        (K.IMPORT_BEGIN, 200, "torch"),
        (K.IMPORT_END, done, "torch"),
        (K.INIT_BEGIN, done + 50, "init_process_group"),
        (K.INIT_END, done + 150, "init_process_group"),
        (K.FIRST_STEP_BEGIN, done + 250, ""),
        (K.FIRST_COLLECTIVE_BEGIN, done + 850, "gloo:all_reduce"),
        (K.FIRST_COLLECTIVE_END, done + 1_150, "gloo:all_reduce"),
        (K.FIRST_STEP_END, done + 1_250, ""),
        (K.FINALIZE, 9_500, "destroy_process_group"),
    ]
    made.marks(*((kind, ms * MILLI, what) for kind, ms, what in moments))
    return made


def test_a_waterfall_by_hand(tmp_path: Path) -> None:
    run = opened(tmp_path, torch_rank(0, 1_000), torch_rank(1, 2_000))
    table = phase_ranks(run)
    names = [column.name for column in table.columns]
    first = dict(zip(names, table.rows[0], strict=True))
    expected_ms = {
        "start_ns": 50,
        "interpreter_ns": 150,
        "imports_ns": 1_000,
        "before_init_ns": 50,
        "init_ns": 100,
        "after_init_ns": 100,
        "first_step_ns": 700,
        "first_collective_ns": 300,
        "steps_ns": 7_050,
        "finalize_ns": 500,
    }
    told = {name: value for name, value in first.items() if value and name not in ("rank", "elapsed_ns")}
    assert told == {name: ms * MILLI for name, ms in expected_ms.items()}
    for row in table.rows:
        assert sum(int(str(cell or 0)) for cell in row[2:]) == row[1] == 10 * SECOND


def test_the_spread_names_the_slowest_rank(tmp_path: Path) -> None:
    table = phases(opened(tmp_path, torch_rank(0, 1_000), torch_rank(1, 2_000)))
    row = next(row for row in table.rows if row[0] == "imports")
    assert row == ("imports", "torch", 2, 0.15, SECOND, 1.5 * SECOND, 2 * SECOND, 1, "node0")
    assert [row[0] for row in table.rows][:3] == ["start", "interpreter", "imports"]


def test_without_marks_the_log_tells_the_first_collective(tmp_path: Path) -> None:
    made = rank(0, 2)
    log(made, [("MPI_Bcast", 8, 2_000, 2_500), ("MPI_Bcast", 8, 3_000, 3_001)])
    row = dict(
        zip(
            [c.name for c in phase_ranks(opened(tmp_path, made)).columns],
            phase_ranks(opened(tmp_path, made)).rows[0],
            strict=True,
        )
    )
    assert (row["first_collective_ns"], row["elapsed_ns"]) == (500 * MILLI, 10 * SECOND)


def test_work_without_steps_is_no_start_up(tmp_path: Path) -> None:
    """A program that communicates once and then computes for 7 s has neither steps nor a slow start."""
    made = rank(0, 2)
    log(made, [("MPI_Bcast", 8, 2_000, 2_500)])
    run = opened(tmp_path, made)
    named = {str(row[0]): row[5] for row in phases(run).rows}
    assert named["after first collective"] == 7_500 * MILLI - named.get("finalize", 0) and "before steps" not in named
    assert slow_start(run) == []


def alone(*moments: tuple[MarkKind, int]) -> RankFileWriter:
    """A process without init, 10 s in all."""
    made = rank(0, 1, mpi_started_ticks=0, mpi_finalized_ticks=0, flags=0)
    made.marks(*((kind, ms * MILLI, "") for kind, ms in [(K.IMPORT_BEGIN, 1_000), (K.IMPORT_END, 2_000), *moments]))
    return made


def test_inference_is_no_start_up(tmp_path: Path) -> None:
    """torch without init, collectives or steps: what follows the imports is the program."""
    run = opened(tmp_path, alone())
    named = {str(row[0]): row[5] for row in phases(run).rows}
    assert named["program"] == 8 * SECOND and "before init" not in named
    assert slow_start(run) == []


def test_a_training_without_init_has_no_time_before_it(tmp_path: Path) -> None:
    run = opened(tmp_path, alone((K.FIRST_STEP_BEGIN, 5_000), (K.FIRST_STEP_END, 6_000)))
    named = {str(row[0]): row[5] for row in phases(run).rows}
    assert named["before steps"] == 3 * SECOND and "before init" not in named


def test_a_program_without_init_and_steps_works_before_its_first_collective_too(tmp_path: Path) -> None:
    run = opened(tmp_path, alone((K.FIRST_COLLECTIVE_BEGIN, 5_000), (K.FIRST_COLLECTIVE_END, 6_000)))
    named = {str(row[0]): row[5] for row in phases(run).rows}
    assert named["program"] == 3 * SECOND and named["after first collective"] == 4 * SECOND
    assert slow_start(run) == []


def test_calls_by_phase(tmp_path: Path) -> None:
    made = rank(0, 1)
    made.tally("MPI_Init", 1, SECOND, phase=PHASES.index("init"))
    made.tally("MPI_Allreduce", 1, SECOND, phase=PHASES.index("first_collective"))
    made.tally("MPI_Allreduce", 10, SECOND, phase=PHASES.index("steady"))
    made.tally("MPI_Barrier", 10, 3 * SECOND, phase=PHASES.index("steady"))
    rows = phase_calls(opened(tmp_path, made)).rows
    assert [(row[0], row[2], row[3], row[5]) for row in rows] == [
        ("init", "MPI_Init", 1, 1.0),
        ("first_collective", "MPI_Allreduce", 1, 1.0),
        ("steady", "MPI_Barrier", 10, 0.75),
        ("steady", "MPI_Allreduce", 10, 0.25),
    ]


def gpu_rank(number: int, context_ms: int) -> RankFileWriter:
    """CUDA from 1 s on, its context some time later, NCCL from 2 s to its first operation, the first step at 4 s."""
    made = rank(number, 2, mpi_started_ticks=0, mpi_finalized_ticks=0, flags=0)
    moments = [
        (K.INTERPRETER, 50, ""),
        (K.IMPORT_BEGIN, 100, "torch"),
        (K.IMPORT_END, 900, "torch"),
        (K.CUDA_CONTEXT, 1_000 + context_ms, ""),
        (K.NCCL_BEGIN, 2_000, ""),
        (K.FIRST_STEP_BEGIN, 4_000, ""),
        (K.FIRST_STEP_END, 5_000, ""),
    ]
    made.marks(*((kind, ms * MILLI, what) for kind, ms, what in moments))
    flushed = {"flushed_ns": 80 * SECOND, "flushed_ticks": 4 * SECOND}
    made.cuda(state=2, cupti_version=26, started_ns=77 * SECOND, started_ticks=SECOND, **flushed)
    made.tally("cuLibraryLoadData", 3, 500 * MILLI, layer=LayerNumber.CUDA_API, phase=4)
    group = made.group("", identity=7, size=2, my_rank=number, kind=GroupKind.NCCL)
    row = np.zeros(1, COLLECTIVE)
    row["name"], row["group"], row["sequence"], row["root"] = made.string("ncclAllReduce"), group, 1, -1
    row["enter_ticks"], row["end_ticks"] = (2_600 + number) * MILLI, 2_700 * MILLI
    made.collectives(row)
    return made


def test_what_the_start_consists_of(tmp_path: Path) -> None:
    run = opened(tmp_path, gpu_rank(0, 200), gpu_rank(1, 400))
    rows = {row[0]: row[1:] for row in startup(run).rows}
    whole = 5 * SECOND
    assert rows["import torch"][2:4] == (0.8 * SECOND / whole, 800 * MILLI)
    assert rows["CUDA context"][1:6] == (2, 0.3 * SECOND / whole, 300 * MILLI, 400 * MILLI, 1)
    assert rows["loading GPU code"][0] == "cuLibraryLoadData" and rows["loading GPU code"][3] == 500 * MILLI
    assert rows["NCCL init"][3] == 600.5 * MILLI and "CUDA until first work" not in rows
    names = ["process start", "interpreter", "import torch", *GPU_PARTS, "first collective", "first step"]
    assert list(rows) == names


GPU_PARTS = ("CUDA context", "loading GPU code", "NCCL init")
