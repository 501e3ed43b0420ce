"""The loop does something else than computing: on all ranks, or in a few steps that take much longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import numpy as np

from rankscope.model.tables import Tables
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.gpu.steps import device_steps_of
from rankscope.questions.programs.programs import graphs_of, longest_reason, programs_of
from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.data import TITLES, Steps, steps_of
from rankscope.questions.stragglers.causes import causes_of
from rankscope.questions.stragglers.lateness import Chosen
from rankscope.questions.whatif.changes import Change
from rankscope.questions.wording import counted

NOTICEABLE = 0.05  # of the steps

# ---------------------------------------------------------------- the loader is slow everywhere
DATA_NOTICEABLE = 0.1


def data_bound(tables: Tables) -> list[Finding]:
    """All ranks wait for their data loaders: nobody is late, and the step is long. GPUs tell it better themselves."""
    steps = steps_of(tables)
    if device_steps_of(tables):
        return []
    shares = []
    for rank_steps in steps.ranks:
        mask = steps.steady(rank_steps)
        if mask.any() and "data" in rank_steps.own:
            shares.append((float(rank_steps.own["data"][mask].mean()), float(rank_steps.length_ns[mask].mean())))
    least = min((data for data, _ in shares), default=0.0)
    step = mean(length for _, length in shares) if shares else 0.0
    if not shares or least < DATA_NOTICEABLE * step:
        return []
    return [
        Finding(
            "data_bound",
            f"{'All ' + counted(len(shares), 'rank') + ' wait' if len(shares) > 1 else 'The rank waits'} for the data "
            f"loader for {seconds(least)} of each {seconds(step)} step ({100 * least / step:.0f} %)",
            "give the data loader more workers (num_workers) or a faster source, or prefetch more",
            [f"step_parts: no rank waits less than {seconds(least)} per step"],
            least * steps.all_steps(),
            fix=Change("cause", cause="data"),
            loss_ns=least,
        )
    ]


# ---------------------------------------------------------------- garbage collection, checkpoints
@dataclass(slots=True)
class _Taken:
    """What a part takes in all steady steps: of each step on the rank that has most of it, for which all wait."""

    sum_ns: float
    steps_ns: float  # the same steps, whole
    steps: int
    having: int  # steps that have any of it
    all_steps: int  # also those whose records are overwritten

    @property
    def in_all_ns(self) -> float:
        """As if the steps that are overwritten were like those that are not."""
        return self.sum_ns * max(1.0, self.all_steps / self.steps)

    @property
    def is_noticeable(self) -> bool:
        return self.having > 0 and self.steps_ns > 0 and self.sum_ns >= NOTICEABLE * self.steps_ns


def _taken(steps: Steps, ask: Callable[[RankSteps], Any]) -> _Taken:
    common = steps.common()
    if not len(common):
        return _Taken(0.0, 0.0, 0, 0, 0)
    chosen = Chosen(steps.ranks, common)
    most = chosen.table(ask).max(axis=0)
    step_ns = chosen.table(lambda rank_steps: rank_steps.length_ns).mean(axis=0)
    having = int((most > 0).sum())
    return _Taken(float(most.sum()), float(step_ns.sum()), len(common), having, steps.all_steady_steps())


def gc_bound(tables: Tables) -> list[Finding]:
    """Python collects garbage in the steps of all ranks; of one rank alone it is a cause of its lateness."""
    steps = steps_of(tables)
    if device_steps_of(tables) or not all("gc" in rank_steps.of_which for rank_steps in steps.ranks):
        return []
    taken = _taken(steps, lambda rank_steps: rank_steps.of_which["gc"])
    if not taken.is_noticeable or any(cause.name == "garbage collection" for cause in causes_of(tables)):
        return []
    return [
        Finding(
            "gc_bound",
            f"Python collects garbage for {seconds(taken.sum_ns / taken.steps)} of each "
            f"{seconds(taken.steps_ns / taken.steps)} step ({100 * taken.sum_ns / taken.steps_ns:.0f} %)",
            "call gc.freeze() after start-up, or gc.disable() and collect every few hundred steps on all ranks",
            [f"step_parts: GC, {seconds(taken.sum_ns)} in {taken.having} of {counted(taken.steps, 'step')}"],
            taken.in_all_ns,
            fix=Change("cause", cause="gc"),
        )
    ]


def checkpointing(tables: Tables) -> list[Finding]:
    """The loop stands still while checkpoints are written."""
    steps = steps_of(tables)
    if not all("checkpoint" in rank_steps.own for rank_steps in steps.ranks):
        return []
    taken = _taken(steps, lambda rank_steps: rank_steps.own["checkpoint"])
    if not taken.is_noticeable:
        return []
    return [
        Finding(
            "checkpointing",
            f"Checkpoints block the loop: {seconds(taken.sum_ns)}, {100 * taken.sum_ns / taken.steps_ns:.0f} % of "
            "the steps",
            "save them asynchronously (torch.distributed.checkpoint.async_save), shard them over the ranks, write "
            "them to a faster file system, or less often",
            [
                f"step_parts: Checkpoint, {seconds(taken.sum_ns / taken.having)} in each of "
                f"{counted(taken.having, 'step')}"
            ],
            taken.in_all_ns,
            fix=Change("cause", cause="checkpoint"),
        )
    ]


# ---------------------------------------------------------------- torch.compile
COMPILING_NS = 2e9  # before the loop is steady: it is paid once
COMPILED = """
    SELECT rank, coalesce(sum(total_ns) FILTER (tallies.phase <> 'steady'), 0)::DOUBLE,
        coalesce(sum(total_ns) FILTER (tallies.phase = 'steady'), 0)::DOUBLE,
        coalesce(sum(calls) FILTER (tallies.phase <> 'steady'), 0)::BIGINT,
        coalesce(sum(calls) FILTER (tallies.phase = 'steady'), 0)::BIGINT
    FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'torch' AND kind = 'call' AND name = 'torch.compile' GROUP BY rank"""


def compiling(tables: Tables) -> list[Finding]:
    """torch compiles before and in the first step, which is paid once, or later again."""
    compiled = [row[1:] for row in tables.query(COMPILED)]
    if not compiled:
        return _compiling_programs(tables)
    first_ns, later_ns, calls, again = (median(column) for column in zip(*compiled, strict=True))
    findings = []
    if first_ns >= COMPILING_NS:
        findings.append(
            Finding(
                "compiling",
                f"torch compiles for {seconds(first_ns)} before the first step ends",
                "keep its caches between jobs (TORCHINDUCTOR_CACHE_DIR on a persistent disk), or compile one "
                "repeated "
                "block instead of the whole model",
                [f"phase_calls: torch.compile, {calls:.0f} times on the median rank"],
                first_ns,
                once=True,
            )
        )
    steps_ns = max((float(rank_steps.length_ns.sum()) for rank_steps in steps_of(tables).ranks), default=0.0)
    if 0 < NOTICEABLE * steps_ns <= later_ns and not device_steps_of(tables):
        findings.append(
            Finding(
                "recompiling",
                f"torch compiles {again:.0f} times after the first step, {seconds(later_ns)} in total "
                f"({100 * later_ns / steps_ns:.0f} % of the steps)",
                "keep shapes constant, or mark them dynamic (torch._dynamo.mark_dynamic); the table programs says why",
                [
                    f"phase_calls: torch.compile in the phase steady, {again:.0f} times on the median rank",
                    *_recompiled(tables),
                ],
                later_ns,
            )
        )
    return findings


def _recompiled(tables: Tables) -> list[str]:
    """The function that took longest to compile in the steady steps, and which of its guards failed."""
    known = list(graphs_of(tables).values())
    names = {name for of_rank in known for name, program in of_rank.items() if program.again}
    if not names:
        return []
    longest = max(names, key=lambda name: max(of_rank[name].later_ns for of_rank in known if name in of_rank))
    ranks = [of_rank[longest] for of_rank in known if longest in of_rank]
    times = counted(max(program.again for program in ranks), "time")
    return [f"programs: {longest}, {times} again: {longest_reason(ranks)}"]


def _compiling_programs(tables: Tables) -> list[Finding]:
    """The same of JAX, which says of which function and why."""
    known = list(programs_of(tables).values())
    if not known:
        return []
    first_ns = median(sum(program.compile_ns - program.later_ns for program in of_rank.values()) for of_rank in known)
    findings = []
    if first_ns >= COMPILING_NS:
        longest = max(known[0], key=lambda name: known[0][name].compile_ns)
        findings.append(
            Finding(
                "compiling",
                f"JAX compiles for {seconds(first_ns)} before the first step ends, longest: {longest}",
                "keep its cache between jobs (JAX_COMPILATION_CACHE_DIR on a persistent disk)",
                [f"programs: tracing and compiling, {seconds(first_ns)} on the median rank"],
                first_ns,
                once=True,
            )
        )
    steps_ns = max((float(rank_steps.length_ns.sum()) for rank_steps in steps_of(tables).ranks), default=0.0)
    later_ns = median(sum(program.later_ns for program in of_rank.values()) for of_rank in known)
    if 0 < NOTICEABLE * steps_ns <= later_ns:
        again = median(sum(program.later for program in of_rank.values()) for of_rank in known)
        name = max(known[0], key=lambda name: known[0][name].later_ns)
        why = longest_reason([of_rank[name] for of_rank in known if name in of_rank])
        findings.append(
            Finding(
                "recompiling",
                f"JAX compiles {again:.0f} times after the first step, {seconds(later_ns)} in total "
                f"({later_ns / steps_ns:.0%} of the steps), longest: {name}",
                "keep shapes and static arguments constant (pad the last batch), and create jitted functions only once",
                [f"programs: {name}: {why}" if why else f"programs: {name}, in the phase steady"],
                later_ns,
            )
        )
    return findings


# ---------------------------------------------------------------- a few steps take much longer than all others
FEWEST_STEPS = 12
TIMES = 5.0  # the median step
STALL_NS = 1e9
FEW = 0.05  # of the steps: more are no exception


@dataclass(slots=True)
class Stall:
    """The longest of the steps that stand out, with the rank whose own time it was; all of them in sum."""

    steps: int
    excess_ns: float
    usual_ns: float
    number: int
    length_ns: float
    rank: int | None  # None: all were blocked in collectives
    host: str
    part: str
    part_ns: float


def stall(tables: Tables) -> Stall | None:
    """None where no step is much longer than the others."""
    steps = steps_of(tables)
    common = steps.common()
    if len(common) < FEWEST_STEPS:
        return None
    chosen = Chosen(steps.ranks, common)
    lengths = chosen.table(lambda rank_steps: rank_steps.length_ns).max(axis=0)
    usual_ns = float(np.median(lengths))
    excess = lengths - usual_ns
    places = np.flatnonzero((excess >= STALL_NS) & (excess >= TIMES * usual_ns))
    if not len(places) or len(places) > max(1.0, FEW * len(common)):
        return None
    longest = int(places[np.argmax(excess[places])])
    rank, host, part, part_ns = _who(steps, chosen, longest, float(excess[longest]))
    sum_ns = float(excess[places].sum())
    if part == "checkpoint" or sum_ns < NOTICEABLE * float(lengths.sum()):
        return None
    return Stall(
        len(places), sum_ns, usual_ns, int(common[longest]), float(lengths[longest]), rank, host, part, part_ns
    )


def _who(steps: Steps, chosen: Chosen, place: int, excess_ns: float) -> tuple[int | None, str, str, float]:
    """Whose own time in that step is longest beyond its usual, and in which part."""
    best: tuple[int | None, str, str, float] = (None, "", "", 0.0)
    for rank_steps in steps.ranks:
        for part, values in rank_steps.own.items():
            own_ns = chosen.of(rank_steps, values)
            more = float(own_ns[place] - np.median(own_ns))
            if more > best[3]:
                best = (rank_steps.rank, rank_steps.host, part, more)
    return best if best[3] >= excess_ns / 2 else (None, "", "", 0.0)


def stalled(tables: Tables) -> list[Finding]:
    """One step, or very few, in which somebody stood still."""
    slow = stall(tables)
    if slow is None:
        return []
    whose = "on no rank: all are blocked in collectives"
    action = "look at the network and the file system at that time: no rank was computing"
    if slow.rank is not None:
        whose = f"{seconds(slow.part_ns)} of it on rank {slow.rank} ({slow.host}): {TITLES.get(slow.part, slow.part)}"
        action = "look at what that rank did then: files, evaluation, logging, another program on its host"
    others = f", and {counted(slow.steps - 1, 'other step')} like it" if slow.steps > 1 else ""
    return [
        Finding(
            "stalled",
            f"Step {slow.number} takes {seconds(slow.length_ns)} (median step: {seconds(slow.usual_ns)})"
            f"{others}: {whose}",
            action,
            [f"steps: Max of step and of its parts, {counted(slow.steps, 'step')} {seconds(slow.excess_ns)} too long"],
            slow.excess_ns,
        )
    ]
