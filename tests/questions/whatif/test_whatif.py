"""What-ifs against jobs whose truth is known: worked out by hand, simulated, or recorded with a known straggler."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpis import ROOT
from rankscope.cli.load import run as load
from rankscope.formats.operations import read
from rankscope.formats.source import Source
from rankscope.model.records import Event, Group, RankFacts, Reading, Step
from rankscope.model.tables import Words, Wrong, names_of
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.findings.finding import seconds
from rankscope.questions.findings.table import findings_of
from rankscope.questions.messages import Messages
from rankscope.questions.parallelism.bubbles import bubbles
from rankscope.questions.whatif.changes import Change, parsed
from rankscope.questions.whatif.message_calls import calls_of
from rankscope.questions.whatif.of_collectives import programs_of_collectives
from rankscope.questions.whatif.program import Builder, Join, Program
from rankscope.questions.whatif.whatif import Model, critical_path, model_of, whatif
from rankscope.rank_file import Part
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run
from runs.loaded import run_of, shared_file
from runs.small_run import MILLI
from runs.step_runs import log, opened, rank, steps
from synthetic_operations import Job, simulate, write

PART = Part


def two_ranks() -> Program:
    """Rank 0 computes 3 and rank 1 computes 5, then both reduce for 2, then compute 1."""
    builder = Builder(1)

    def ns(value: float) -> Any:
        return np.array([value])

    own = [builder.add(at, "compute", [], ns(0), ns(took), peers="first") for at, took in enumerate((3.0, 5.0))]
    both = [
        builder.add(at, "reduce", [own[at]], ns(0), ns(2.0), transfers=True, peers="reduce", peers_of_stages="reduce")
        for at in range(2)
    ]
    builder.join(both)
    for at in range(2):
        builder.add(at, "compute", [both[at]], ns(0), ns(1.0), peers="last")
    made = builder.program([0, 1], np.array([1]), np.array([8.0]))
    assert made is not None
    return made


def test_by_hand() -> None:
    model = Model([two_ranks()], "by hand")
    assert model.replayed_ns.tolist() == [8.0] and model.refusal() == ""
    assert model.changed_ns([Change("rank", ranks=(1,))]).tolist() == [6.0]  # 3, 2, 1
    assert model.changed_ns([Change("rank", ranks=(0,))]).tolist() == [8.0]
    assert model.changed_ns([Change("ideal")]).tolist() == [6.0]
    assert model.changed_ns([Change("bandwidth", factor=2.0)]).tolist() == [7.0]
    assert model.changed_ns([Change("overlap")]).tolist() == [6.0]
    rows = critical_path(model).rows
    assert rows[0][:2] == (1, "compute") and rows[0][2] == pytest.approx(5.0 + (1.0 if len(rows) == 2 else 0.0))


def test_a_model_that_misses_the_steps_refuses() -> None:
    program = two_ranks()
    program.recorded_ns = np.array([8.3])
    assert "misses the recorded steps by 3.6 %" in Model([program], "").refusal()


@pytest.mark.parametrize(
    ("join", "root", "told"),
    [(Join.ROOT, 1, [5, 5, 7]), (Join.AT_ROOT, 0, [7, 5, 7]), (Join.LOWER, 0, [3, 5, 7]), (Join.BELOW, 0, [3, 5, 7])],
)
def test_who_is_held_up(join: Join, root: int, told: list[float]) -> None:
    start = np.array([[3.0], [5.0], [7.0]])
    assert Program.joined(start, join, root)[:, 0].tolist() == told
    assert Program.joined(start[::-1], Join.BELOW, 0)[:, 0].tolist() == [7, 7, 7]


def test_a_circle_is_no_program() -> None:
    builder = Builder(1)
    builder.add(0, "a", [1], np.zeros(1), np.zeros(1))
    builder.add(0, "b", [0], np.zeros(1), np.zeros(1))
    assert builder.program([0], np.array([1]), np.array([1.0])) is None


# ---------------------------------------------------------------- simulated jobs
def loaded(folder: Path, job: Job) -> RunTables:
    write(folder / "table.parquet", job)
    return run_of(read(Source(folder / "table.parquet")))


JOBS = {
    "1f1b, slow rank": (Job(slow_ranks={5: 1.4}, steps=8), Change("rank", ranks=(5,))),
    "gpipe, slow stage": (Job("gpipe", slow_stages={2: 1.3}, steps=8), Change("stage", stages=(2,))),
    "gpipe, slow link": (Job("gpipe", data=3, slow_links={4: 30.0}, steps=8), Change("rank", ranks=(4,))),
    "1f1b, slow rank, waits that no operation tells": (
        Job(data=4, micro_batches=16, slow_ranks={0: 2.4}, steps=8, unrecorded=True, tensor=4),
        Change("rank", ranks=(0,)),
    ),
    "1f1b, slow link, waits that no operation tells": (  # and a send that goes on while its rank waits already
        Job(stages=2, data=3, micro_batches=12, slow_links={0: 26.0}, steps=8, noise=0.01, unrecorded=True),
        Change("rank", ranks=(0,)),
    ),
    "ddp, slow rank": (Job("ddp", stages=1, data=8, slow_ranks={3: 1.5}, steps=8), Change("rank", ranks=(3,))),
}


@pytest.mark.parametrize("slow", [{}, {2: 1.4}])
def test_micro_batches_that_differ(slow: dict[int, float], tmp_path: Path) -> None:
    """As of sequences of unequal length; the same job with all of them packed evenly is the truth."""
    job = Job(stages=4, data=4, micro_batches=8, steps=12, uneven=0.4, slow_stages=slow)
    tables = loaded(tmp_path, job)
    model = model_of(tables)
    packed_ns = np.mean(simulate(replace(job, is_packed=True))[1]) * 1e9
    assert model.replayed_ns.mean() > 1.2 * packed_ns
    assert model.changed_ns([Change("even")]).mean() == pytest.approx(packed_ns, rel=0.02)
    rows = {str(row[0]): float(str(row[1])) for row in whatif(model, []).rows}
    even_ns = rows["all micro-batches alike"]
    assert rows["ideal: no rank ever late, the same work shared evenly by stages and micro-batches"] <= even_ns * 1.001
    both = [Change("balance"), Change("even")]
    assert model.changed_ns(both) == pytest.approx(model.changed_ns(both[::-1]))
    found = {finding.rule: finding for finding in findings_of(tables)}
    saved_ns = found["uneven_micro_batches"].saved_ns
    assert saved_ns is not None and saved_ns / 12 == pytest.approx(model.replayed_ns.mean() - packed_ns, rel=0.05)


def test_micro_batches_that_are_alike(tmp_path: Path) -> None:
    for job in (Job(steps=8, noise=0.1), Job(steps=8, slow_ranks={3: 2.0}), Job("ddp", 1, 8, steps=8, noise=0.1)):
        tables = loaded(tmp_path, job)
        assert "uneven_micro_batches" not in [finding.rule for finding in findings_of(tables)]
        assert "all micro-batches alike" not in [row[0] for row in whatif(model_of(tables), []).rows]


@pytest.mark.parametrize("name", JOBS)
def test_against_the_same_job_without_its_problem(name: str, tmp_path: Path) -> None:
    job, change = JOBS[name]
    model = model_of(loaded(tmp_path, job))
    assert np.median(model.errors) < 0.001
    truth = np.mean(simulate(job.healthy())[1]) * 1e9
    assert model.changed_ns([change]).mean() == pytest.approx(truth, rel=0.01)
    assert model.replayed_ns.mean() > 1.1 * truth
    tried = [row[0] for row in whatif(model, []).rows]
    fixes = [str(words) for words in tried if str(words).startswith(("rank", "stage"))]
    assert change.words in fixes[:2]


def test_a_healthy_job_has_nothing_to_save(tmp_path: Path) -> None:
    model = model_of(loaded(tmp_path, Job(steps=8)))
    told = {row[0]: row[5] for row in whatif(model, []).rows}
    assert all(share < 0.03 for words, share in told.items() if str(words).startswith(("rank", "stage")))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_bubble_of_a_balanced_pipeline(schedule: str, tmp_path: Path) -> None:
    job = Job(schedule, noise=0.0, message_s=0.0, steps=2, micro_batches=8)
    table = bubbles(loaded(tmp_path, job))
    assert len(table.rows) == job.stages
    for row in table.rows:
        told = dict(zip((column.name for column in table.columns), row, strict=True))
        assert told["bubble_share"] == pytest.approx(3 / 11, rel=0.01)
        parts = ("compute_ns", "collective_ns", "warmup_ns", "drain_ns", "transfer_ns", "imbalance_ns")
        assert sum(told[name] for name in parts) == pytest.approx(told["window_ns"], rel=1e-6)
    assert table.notes[0].startswith({"gpipe": "GPipe", "1f1b": "1F1B"}[schedule])


def test_the_sample_of_a_real_job() -> None:
    """Replayed to the step; the last stage, which has the loss, is what its steps hang on."""
    tables = run_of(read(Source(shared_file("samples/operations/trace.parquet"))))
    model = model_of(tables)
    assert model.errors.max() < 0.02 and len(model.errors) == 32
    table = whatif(model, [])
    assert table.rows[0][0] == "stage 3 with no more work than the median stage" and table.rows[0][5] == pytest.approx(
        0.239, abs=0.01
    )
    path = critical_path(model).rows
    assert sum(row[4] for row in path if row[1] == 3) > 0.6


@pytest.mark.slow
def test_the_sample_worked_out_a_second_time() -> None:
    """By a script that shares no code with ours: it ends with 1 where one what-if is 1 % apart."""
    sample = shared_file("samples/operations/trace.parquet")
    script = [sys.executable, str(ROOT / "scripts" / "whatif_check.py"), str(sample)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("late", [0, 13])
def test_waits_without_an_operation_worked_out_a_second_time(late: int, tmp_path: Path) -> None:
    job = Job(data=4, micro_batches=16, slow_ranks={late: 2.4}, steps=8, unrecorded=True)
    write(tmp_path / "table.parquet", job)
    script = [sys.executable, str(ROOT / "scripts" / "whatif_check.py"), str(tmp_path / "table.parquet")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stage 3: ranks wait for each other" in done.stdout
    assert "data-parallel rank 0: ranks wait for each other" in done.stdout


# ---------------------------------------------------------------- recorded runs
def straggler(folder: Path) -> RunTables:
    """Ranks 0 to 2 compute 10 ms and rank 3 15 ms, of which 5 ms are data; then all reduce for 2 ms."""
    made = []
    for at in range(4):
        own = {PART.FORWARD: 10.0, PART.COMMUNICATION: 2.0 if at == 3 else 7.0}
        own |= {PART.DATA: 5.0} if at == 3 else {}
        blocked = {PART.COMMUNICATION: own[PART.COMMUNICATION]}
        writer = rank(at, 4)
        writer.steps(steps([own] * 12, [blocked] * 12))
        enter = 15.0 if at == 3 else 10.0
        log(writer, [("MPI_Allreduce", 8, 1000 + 17 * step + enter, 1000 + 17 * step + 17) for step in range(12)])
        made.append(writer)
    return opened(folder, *made, expected_ranks=4)


def test_a_recorded_straggler(tmp_path: Path) -> None:
    model = model_of(straggler(tmp_path))
    assert model.replayed_ns == pytest.approx(17e6, rel=1e-3) and np.median(model.errors) < 1e-3
    for change in (Change("rank", ranks=(3,)), Change("ideal"), Change("cause", cause="data")):
        assert model.changed_ns([change]).mean() == pytest.approx(12e6, rel=1e-3)
    assert model.changed_ns([Change("bandwidth", factor=2.0)]).mean() == pytest.approx(16e6, rel=1e-3)
    both = [Change("rank", ranks=(3,)), Change("bandwidth", factor=2.0)]
    assert model.changed_ns(both).mean() == pytest.approx(11e6, rel=1e-3)
    shares = {(row[0], row[1]): row[3] for row in critical_path(model).rows}
    assert shares[3, "forward"] == pytest.approx(10 / 17, rel=0.02) and shares[3, "data loading"] == pytest.approx(
        5 / 17, rel=0.02
    )


def traced() -> list[Reading]:
    """Two ranks of a trace: all-reduces issued after 10 and 15 ms that end at 17, steps of 20 ms; 2 ms are transfer."""
    made = []
    for at, issued in enumerate((10, 15)):
        facts = RankFacts(rank=at, world_size=2, tool="kineto", steps_from="ProfilerStep")
        one = Reading(facts, groups=[Group("0", "0", size=2, my_rank=at)])
        for step in range(10):
            begin = 20 * MILLI * step
            one.events.append(
                Event(
                    "gloo", "all_reduce", begin + issued * MILLI, begin + 17 * MILLI, "0", step + 1, 8, kind="progress"
                )
            )
            values: dict[str, Any] = dict.fromkeys(names_of(Step), 0)
            values |= {"number": step + 1, "begin_ns": begin, "end_ns": begin + 20 * MILLI, "other_ns": 20 * MILLI}
            values |= dict.fromkeys(("warmup", "accumulated", "skipped", "told", "by_backward"), False)
            one.steps.append(Step(**values))
        made.append(one)
    return made


def test_a_trace_that_does_not_tell_when_ranks_are_blocked() -> None:
    model = model_of(run_of(traced()))
    assert model.replayed_ns == pytest.approx(20e6, rel=1e-3) and any("blocked" in note for note in model.notes)
    assert model.changed_ns([Change("rank", ranks=(1,))]).mean() == pytest.approx(15e6, rel=1e-3)


def tensor_parallel() -> list[Reading]:
    """Two ranks that wait in a step of 20 ms for an all-reduce in progress, issued after 5 and 15 ms and over at 16;
    another is issued after 18 ms and over at 19."""
    made = []
    for at, issued in enumerate((5, 15)):
        one = Reading(RankFacts(rank=at, world_size=2), groups=[Group("0", "0", size=2, my_rank=at)])
        for step in range(14):
            begin = 20 * MILLI * step
            for which, (enter, end) in enumerate(((issued, 16), (18, 19))):
                times = (begin + enter * MILLI, begin + end * MILLI)
                one.events.append(Event("gloo", "all_reduce", *times, "0", 2 * step + which + 1, 8, kind="progress"))
            values: dict[str, Any] = dict.fromkeys(names_of(Step), 0)
            values |= {"number": step + 1, "begin_ns": begin, "end_ns": begin + 20 * MILLI, "forward_ns": 20 * MILLI}
            values |= {"blocked_forward_ns": (17 - issued) * MILLI, "exposed_ns": (17 - issued) * MILLI}
            values |= dict.fromkeys(("warmup", "accumulated", "skipped", "told", "by_backward"), False)
            one.steps.append(Step(**values))
        made.append(one)
    return made


def test_a_rank_that_is_waited_for_within_the_step() -> None:
    """The other issues its next collective late because it waited: without rank 1's 10 ms both steps take 10."""
    model = model_of(run_of(tensor_parallel()))
    assert model.replayed_ns == pytest.approx(20e6, rel=1e-3)
    assert model.changed_ns([Change("rank", ranks=(1,))]).mean() == pytest.approx(10e6, rel=1e-3)


