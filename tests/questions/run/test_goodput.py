"""Where the wall time of a job went that was started several times: every figure is known."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.api.lineage import lineage_goodput
from rankscope.api.run import Run, Selection
from rankscope.questions.run.goodput import KINDS, account, attempts, goodput
from rankscope.rank_file import LayerNumber, MarkKind, Part, State
from rankscope.rank_file_writer import RankFileWriter
from rankscope.store.run import RunTables
from runs import long_runs
from runs.small_run import SECOND, START, process, write_run
from runs.step_runs import log, opened, steps

FORWARD, CHECKPOINT = {Part.FORWARD: 100.0}, {Part.FORWARD: 100.0, Part.CHECKPOINT: 50.0}
SLOW = {Part.FORWARD: 300.0}


def attempt(number: int, rank: int, begin_s: int, parts: list[dict[Part, float]], **header: Any) -> RankFileWriter:
    """A rank that starts at a second of the run and begins its first step a second later."""
    at = START + begin_s * SECOND
    loaded = {"ticks": 1, "monotonic_ns": 1, "realtime_ns": at + 1}
    about: dict[str, Any] = {"rank": rank, "world_size": 2, "pid": 100 * number + rank, "attempt": number}
    made = process(**{**about, "loaded": loaded, "started_realtime_ns": at, **header})
    rows = steps(parts)
    made.steps(rows)
    saved_ms = sum(part.get(Part.CHECKPOINT, 0) for part in parts)
    if saved_ms:
        made.tally("torch.save", 1, round(saved_ms * 1e6), layer=LayerNumber.TORCH)
    return made


def run_of_two_attempts(folder: Path, **job: Any) -> RunTables:
    """10 s with 20 steps of 0.1 s, a checkpoint within the 11th, then a hang; 2 s nothing; 10 s with 12 steps."""
    first = [FORWARD] * 10 + [CHECKPOINT] + [FORWARD] * 9
    ranks = [attempt(1, 0, 0, first, state=State.SIGNALLED, end_signal=9), attempt(1, 1, 0, first, exit_code=1)]
    ranks += [attempt(2, rank, 12, [FORWARD] * 6 + [SLOW] + [FORWARD] * 5) for rank in range(2)]
    return opened(folder, *ranks, **{"started_ns": START, **job})


def test_all_kinds_add_up_to_the_wall_time(tmp_path: Path) -> None:
    found = {row[0]: row[1] / 1e9 for row in goodput(run_of_two_attempts(tmp_path)).rows}
    assert sum(found.values()) == pytest.approx(22.0)
    assert found == pytest.approx(
        {
            "useful steps": 1.0 + 1.2,  # the ten before the checkpoint, and all of the second attempt
            "lost steps": 1.0 + 0.1,  # the ten after it, and the one that it did not end
            "slowed steps": 0.2,
            "checkpoint": 0.05,
            "start-up": 2.0,
            "hang": 10 - 1 - 2.05 - 0.1,
            "shutdown": 10 - 1 - 1.4,
            "restart": 2.0,
        },
        rel=1e-6,
    )


def test_the_note_counts_steps_and_attempts(tmp_path: Path) -> None:
    run = run_of_two_attempts(tmp_path)
    assert goodput(run).notes == ["Goodput 10.0% of 22 s: 2 attempts, 22 useful steps, 10 lost."]
    rows = attempts(run).rows
    assert [row[:5] for row in rows] == [(1, 2, 0, 10 * SECOND, 20), (2, 2, 12 * SECOND, 10 * SECOND, 12)]
    assert [row[5] for row in rows] == ["SIGKILL on rank 0; exit 1 on rank 1", "exit 0 on rank 0-1"]


def test_a_run_that_was_started_once(tmp_path: Path) -> None:
    run = opened(tmp_path, attempt(0, 0, 0, [FORWARD] * 5), started_ns=START)
    assert not attempts(run).rows
    assert {row[0] for row in goodput(run).rows} == {"useful steps", "start-up", "shutdown"}


def test_without_steps_there_is_no_goodput(tmp_path: Path) -> None:
    table = goodput(opened(tmp_path, attempt(0, 0, 0, []), started_ns=START))
    assert table.rows and table.notes == [] and "No step of the job was recorded" in table.warnings[0]


def inferred(number: int, rank: int, begin_s: int, lengths_ms: list[float], saved_ms: float = 0, **header: Any) -> Any:
    """A rank of which only the log is known: each step ends with two all-reduces, the first begins a second on."""
    made = attempt(number, rank, begin_s, [], **header)
    now, calls = 1000.0, [("MPI_Allreduce", 8, 990.0, 1000.0)]  # of the set-up
    for length in lengths_ms:
        now += length
        calls += [("MPI_Allreduce", 1 << 20, now - 20, now - 10), ("MPI_Allreduce", 8, now - 9, now)]
    log(made, calls)
    if saved_ms:
        made.tally("torch.save", 1, round(saved_ms * 1e6), layer=LayerNumber.TORCH)
    return made


def test_inferred_steps_count(tmp_path: Path) -> None:
    lengths = [100.0] * 20 + [250.0] + [100.0] * 9
    ranks = [inferred(1, rank, 0, lengths, 150, exit_code=1) for rank in range(2)]
    ranks += [inferred(2, rank, 12, [100.0] * 40) for rank in range(2)]
    table = goodput(opened(tmp_path, *ranks, started_ns=START))
    found = {row[0]: row[1] / 1e9 for row in table.rows}
    assert found == pytest.approx(
        {
            "useful steps": 2.0 + 4.0,  # the twenty before the checkpoint, and all of the second attempt
            "lost steps": 1.0 + 0.1,
            "checkpoint": 0.15,
            "start-up": 2.0,
            "hang": 10 - 1 - 3.15 - 0.1,
            "shutdown": 10 - 1 - 4.0,
            "restart": 2.0,
        },
        abs=0.03,  # the first step ends with the last collective of the pattern
    )
    assert any("inferred" in note for note in table.notes) and not table.warnings
    assert any("2 attempts, 60 useful steps, 10 lost" in note for note in table.notes)


def test_compilation_is_taken_from_what_it_lies_in(tmp_path: Path) -> None:
    made = attempt(0, 0, 0, [{Part.FORWARD: 700.0}, *[FORWARD] * 9])
    made.tally("torch.compile", 2, round(0.5 * SECOND), layer=LayerNumber.TORCH, phase=4)
    found = {row[0]: row[1] / 1e9 for row in goodput(opened(tmp_path, made, started_ns=START)).rows}
    assert found["compilation"] == pytest.approx(0.5) and found["start-up"] == pytest.approx(1.0 + 0.1)
    assert sum(found.values()) == pytest.approx(10.0) and found["useful steps"] == pytest.approx(1.0)


def test_runs_of_one_lineage_are_joined(tmp_path: Path) -> None:
    for at, lineage in enumerate(("gpt", "gpt", "other")):
        began = 15 * at
        made = attempt(0, 0, began, [FORWARD] * 10, exit_code=at == 0)
        write_run(tmp_path / f"run-{at}", made, started_ns=START + began * SECOND, lineage=lineage)
    table = lineage_goodput(tmp_path / "run-1")
    found = {row[0]: row[1] / 1e9 for row in table.rows}
    assert found["queue"] == pytest.approx(5.0) and sum(found.values()) == pytest.approx(25.0)
    assert found["lost steps"] == pytest.approx(1.1)  # the first run left no checkpoint
    assert "2 runs, 2 attempts, 10 useful steps, 10 lost" in table.notes[0]
    alone = lineage_goodput(tmp_path / "run-1", alone=True)
    assert sum(row[1] for row in alone.rows) == pytest.approx(10 * SECOND)


PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import rankscope; rankscope.step()"],
    env={**os.environ, "RANK": "0", "WORLD_SIZE": "1"})
child.wait()
print(time.time_ns())
"""


