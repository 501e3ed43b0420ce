"""Writes runs of many ranks: steps, a log of collectives, tallies by size, a few GPU activities, and one slow rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rankscope.rank_file import COLLECTIVE, STEP, Flag, LayerNumber, MarkKind, Part
from rankscope.rank_file_writer import RankFileWriter
from runs.small_run import MILLI, SECOND, mpi_rank, write_run

PER_HOST = 8
STEP_NS = 100 * MILLI


def write_large_run(folder: Path, ranks: int, steps: int, slow: int = 5) -> Path:
    """A run whose rank `slow` takes 30 ms longer in each forward pass, so that all others wait for it."""
    made = [_rank(number, ranks, steps, slow) for number in range(ranks)]
    return write_run(folder, *made, expected_ranks=ranks, command=["srun", "python", "train.py"])


def _rank(number: int, ranks: int, steps: int, slow: int) -> RankFileWriter:
    random = np.random.default_rng(number)
    one = mpi_rank(number, ranks, host=f"node{number // PER_HOST:04d}".encode(), call_cost_milliticks=30_000)
    one.set(flags=Flag.MPI_STARTED | Flag.MPI_FINALIZED, ended_ticks=2 * SECOND + steps * STEP_NS)
    one.set(mpi_finalized_ticks=2 * SECOND + steps * STEP_NS - 5)
    one.set(
        facts={
            "max_rss_bytes": 2**30 + int(random.integers(2**24)),
            "user_ns": steps * 60 * MILLI,
            "system_ns": 5 * SECOND,
        }
    )
    forward = 30 * MILLI + random.integers(0, MILLI, steps) + 30 * MILLI * (number == slow)
    _steps(one, steps, forward)
    _log(one, number, ranks, steps, forward)
    world = one.group("MPI_COMM_WORLD", identity=2, size=ranks, my_rank=number)
    for size_class, calls in ((4, 3 * steps), (14, steps), (22, 2 * steps)):
        size = calls * 2 ** (size_class - 1)
        one.tally("MPI_Allreduce", calls, calls * MILLI, group=world, size_class=size_class, bytes=size, phase=5)
    for kernel in range(12):
        one.tally(f"kernel_{kernel}", steps, steps * ((kernel + 1) * 100_000 + number), layer=LayerNumber.GPU, phase=5)
    init = 200 * MILLI + int(random.integers(50 * MILLI))
    one.marks((MarkKind.INIT_BEGIN, 150 * MILLI, "MPI_Init"), (MarkKind.INIT_END, init + 300 * MILLI, "MPI_Init"))
    return one


def _steps(one: RankFileWriter, steps: int, forward: Any) -> None:
    rows = np.zeros(steps, STEP)
    rows["number"] = np.arange(1, steps + 1)
    rows["begin_ticks"] = SECOND + np.arange(steps) * STEP_NS
    rows["end_ticks"] = rows["begin_ticks"] + STEP_NS
    rows["part_ticks"][:, Part.FORWARD] = forward
    rows["part_ticks"][:, Part.COMMUNICATION] = 70 * MILLI - forward
    rows["part_ticks"][:, Part.BACKWARD] = 30 * MILLI
    rows["blocked_ticks"][:, Part.COMMUNICATION] = 70 * MILLI - forward
    one.steps(rows)


def _log(one: RankFileWriter, number: int, ranks: int, steps: int, forward: Any) -> None:
    """One all-reduce a step: entered after the own work, left by all together."""
    world = one.group("WORLD", identity=1, size=ranks, my_rank=number, collectives=steps)
    rows = np.zeros(steps, COLLECTIVE)
    begin = SECOND + np.arange(steps) * STEP_NS
    rows["name"], rows["group"], rows["bytes"], rows["root"], rows["phase"] = (
        one.string("MPI_Allreduce"),
        world,
        2**21,
        -1,
        5,
    )
    rows["enter_ticks"], rows["end_ticks"] = begin + 30 * MILLI + forward, begin + 100 * MILLI - 1
    rows["sequence"] = np.arange(1, steps + 1)
    one.collectives(rows)