def woken_early() -> list[Reading]:
    """Two ranks blocked until the end of a step of 20 ms by an all-reduce issued after 5 and 15 ms; in every other step
    rank 0 notes its end 0.1 ms after that of the step, which by itself would mean that it did not wait for it."""
    made = []
    for at, issued in enumerate((5, 15)):
        one = Reading(RankFacts(rank=at, world_size=2), groups=[Group("0", "0", size=2, my_rank=at)])
        for step in range(14):
            begin = 20 * MILLI * step
            end = begin + 20 * MILLI + (100_000 if step % 2 and not at else -100_000)
            one.events.append(
                Event(
                    "gloo", "all_reduce", begin + issued * MILLI, end, "0", step + 1, 8, call_ns=5_000, kind="progress"
                )
            )
            values: dict[str, Any] = dict.fromkeys(names_of(Step), 0)
            values |= {"number": step + 1, "begin_ns": begin, "end_ns": begin + 20 * MILLI, "backward_ns": 20 * MILLI}
            values |= {"blocked_backward_ns": (20 - issued) * MILLI, "exposed_ns": (20 - issued) * MILLI}
            values |= dict.fromkeys(("warmup", "accumulated", "skipped", "told", "by_backward"), False)
            one.steps.append(Step(**values))
        made.append(one)
    return made


