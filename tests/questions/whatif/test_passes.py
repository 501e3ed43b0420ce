"""Passes of a pipeline in the own time of its ranks, and a stage that is given the passes of the others: simulated."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from rankscope.model.tables import Words
from rankscope.questions.messages import Messages
from rankscope.questions.parallelism.groups import Pipeline
from rankscope.questions.whatif.changes import Change
from rankscope.questions.whatif.of_collectives import programs_of_collectives
from rankscope.questions.whatif.whatif import Model, path_in_time, whatif
from rankscope.rank_file import Part
from rankscope.store.run import RunTables
from runs.step_runs import opened, rank, steps

STEPS, BATCHES = 12, 6
FORWARD, BACKWARD = 2.0, 4.0  # ms
CALL = 0.01


@dataclass(slots=True)
class Simulated:
    """Step times by stage, and all messages: sender, receiver, posted and received, in ms."""

    lengths: list[list[float]]
    messages: list[tuple[int, int, float, float, float]] = field(default_factory=list)

    @property
    def mean_ms(self) -> float:
        return float(np.mean([one[2:] for one in self.lengths]))


def order(schedule: str, stage: int, stages: int) -> list[tuple[str, int]]:
    """What a stage does in a step."""
    ahead = BATCHES if schedule == "gpipe" else min(BATCHES, stages - stage)
    made = [("F", at) for at in range(ahead)]
    for at in range(BATCHES):
        made.append(("B", at))
        if ahead + at < BATCHES:
            made.append(("F", ahead + at))
    return made


def simulate(schedule: str, stages: int, slow: Mapping[tuple[int, str], float], after_ms: float = 0.5) -> Simulated:
    """Messages take no time; a stage that is early stands in its receive. A step ends so long after its last pass; less
    than 0: before that is over, as the host's may on a GPU."""
    now, begun, made = [0.0] * stages, [0.0] * stages, Simulated([[] for _ in range(stages)])
    for _ in range(STEPS):
        todo = [order(schedule, stage, stages) for stage in range(stages)]
        over: dict[tuple[int, str, int], float] = {}
        while any(todo):
            for stage in range(stages):
                while todo[stage]:
                    kind, batch = todo[stage][0]
                    source = stage - 1 if kind == "F" else stage + 1
                    if 0 <= source < stages:
                        if (source, kind, batch) not in over:
                            break
                        sent, stood = over[source, kind, batch], now[stage]
                        now[stage] = max(stood, sent)
                        made.messages.append((source, stage, sent, stood, now[stage]))
                    now[stage] += (FORWARD if kind == "F" else BACKWARD) * slow.get((stage, kind), 1.0)
                    over[stage, kind, batch] = now[stage]
                    now[stage] += CALL
                    todo[stage].pop(0)
        for stage in range(stages):
            end = now[stage] + after_ms
            made.lengths[stage].append(end - begun[stage])
            now[stage], begun[stage] = max(now[stage], end), end
    return made


def recorded(folder: Path, job: Simulated) -> tuple[RunTables, Messages]:
    ranks = []
    for at, lengths in enumerate(job.lengths):
        writer = rank(at, len(job.lengths))
        writer.steps(steps([{Part.FORWARD: length} for length in lengths]))
        ranks.append(writer)
    tables = opened(folder, *ranks, expected_ranks=len(ranks))
    (first,) = tables.query("SELECT min(begin_ns) FROM steps")[0]
    rows = sorted(job.messages, key=lambda one: (one[1], one[3]))

    def ns(values: Sequence[float]) -> np.ndarray:
        return np.round(np.array(values) * 1e6).astype(np.int64)

    sender, receiver = np.array([one[0] for one in rows]), np.array([one[1] for one in rows])
    sent, stood, came = (ns([one[at] for one in rows]) for at in (2, 3, 4))
    zero = np.zeros(len(rows), np.int64)
    about = (Words(zero, ["world"]), zero, zero + 1024)
    times = (sent + first, sent + first, stood + first, came + first, zero, came - stood)
    return tables, Messages(sender, receiver, *about, *times, sent, stood, zero, zero, zero.astype(float))


def model_of(folder: Path, job: Simulated) -> Model:
    pipeline = Pipeline(tuple(range(len(job.lengths))), BATCHES, 1)
    programs, notes, _ = programs_of_collectives(*recorded(folder, job), [pipeline])
    return Model(list(programs), "", notes)