def test_a_rank_has_ended_when_its_parent_learns_it(rankscope: Path, tmp_path: Path) -> None:
    words = [rankscope, "run", "--out", tmp_path / "run", sys.executable, "-c", PARENT]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    tables = Run(tmp_path / "run").store()
    ((ended, reaped),) = tables.query("SELECT ended_ns, reaped_ns FROM ranks WHERE role = 'rank'")
    assert ended <= reaped <= int(done.stdout) + 1_000_000
    made = account(tables)
    assert made is not None and made.ended_ns == reaped


def test_every_kind_says_what_belongs_to_it() -> None:
    assert all(KINDS.values())


@pytest.mark.parametrize("checkpoints", [1_000, 9_000])
def test_what_was_overwritten_counts_as_if_it_were_not(tmp_path: Path, checkpoints: int) -> None:
    """20,000 steps of which 8,192 are held one by one; a checkpoint long ago, a slow stretch, single long steps."""
    random = np.random.default_rng(4)
    own = 10 * np.exp(random.normal(0, 0.02, 20_000))
    own[:2], own[5_000:5_700], own[random.integers(10, 20_000, 60)] = 400, 16, 50
    written = np.zeros(20_000)
    written[checkpoints - 1 :: checkpoints] = 80
    rows = long_runs.steps_of(own, np.full(20_000, 1.0), checkpoint_ms=written)
    accounts = []
    for capacity in (32_768, long_runs.RING):
        made = process(rank=0, world_size=1, exit_code=1, ended_ticks=int(rows["end_ticks"][-1]) + SECOND)
        made.steps(rows[-capacity:], capacity=capacity)
        made.step_blocks(long_runs.blocks_of(rows))
        made.tally("torch.save", 1, round(written.sum() * 1e6), layer=LayerNumber.TORCH)
        made.marks((MarkKind.FIRST_STEP_BEGIN, int(rows["begin_ticks"][0]), ""))
        accounts.append(account(opened(tmp_path / str(capacity), made, started_ns=START)))
    whole, cut = accounts
    assert whole is not None and cut is not None and (cut.useful, cut.lost) == (whole.useful, whole.lost)
    assert cut.wall_ns == whole.wall_ns and sum(cut.kinds.values()) == pytest.approx(cut.wall_ns, rel=1e-4)
    for kind, time_ns in whole.kinds.items():
        assert cut.kinds[kind] == pytest.approx(time_ns, rel=0.02, abs=2e-4 * whole.wall_ns), kind


def test_steps_that_only_the_collectives_show_count(tmp_path: Path) -> None:
    """By the command and by the table: a program of MPI marks no steps, and they are in its log."""
    archive = Path(__file__).resolve().parents[2] / "runs" / "cpu_runs.tar.xz"
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    run = tmp_path / "mpi_toy"
    [asked] = Run(run).answers(["goodput"], Selection())
    for table in (lineage_goodput(run), asked):
        assert not table.warnings and next(row for row in table.rows if row[0] == "useful steps")[1] > 0.5 * SECOND