def test_an_end_that_is_noted_after_the_step_holds_it_up_all_the_same() -> None:
    model = model_of(run_of(woken_early()))
    assert model.replayed_ns == pytest.approx(20e6, rel=1e-3)
    assert model.changed_ns([Change("rank", ranks=(1,))]) == pytest.approx(10e6, rel=0.01)


def exchanging(folder: Path, entered: Sequence[float], step_ms: float) -> RunTables:
    """12 steps whose ranks enter a reduction after so many ms and leave it at the end."""
    made = []
    for at, enter in enumerate(entered):
        own = {PART.FORWARD: enter, PART.COMMUNICATION: step_ms - enter}
        writer = rank(at, len(entered))
        writer.steps(steps([own] * 12, [{PART.COMMUNICATION: step_ms - enter}] * 12))
        begins = [1000 + step_ms * step for step in range(12)]
        log(writer, [("MPI_Allreduce", 8, begin + enter, begin + step_ms) for begin in begins])
        made.append(writer)
    return opened(folder, *made, expected_ranks=len(entered))


def ring(folder: Path) -> tuple[RunTables, Messages]:
    """Each of 3 ranks computes 10 ms (rank 2: 15), sends to the next and receives in 1 ms, computes 3, reduces in 1."""
    compute = [10.0, 10.0, 15.0]
    received = [max(compute[at], compute[at - 1]) + 1.0 for at in range(3)]
    tables = exchanging(folder, [over + 3.0 for over in received], 20.0)
    told = []
    for at, over in enumerate(received):
        sent, came = compute[at - 1], compute[at]
        told.append(((at - 1) % 3, at, sent, sent, came, over, 0.0, over - came))
    return tables, matched(tables, told, 20.0)