@pytest.mark.parametrize(("schedule", "after_ms"), [("gpipe", 0.5), ("1f1b", 0.5), ("gpipe", -0.2), ("1f1b", -0.2)])
@pytest.mark.parametrize(
    ("stages", "slow"),
    [
        (2, {(0, "F"): 2.5}),
        (2, {(1, "F"): 2.0, (1, "B"): 2.0}),
        (3, {(1, "F"): 2.5}),
        (3, {(2, "B"): 1.8}),
        (4, {(0, "B"): 2.0}),
        (4, {(3, "F"): 3.0}),
    ],
)
def test_a_stage_with_the_passes_of_the_others(
    tmp_path: Path, schedule: str, after_ms: float, stages: int, slow: dict[tuple[int, str], float]
) -> None:
    job = simulate(schedule, stages, slow, after_ms)
    model = model_of(tmp_path, job)
    assert model.replayed_ns.mean() / 1e6 == pytest.approx(job.mean_ms, rel=1e-3)
    truth = simulate(schedule, stages, {}, after_ms).mean_ms
    stage = next(iter(slow))[0]
    told = {kind: model.changed_ns([change]).mean() / 1e6 for kind, change in (
        ("rank", Change("rank", ranks=(stage,))), ("stage", Change("stage", stages=(stage,))),
    )}  # fmt: skip
    assert told["rank"] == pytest.approx(truth, rel=0.02) and told["stage"] == pytest.approx(truth, rel=0.02)
    assert truth < 0.95 * job.mean_ms


def test_the_passes_before_each_operation(tmp_path: Path) -> None:
    """Each of them once; a stage in the middle has one at a time, the last one both together."""
    model = model_of(tmp_path, simulate("1f1b", 3, {}))
    [program] = model.programs
    assert program.passes is not None and program.stage.max() == 2
    kept = program.step >= 0
    for stage in range(3):
        mine = program.passes[kept & (program.rank == stage)]
        assert mine.sum(axis=0).tolist() == [BATCHES * len(program.numbers)] * 2
    kinds = {tuple(one) for one in program.passes[kept & (program.rank == 1)].tolist()}
    assert kinds <= {(0, 0), (1, 0), (0, 1)}
    assert {tuple(one) for one in program.passes[kept & (program.rank == 2)].tolist()} <= {(0, 0), (1, 1)}


def test_work_shared_evenly_keeps_all_of_it(tmp_path: Path) -> None:
    """Of three stages one takes twice as long: with all alike, each takes 4/3."""
    job = simulate("1f1b", 3, {(1, "F"): 2.0, (1, "B"): 2.0})
    model = model_of(tmp_path, job)
    truth = simulate("1f1b", 3, {(stage, kind): 4 / 3 for stage in range(3) for kind in "FB"}).mean_ms
    for change in (Change("balance"), Change("ideal", stages=(0, 1, 2))):
        assert model.changed_ns([change]).mean() / 1e6 == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize(("stages", "slow"), [(2, {(0, "F"): 2.5}), (4, {(3, "B"): 0.5}), (4, {(3, "F"): 3.0})])
def test_the_ideal_is_never_worse_than_no_change(
    tmp_path: Path, stages: int, slow: dict[tuple[int, str], float]
) -> None:
    """An even share of a forward pass that is hidden behind the others' makes the steps of GPipe longer."""
    model = model_of(tmp_path, simulate("gpipe", stages, slow))
    ideal = model.changed_ns([Change("ideal")]).mean()
    assert ideal <= model.replayed_ns.mean() and ideal <= model.changed_ns([Change("balance")]).mean()
    assert "Each rank is a stage" in " ".join(whatif(model, [Change("rank", ranks=(0,)), Change("ideal")]).notes)


def test_the_critical_path_in_time(tmp_path: Path) -> None:
    """Without a hole, and in most of a step on the slow stage."""
    model = model_of(tmp_path, simulate("1f1b", 3, {(1, "F"): 3.0, (1, "B"): 3.0}))
    path = path_in_time(model)
    holes = [later.begin_ns - one.end_ns for one, later in itertools.pairwise(path)]
    assert max(map(abs, holes)) < 2000  # of the numbers in single precision
    on_slow = sum(one.end_ns - one.begin_ns for one in path if one.rank == 1)
    assert on_slow / (path[-1].end_ns - path[0].begin_ns) > 0.8
    assert {one.what for one in path if one.rank == 1} <= {"forward", "backward", "own time", "message"}
