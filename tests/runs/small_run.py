"""Builds small runs whose every number is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rankscope.rank_file import Flag, State, TickSource
from rankscope.rank_file_writer import RankFileWriter

SECOND = 1_000_000_000
MILLI = 1_000_000
START = 1_800_000_000 * SECOND


def process(**header: Any) -> RankFileWriter:
    """A process on a clock of 1 tick a nanosecond that ran from 0 to 10 s and exited with 0."""
    standard: dict[str, Any] = {
        "host": b"node0",
        "pid": 100,
        "parent_pid": 1,
        "state": State.EXITED,
        "tick_source": TickSource.MONOTONIC,
        "loaded": {"ticks": 1, "monotonic_ns": 1, "realtime_ns": START + 1},
        "started_realtime_ns": START,
        "ended_ticks": 10 * SECOND,
        "rankscope_version": b"0.1.0",
        "command": b"python\0train.py\0",
    }
    return RankFileWriter(**{**standard, **header})


def mpi_rank(rank: int, size: int, **header: Any) -> RankFileWriter:
    """A rank whose MPI span is 8 s, from 1 s to 9 s."""
    standard: dict[str, Any] = {
        "rank": rank,
        "world_size": size,
        "pid": 100 + rank,
        "flags": Flag.MPI_STARTED | Flag.MPI_FINALIZED,
        "mpi_started_ticks": SECOND,
        "mpi_finalized_ticks": 9 * SECOND,
        "mpi_version": b"Open MPI v5.0.11\nmore",
    }
    return process(**{**standard, **header})


def write_run(folder: Path, *processes: RankFileWriter, **job: Any) -> Path:
    """A run's folder with these processes; job=None leaves out run.json."""
    for at, made in enumerate(processes):
        host, pid = made.header["host"][0].decode(), int(made.header["pid"][0])
        path = folder / f"ranks/{host}/{pid}.rank"
        made.write(path if not path.exists() else path.with_name(f"{pid}-{at}.rank"))
    told = {"format": 1, "command": ["mpirun", "-n", "2", "a b"], "launcher": "openmpi", "started_ns": START - SECOND}
    (folder / "run.json").write_text(json.dumps({**told, **job}))
    return folder