def matched(tables: RunTables, told: Sequence[Sequence[float]], step_ms: float, size: int = 8) -> Messages:
    """Messages of each of 12 steps: sender, receiver, begin and end of both and time in the calls that end them, ms."""
    rows = np.array(
        [[*one[:2], *(one[2:6] + step * step_ms * np.ones(4)), *one[6:]] for step in range(12) for one in told]
    )
    (first,) = tables.query("SELECT min(begin_ns) FROM steps")[0]
    sender, receiver = rows[:, :2].T.astype(np.int64)
    times = np.round(rows[:, 2:] * 1e6).astype(np.int64).T
    zero = np.zeros(len(rows), np.int64)
    about = (Words(zero, ["world"]), zero, zero + size)
    return Messages(sender, receiver, *about, *(times[:4] + first), *times[4:], *[zero] * 4, zero.astype(float))


def test_recorded_messages(tmp_path: Path) -> None:
    """Rank 0 waits for the message of rank 2, and all for both: without rank 2 a step takes 10 + 1 + 3 + 1 ms."""
    programs, notes, _ = programs_of_collectives(*ring(tmp_path))
    model = Model(list(programs), "", notes)
    assert model.replayed_ns == pytest.approx(20e6, rel=1e-3) and np.median(model.errors) < 1e-3
    assert not any("message" in note for note in notes)
    assert model.changed_ns([Change("rank", ranks=(2,))]).mean() == pytest.approx(15e6, rel=1e-3)
    assert model.changed_ns([Change("bandwidth", factor=2.0)]).mean() == pytest.approx(19e6, rel=1e-3)
    shares = {(row[0], row[1]): row[3] for row in critical_path(model).rows}
    assert shares[2, "forward"] == pytest.approx(15 / 20, rel=0.02)
    assert shares[0, "message, transfer"] == pytest.approx(1 / 20, rel=0.02)


