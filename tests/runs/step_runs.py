"""Builds runs with steps whose every number is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.rank_file import COLLECTIVE, STEP, Part, Rows, StepFlag
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run
from runs.small_run import MILLI, SECOND, mpi_rank, write_run

Parts = Mapping[Part, float]


def steps(parts_ms: Sequence[Parts], blocked_ms: Sequence[Parts] = (), **more: Any) -> Rows:
    """Steps one after the other from 1 s on; each part in ms, what is blocked included."""
    rows = np.zeros(len(parts_ms), STEP)
    now = SECOND
    for at, parts in enumerate(parts_ms):
        row = rows[at : at + 1]
        row["number"], row["flags"] = at + 1, StepFlag.WARMUP if at < 2 else 0
        for part, value in parts.items():
            put(row, "", part, value)
        for part, value in (blocked_ms[at] if blocked_ms else {}).items():
            put(row, "blocked_", part, value)
        row["begin_ticks"] = now
        now += round(sum(parts.values()) * MILLI)
        row["end_ticks"] = now
        for name, values in more.items():
            row[name] = values[at]
    return rows


def put(row: Rows, of: str, part: Part, value_ms: float) -> None:
    """A part of a step: the last one has a place of its own."""
    if part is Part.COMPUTE:
        row[f"{of}compute_ticks"] = value_ms * MILLI
    else:
        row[f"{of or 'part_'}ticks"][0, part] = value_ms * MILLI


def log(made: RankFileWriter, calls: Sequence[tuple[str, int, float, float]], group: str = "MPI_COMM_WORLD") -> None:
    """A log of blocking collectives: name, bytes, enter and leave in ms."""
    size = int(made.header["world_size"][0])
    number = made.group(group, identity=1, size=size, my_rank=int(made.header["rank"][0]), collectives=len(calls))
    rows = np.zeros(len(calls), COLLECTIVE)
    for at, (name, size_bytes, enter_ms, leave_ms) in enumerate(calls):
        row = rows[at : at + 1]
        row["name"], row["group"], row["bytes"] = made.string(name), number, size_bytes
        row["enter_ticks"], row["end_ticks"] = round(enter_ms * MILLI), round(leave_ms * MILLI)
        row["sequence"], row["root"], row["phase"] = at + 1, 0 if "cast" in name or "ather" in name else -1, 5
    made.collectives(rows)


def rank(number: int, size: int, **header: Any) -> RankFileWriter:
    return mpi_rank(number, size, **header)


def opened(folder: Path, *processes: RankFileWriter, **job: Any) -> RunTables:
    return open_run(write_run(folder / "run", *processes, **job), read_rank_file)


def two_ranks(folder: Path, evil: str) -> Path:
    """A run of two ranks with a log of 20 all-reduces; each has a tally of the given name too."""
    ranks = [mpi_rank(rank, 2) for rank in range(2)]
    for rank, made in enumerate(ranks):
        log(made, [("MPI_Allreduce", 8, 1000.0 + 10 * at + rank, 1005.0 + 10 * at) for at in range(20)])
        made.tally("MPI_Allreduce", 10, (rank + 1) * SECOND, bytes=80, size_class=4, group=1)
        made.tally(evil, 1, 5, group=1)
    return write_run(folder, *ranks, expected_ranks=2)
