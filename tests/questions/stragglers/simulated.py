"""Training runs whose cause of lateness is known, written as rank files: for developing the rule, no proof of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.rank_file import COLLECTIVE, STEP, GroupKind, MarkKind, Part, StepFlag
from rankscope.rank_file_writer import RankFileWriter
from runs.small_run import MILLI, SECOND, process, write_run

MICRO = 1_000
USUAL_NS = {Part.DATA: 2, Part.ZERO_GRAD: 0.2, Part.FORWARD: 6, Part.BACKWARD: 10, Part.OPTIMIZER: 1.5, Part.OTHER: 0.5}
CAUSES = {
    "data loading": Part.DATA,
    "forward": Part.FORWARD,
    "backward": Part.BACKWARD,
    "optimizer": Part.OPTIMIZER,
    "garbage collection": Part.OTHER,
    "preemption": Part.FORWARD,
    "page faults": Part.FORWARD,
}
BEGIN_NS = 2 * SECOND


@dataclass(frozen=True)
class Case:
    """What is wrong with which rank; cause "" for nothing."""

    ranks: int
    cause: str = ""
    rank: int = -1
    delay_ns: float = 0.0  # a step
    every: int = 1  # steps from one delay to the next, which is as many times longer
    steps: int = 80
    jitter: float = 0.08
    imbalance: float = 0.005


def random_case(random: np.random.Generator) -> Case:
    ranks = int(random.integers(2, 9))
    cause = str(random.choice(["", *CAUSES]))
    if not cause:
        return Case(ranks, steps=int(random.integers(40, 200)))
    return Case(
        ranks,
        cause,
        int(random.integers(ranks)),
        float(random.uniform(2.0, 15.0)) * MILLI,
        every=int(random.choice([1, 1, 1, 4])),
        steps=int(random.integers(40, 200)),
    )


def write_case(folder: Path, case: Case, random: np.random.Generator) -> Path:
    """The run's folder."""
    steps, log = _simulated(case, random)
    return write_run(folder, *(_rank_file(case, rank, steps, log) for rank in range(case.ranks)), launcher="torchrun")


def _simulated(case: Case, random: np.random.Generator) -> tuple[Any, Any]:
    steps, log = np.zeros((case.ranks, case.steps), STEP), np.zeros((case.ranks, case.steps), COLLECTIVE)
    pace = random.normal(1, case.imbalance, case.ranks)
    now = np.full(case.ranks, float(BEGIN_NS))
    for at in range(case.steps):
        common = random.lognormal(0, 0.1)
        parts = np.zeros((case.ranks, Part.COMPUTE))  # which has members of its own in a record
        for part, usual_ms in USUAL_NS.items():
            parts[:, part] = usual_ms * MILLI * common * pace * random.lognormal(0, case.jitter, case.ranks)
        if at == 0:
            parts[:, Part.FORWARD] *= 8  # warm-up
        stalled = (random.random(case.ranks) < 0.02) * random.exponential(2 * MILLI, case.ranks)
        parts[:, Part.FORWARD] += stalled
        row = steps[:, at]
        row["runnable_ns"] = stalled + random.exponential(20 * MICRO, case.ranks)
        row["minor_faults"] = random.poisson(20, case.ranks)
        _inject(case, at, parts, row)
        begin = now.copy()
        before = parts[:, : Part.OPTIMIZER].sum(axis=1)
        enter = begin + before
        left = enter.max() + 400 * MICRO * random.lognormal(0, 0.2) + random.exponential(10 * MICRO, case.ranks)
        blocked = left - enter
        now = left + parts[:, Part.OPTIMIZER :].sum(axis=1)
        parts[:, Part.BACKWARD] += blocked
        row["number"], row["flags"] = at + 1, StepFlag.WARMUP if at < 2 else 0
        row["begin_ticks"], row["end_ticks"], row["part_ticks"] = begin, now, parts
        row["blocked_ticks"][:, Part.BACKWARD] = blocked
        row["covered_ticks"] = row["progress_ticks"] = blocked
        row["collectives"], row["backwards"], row["optimizer_steps"] = 1, 1, 1
        log[:, at]["enter_ticks"], log[:, at]["end_ticks"], log[:, at]["sequence"] = enter, left, at + 1
    return steps, log


def _inject(case: Case, at: int, parts: Any, row: Any) -> None:
    if not case.cause or at % case.every:
        return
    delay = case.delay_ns * case.every
    parts[case.rank, CAUSES[case.cause]] += delay
    if case.cause == "garbage collection":
        row["gc_ticks"][case.rank] = delay
    if case.cause == "preemption":
        row["runnable_ns"][case.rank] += delay
        row["involuntary_switches"][case.rank] += 5
    if case.cause == "page faults":
        row["minor_faults"][case.rank] += int(delay / 800)


def _rank_file(case: Case, rank: int, steps: Any, log: Any) -> RankFileWriter:
    end = int(steps["end_ticks"].max()) + SECOND
    made = process(rank=rank, world_size=case.ranks, pid=100 + rank, ended_ticks=end, rank_source=6)
    group = made.group("default_pg", identity=7, size=case.ranks, my_rank=rank, kind=GroupKind.PROCESS_GROUP)
    rows = log[rank].copy()
    rows["group"], rows["name"], rows["bytes"] = group, made.string("gloo:all_reduce"), 4 << 20
    rows["root"], rows["phase"] = -1, 5
    made.collectives(rows)
    made.steps(steps[rank])
    made.marks(
        (MarkKind.INTERPRETER, 100 * MILLI, ""),
        (MarkKind.IMPORT_BEGIN, 200 * MILLI, "torch"),
        (MarkKind.IMPORT_END, 1_200 * MILLI, "torch"),
        (MarkKind.INIT_BEGIN, 1_300 * MILLI, "init_process_group"),
        (MarkKind.INIT_END, 1_500 * MILLI, "init_process_group"),
        (MarkKind.FIRST_STEP_BEGIN, BEGIN_NS, ""),
        (MarkKind.FIRST_COLLECTIVE_BEGIN, int(rows["enter_ticks"][0]), "gloo:all_reduce"),
        (MarkKind.FIRST_COLLECTIVE_END, int(rows["end_ticks"][0]), "gloo:all_reduce"),
        (MarkKind.FIRST_STEP_END, int(steps[rank]["end_ticks"][0]), ""),
    )
    return made