def replayed(given: tuple[RunTables, Messages]) -> Model:
    programs, notes, _ = programs_of_collectives(*given)
    return Model(list(programs), "", notes)


def test_one_call_that_ends_several_messages(tmp_path: Path) -> None:
    """All exchange with both neighbours after 10 ms (rank 2: 20) and wait 2 ms later, for all of them in one call.

    What rank 0 waits there for rank 2 is no transfer of the message of rank 1.
    """
    posts, leaves = [10.0, 10.0, 20.0], [21.0, 21.0, 23.0]
    tables = exchanging(tmp_path, [leave + 3 for leave in leaves], 27.0)
    pairs = [(one, other) for one in range(3) for other in range(3) if one != other]
    told = [
        (
            *pair,
            *(value for at in pair for value in (posts[at], leaves[at])),
            *(leaves[at] - posts[at] - 2 for at in pair),
        )
        for pair in pairs
    ]
    model = replayed((tables, matched(tables, told, 27.0)))
    assert model.replayed_ns == pytest.approx(27e6, rel=1e-3)
    assert model.changed_ns([Change("rank", ranks=(2,))]).mean() == pytest.approx(17e6, rel=1e-3)  # 10, 2, 1, 3, 1


def test_large_messages_move_while_both_are_in_the_library(tmp_path: Path) -> None:
    """Both post after 10 ms and compute 5 more (rank 1: 15) before they wait: rank 0 is held up until rank 1 waits."""
    tables = exchanging(tmp_path, [29.0, 29.0], 30.0)
    told = [(0, 1, 10.0, 26.0, 10.0, 26.0, 11.0, 1.0), (1, 0, 10.0, 26.0, 10.0, 26.0, 1.0, 11.0)]
    model = replayed((tables, matched(tables, told, 30.0, 1 << 20)))
    assert model.replayed_ns == pytest.approx(30e6, rel=1e-3)
    assert model.changed_ns([Change("rank", ranks=(1,))]).mean() == pytest.approx(20e6, rel=1e-3)


