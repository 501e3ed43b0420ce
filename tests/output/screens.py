"""The first screen of runs of every kind, kept beside this file; run as a program it writes them anew.

.venv/bin/python tests/output/screens.py
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from formats.test_nsys import SCHEMA, made
from fuzz.seeds import TEXTS
from rankscope.api.run import Run, Screen
from rankscope.api.runs import study_screen
from rankscope.cli.load import run as load
from rankscope.output.screen import to_screen
from synthetic_law import Law
from synthetic_operations import Job
from synthetic_operations import write as write_operations
from synthetic_run import write_run

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
KEPT = Path(__file__).parent / "screens"
WIDTHS = (80, 100, 160)
H200 = ROOT / "benchmarks" / "results" / "h200"
ARCHIVES = {
    TESTS / "runs" / "cpu_runs.tar.xz": {"mpi_toy": "mpi_toy", "ddp_straggler": "ddp_straggler"},
    H200 / "gpu_problems-2026-11-16.tar.xz": {
        "gpu_launch_bound": "problems/launch",
        "gpu_data_bound": "problems/data",
        "gpu_pageable": "problems/pageable",
    },
    H200 / "gpu_problems_turns-2026-11-16.tar.xz": {"gpu_item": "problems/item", "gpu_ddp": "problems/ddp"},
    H200 / "gpu_infers-2026-11-18.tar.xz": {"gpu_inference": "infers/auto"},
}
TRACES = H200 / "gpu_check-2026-11-15.tar.xz"
MILLI = 1_000_000


def runs(folder: Path) -> Iterator[tuple[str, Path]]:
    """A run of each kind, by its name."""
    for archive, members in ARCHIVES.items():
        with tarfile.open(archive) as packed:
            packed.extractall(folder / archive.name, filter="data")
        yield from ((name, folder / archive.name / member) for name, member in members.items())
    yield "incomplete", incomplete(folder)
    yield "many_ranks", many_ranks(folder)
    yield "study", study(folder)
    with tarfile.open(TRACES) as packed:
        for rank in (0, 1):
            packed.extract(f"ddp-2-profiler-1.{rank}.trace.json.gz", folder, filter="data")
    traces = [folder / f"ddp-2-profiler-1.{rank}.trace.json.gz" for rank in (0, 1)]
    yield "kineto", loaded(folder / "kineto", *traces)
    yield "kineto_one_of_two", loaded(folder / "kineto_one_of_two", traces[0])
    yield "nsys", loaded(folder / "nsys", nsys_export(folder / "train.sqlite"))
    yield "nvprof", loaded(folder / "nvprof", nvprof_log(folder / "nvprof.log"))
    mpitrace = folder / "mpi_profile.1.0"
    mpitrace.write_text(next(text for text in TEXTS if text.startswith("Data for MPI rank 0 of 2")), encoding="utf-8")
    yield "mpitrace", loaded(folder / "mpitrace", mpitrace)
    tally = folder / "iprof.txt"
    tally.write_text(next(text for text in TEXTS if text.startswith("BACKEND_ZE")), encoding="utf-8")
    yield "iprof", loaded(folder / "iprof", tally)
    operations = folder / "operations.parquet"
    write_operations(operations, Job(stages=4, data=2, micro_batches=4, slow_stages={3: 1.6}))
    yield "pipeline", loaded(folder / "pipeline", operations)
    yield "document", loaded(folder / "document", TESTS / "formats" / "fixtures" / "start_times.md")


def loaded(folder: Path, *files: Path) -> Path:
    with contextlib.redirect_stdout(io.StringIO()):
        assert load([*map(str, files), "--out", str(folder)]) == 0
    return folder


def nvprof_log(path: Path) -> Path:
    """The log of two ranks, without the launcher, which has no rank."""
    lines = (TESTS / "formats" / "fixtures" / "nvprof_log.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "==100==" not in line), encoding="utf-8")
    return path


def incomplete(folder: Path) -> Path:
    """The MPI toy without the file of one rank."""
    made = folder / "incomplete"
    shutil.copytree(folder / "cpu_runs.tar.xz" / "mpi_toy", made)
    sorted(made.glob("ranks/*/*.rank"))[3].unlink()
    return made


def many_ranks(folder: Path) -> Path:
    law = Law(ranks=96, ranks_per_host=12, collectives=200, tallies=12, stragglers=(17,), skew_ns=2 * MILLI)
    write_run(folder / "many_ranks", law)
    return folder / "many_ranks"


def study(folder: Path) -> Path:
    """Two points of a matrix that are done, and one that failed."""
    made = folder / "batches-20261116"
    cells = {"batch=32": "mpi_toy", "batch=64": "ddp_straggler", "batch=128": ""}
    for name, run in cells.items():
        place = made / "cells" / f"{name},ranks=2,repeat=1"
        place.mkdir(parents=True)
        if run:
            shutil.copytree(folder / "cpu_runs.tar.xz" / run, place / "attempt-1" / "run")
        told = {"state": "done" if run else "timed out", "reason": "" if run else "no end after 60 s", "seconds": 4.5}
        values = {"batch": name.partition("=")[2]}
        (place / "cell.json").write_text(
            json.dumps({**told, "attempt": "attempt-1", "values": values, "ranks": 2, "repeat": 1})
        )
    about = {"title": "Batch size of train.py", "cells": list(cells), "repeats": 1}
    (made / "study.json").write_text(json.dumps(about))
    (made / "batches.md").write_text("# Batch size of train.py\n")
    return made


def nsys_export(path: Path) -> Path:
    """Two ranks, 40 steps of 20 ms each: 8 ms of kernels, 3 ms of NCCL, 4 ms of copies, and nothing for 5 ms."""
    pids = (111 << 24, 112 << 24)
    names = {1: "gemm_kernel", 2: "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3: "cudaLaunchKernel_v7000", 6: "step"}
    kernels, copies, launches, ranges = [], [], [], []
    for rank, pid in enumerate(pids):
        for step in range(40):
            begin, number = step * 20 * MILLI, 2 * step
            ranges.append((begin, begin + 20 * MILLI, 59, None, 6, pid + 3, 0, None))
            for at, name, length in ((4, 1, 8), (12, 2, 3)):
                number += 1
                start = begin + at * MILLI
                launches.append((start - MILLI, start - MILLI + 5000, pid + 3, number, 3))
                kernels.append((start, start + length * MILLI, rank, 7, number, pid, name))
            copies.append((begin, begin + 4 * MILLI, rank, 8, pid, 64 << 20, 1))
    content = {
        "StringIds": list(names.items()),
        "TARGET_INFO_SESSION_START_TIME": [(1_800_000_000 * 1000 * MILLI,)],
        "PROCESSES": [(pid, pid >> 24, "python") for pid in pids],
        "MPI_RANKS": [(pid, rank) for rank, pid in enumerate(pids)],
        "TARGET_INFO_GPU": [(0, "H100"), (1, "H100")],
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
        "CUPTI_ACTIVITY_KIND_MEMCPY": copies,
        "CUPTI_ACTIVITY_KIND_RUNTIME": launches,
        "NVTX_EVENTS": ranges,
    }
    return made(path, SCHEMA, content)


def shown(run: Path, width: int) -> str:
    """What `rankscope report` prints of it."""
    return to_screen(screen_of(run), width)


@cache
def screen_of(run: Path) -> Screen:
    """Worked out once for all widths, with nothing in it of where the run lies."""
    here = Path.cwd()
    os.chdir(run.parent)
    try:
        return study_screen(Path(run.name), 60) or Run(run.name).screen()
    finally:
        os.chdir(here)


def kept(kind: str, width: int) -> Path:
    return KEPT / f"{kind}-{width}.txt"
