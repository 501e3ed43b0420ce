"""Nonblocking collectives of MPI: a rank late for its wait holds the others up, unless the data move by themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mpis import Mpi
from programs import jobs
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.whatif.changes import Change
from rankscope.questions.whatif.nonblocking import moved_by_waiting
from rankscope.questions.whatif.whatif import Model, model_of
from rankscope.rank_file import COLLECTIVE, WAITED_SHIFT, CollectiveFlag, Part
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs.small_run import MILLI
from runs.step_runs import opened, rank, steps

STEPS, STEP_MS = 12, 30.0
LATE = Change("rank", ranks=(1,))


def reduced(folder: Path, waits_ms: Sequence[float], ends_ms: Sequence[float]) -> Model:
    """Ranks that issue an all-reduce at the begin of a step, compute, wait for it, and end the step together."""
    writers = []
    for at, (wait, end) in enumerate(zip(waits_ms, ends_ms, strict=True)):
        writer = rank(at, len(waits_ms))
        stood = end - wait
        own = {Part.FORWARD: STEP_MS - stood, Part.COMMUNICATION: stood}
        writer.steps(steps([own] * STEPS, [{Part.COMMUNICATION: stood}] * STEPS))
        rows = np.zeros(STEPS, COLLECTIVE)
        rows["name"], rows["bytes"] = writer.string("MPI_Iallreduce"), 1 << 14
        rows["group"] = writer.group("MPI_COMM_WORLD", identity=1, size=len(waits_ms), my_rank=at, collectives=STEPS)
        begins = 1000 + STEP_MS * np.arange(STEPS)
        rows["enter_ticks"], rows["end_ticks"] = np.round(begins * MILLI), np.round((begins + end) * MILLI)
        rows["call_ticks"] = round(stood * MILLI) >> WAITED_SHIFT
        rows["flags"] = CollectiveFlag.NONBLOCKING | CollectiveFlag.WAITED
        rows["sequence"], rows["root"], rows["phase"] = np.arange(STEPS) + 1, -1, 5
        writer.collectives(rows)
        writers.append(writer)
    return model_of(opened(folder, *writers, expected_ranks=len(waits_ms)))


def test_a_rank_late_for_its_wait_holds_the_others_up(tmp_path: Path) -> None:
    """Ranks 0 and 2 wait from 10 ms on, rank 1 from 28 ms; all leave at 29: without the 18 ms a step takes 12."""
    model = reduced(tmp_path, (10.0, 28.0, 10.0), (29.0, 29.0, 29.0))
    assert model.replayed_ns == pytest.approx(30e6, rel=1e-3)
    assert model.changed_ns([LATE]).mean() == pytest.approx(12e6, rel=0.01)
    assert model.changed_ns([Change("rank", ranks=(0,))]).mean() == pytest.approx(30e6, rel=0.01)


def test_data_that_move_by_themselves_wait_for_nobody(tmp_path: Path) -> None:
    """The others leave at 11 ms, long before rank 1 comes to its wait at 28."""
    reduced(tmp_path, (10.0, 28.0, 10.0), (11.0, 29.0, 11.0))
    log = collectives_of(open_run(tmp_path / "run", read_rank_file)).log
    (group,) = log.groups
    waits = moved_by_waiting(group, group.enter_ns, group.end_ns)
    assert not waits.moved.any()
    assert (waits.reached - group.enter_ns)[0] / MILLI == pytest.approx([10.0, 28.0, 10.0], abs=0.01)


def test_a_member_that_gets_its_data_from_another(tmp_path: Path) -> None:
    """Rank 0 is held up by rank 1 alone until 28 ms; rank 2 only by rank 0, which comes at 10, as Open MPI does it."""
    model = reduced(tmp_path, (10.0, 28.0, 8.0), (29.0, 29.0, 11.0))
    assert model.replayed_ns == pytest.approx(30e6, rel=1e-3)
    log = collectives_of(open_run(tmp_path / "run", read_rank_file)).log
    waits = moved_by_waiting(log.groups[0], log.groups[0].enter_ns, log.groups[0].end_ns)
    assert waits.moved.all() and waits.held_by[0].tolist() == [[True] * 3, [True] * 3, [True, False, True]]


@pytest.mark.slow
def test_a_real_job(mpi: Mpi, tmp_path: Path) -> None:
    """Rank 1 computes 20 ms longer between MPI_Iallreduce and MPI_Wait; foretold is what the job takes without that."""
    seconds = {}
    for which in ((), ("--without",)):
        program = [mpi.python, jobs.PROGRAMS / "one_problem_mpi.py", "nonblocking", *which, "--steps", "60"]
        done = jobs.run(mpi, 3, tmp_path / f"run{len(which)}", *program)
        assert done.code == 0, done.err
        seconds[which] = max(map(float, re.findall(r"\"loop_s\": ([0-9.]+)", done.out)))
    model = model_of(open_run(tmp_path / "run0", read_rank_file))
    without_ns = model.changed_ns([LATE]).mean()
    saved_ns = (seconds[()] - seconds[("--without",)]) / 60 * 1e9
    assert model.replayed_ns.mean() - without_ns == pytest.approx(saved_ns, rel=0.1)
    assert without_ns < 0.5 * model.replayed_ns.mean()