def test_a_small_message_says_nothing_of_larger_ones(tmp_path: Path) -> None:
    """One of 8 bytes ends as its sender comes to its wait; those of 1,024 end 4 ms before that, so they do not wait for
    it, but for the send itself, which comes 5 ms after the receiver."""
    tables = exchanging(tmp_path, [29.0, 29.0], 30.0)
    told = [(0, 1, 1.0, 3.1, 1.0, 3.1, 0.1, 2.1), (0, 1, 10.0, 15.0, 5.0, 11.0, 0.0, 6.0)]
    found = matched(tables, told, 30.0)
    found.bytes[1::2] = 1024
    calls = calls_of(found, collectives_of(tables))
    waited_ms = (calls.enter[calls.awaited] - calls.enter[calls.waits])[: len(found)] / 1e6  # the receives come first
    assert waited_ms[1::2] == pytest.approx(5.0)


def test_a_rank_as_its_peers_varies_as_they_do() -> None:
    """Ranks 0 to 2 compute 10 ± 2 and rank 3 20 ± 2: without its 10 a step takes as long as four such ranks do."""
    drawn = np.random.default_rng(1)
    builder = Builder(400)
    compute = drawn.uniform(8.0, 12.0, (4, 400))
    truth = compute.max(axis=0).mean()
    compute[3] += 10
    for at in range(4):
        builder.add(at, "compute", [], np.zeros(400), compute[at], peers="compute", peers_of_stages="compute")
    program = builder.program([0, 1, 2, 3], np.arange(400), compute.max(axis=0))
    assert program is not None
    model = Model([program], "by hand")
    (row,) = whatif(model, [Change("rank", ranks=(3,))]).rows
    assert row[1] == pytest.approx(truth, rel=0.01)  # with the median in each step it is 3 % less
    assert row[2] < truth < row[3]


def test_a_run_without_noise_does_not_promise_that_others_are_like_it(tmp_path: Path) -> None:
    """Every step takes 12 ms without rank 3's delay; another run of the job may still differ by 2 %."""
    (row,) = whatif(model_of(straggler(tmp_path)), [Change("rank", ranks=(3,))]).rows
    assert row[2:4] == pytest.approx((12e6 * 0.9804, 12e6 * 1.0196), rel=1e-3)
    assert row[6:8] == pytest.approx((5 / 17, 5 / 17), rel=1e-3)  # of these steps the saving is certain


def test_in_windows_as_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run too large for memory is replayed some steps at a time; one step is 16 operations here."""
    whole = model_of(straggler(tmp_path))
    monkeypatch.setattr("rankscope.questions.whatif.of_collectives.MOST_OPERATIONS", 50)
    parts = model_of(open_run(tmp_path / "run", read_rank_file))
    assert len(parts.programs) == 4 and parts.is_large and "4 parts" in parts.notes[-1]
    for change in (Change("rank", ranks=(3,)), Change("ideal"), Change("cause", cause="data")):
        assert parts.changed_ns([change]) == pytest.approx(whole.changed_ns([change]), rel=0.01)
        assert parts.changed_ns([change]).mean() == pytest.approx(12e6, rel=0.01)
    assert parts.replayed_ns == pytest.approx(whole.replayed_ns)
    assert whatif(parts, []).rows and critical_path(parts).rows[0][0] == 3


def test_findings_save_what_the_whatif_says(tmp_path: Path) -> None:
    tables = straggler(tmp_path)
    model = model_of(tables)
    told = {str(row[0]): float(row[4] or 0) for row in whatif(model, []).rows}
    (late,) = [one for one in findings_of(tables) if one.rule == "straggler"]
    assert late.saved_ns == pytest.approx(told["rank 3 as fast as its peers"] * len(model.replayed_ns))
    assert late.saved_ns == pytest.approx(5e6 * len(model.replayed_ns), rel=0.01)


def test_a_late_stage_is_one_finding(tmp_path: Path) -> None:
    tables = loaded(tmp_path, Job("gpipe", slow_stages={2: 1.5}, steps=16))
    model = model_of(tables)
    (late,) = [one for one in findings_of(tables) if "tage 2 (ranks " in one.title]
    assert late.rule == "slow_pipeline_part" and late.evidence[-1].startswith("causes: ")
    saved = model.replayed_ns - model.changed_ns([Change("stage", stages=(2,))])
    assert late.saved_ns == pytest.approx(saved.sum())
    moved = model.replayed_ns - model.changed_ns([Change("balance")])
    ideal = model.replayed_ns - model.changed_ns([Change("ideal", stages=(0, 1, 2, 3))])
    assert late.title.endswith(
        f"; moving layers to other stages would save {seconds(moved.mean())} per step, as those then take longer"
    )
    assert 0 < moved.mean() <= ideal.mean() < saved.mean()


def test_what_a_run_has_not_is_named(tmp_path: Path) -> None:
    model = model_of(straggler(tmp_path))
    for options, told in (
        ({"without": ["rank=9"]}, "no such rank in this run, which has ranks 0-3"),
        ({"without": ["stage=1"]}, "it has no pipeline"),
        ({"without": ["sync"]}, "known are: data"),
        ({"balance": ["stage"]}, "try --ideal"),
        ({"balance": ["micro-batches"]}, "only a table of operations"),
        ({"balance": ["ranks"]}, "write one of stage, micro-batches"),
    ):
        given = {"without": [], "balance": [], "bandwidth": "", "overlap": False, "ideal": False, **options}
        with pytest.raises(Wrong, match=told):
            whatif(model, parsed(**given))
    with pytest.raises(Wrong, match="as in x2"):
        parsed([], [], "fast", False, False)
    with pytest.raises(Wrong, match="rank=7"):
        parsed(["rank=x"], [], "", False, False)


def test_the_command_on_a_recorded_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankscope.cli.whatif import run

    monkeypatch.setenv("COLUMNS", "100")
    straggler(tmp_path)
    assert run([str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "rank 3 as fast as its peers" in shown and "no data time" in shown and "Pipeline" not in shown


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rankscope.cli.whatif import run

    write(tmp_path / "table.csv", Job("ddp", stages=1, data=4, slow_ranks={2: 1.5}, steps=6))
    assert load([str(tmp_path / "table.csv"), "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert run([str(tmp_path / "run"), "--without", "rank=2", "--ideal"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("Model error") < shown.index("rank 2 as fast as its peers") and "together" in shown
    assert run([str(tmp_path / "run"), "--without", "rank=7"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run([str(tmp_path / "nowhere")]) == 2
