"""One rank is late in every step, and the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Tables
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.collectives.waiting import AWAITED, sums
from rankscope.questions.collectives.waiting import straggler as awaited_rank
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.findings.pipelines import slow_in_pipeline
from rankscope.questions.findings.steps import stall
from rankscope.questions.run.overview import run_elapsed_ns
from rankscope.questions.steps.data import Steps, steps_of
from rankscope.questions.steps.waits import waits_per_step
from rankscope.questions.stragglers.causes import LateCause, causes_of
from rankscope.questions.stragglers.device_causes import device_causes
from rankscope.questions.stragglers.lateness import Chosen, estimates
from rankscope.questions.whatif.changes import Change
from rankscope.questions.wording import at_host, counted, ranges

# ---------------------------------------------------------------- all ranks of one host are slower than all others
FEWEST_STEPS = 12
SLOW_HOST_NOTICEABLE = 0.04  # of the step, between the fastest rank of the host and the slowest of all others


@dataclass(slots=True)
class SlowHost:
    host: str
    ranks: list[int]
    own_ns: float
    others_ns: float
    gap_ns: float
    steps: int


_KEPT: WeakKeyDictionary[Tables, list[SlowHost]] = WeakKeyDictionary()


def slow_host(tables: Tables) -> list[SlowHost]:
    """The host whose ranks, two at least, all take longer than every rank elsewhere."""
    if tables not in _KEPT:
        _KEPT[tables] = _slow_host(steps_of(tables))
    return _KEPT[tables]


def _slow_host(steps: Steps) -> list[SlowHost]:
    common = steps.common()
    hosts = {host: at for at, host in enumerate(sorted({rank_steps.host for rank_steps in steps.ranks}))}
    if len(hosts) < 2 or len(common) < FEWEST_STEPS:
        return []
    chosen = Chosen(steps.ranks, common)
    own_ns = np.array([estimate.value for estimate in estimates(chosen.table(lambda rank_steps: rank_steps.own_ns))])
    step_ns = float(np.median(steps.pooled(steps.ranks, lambda rank_steps: rank_steps.length_ns), overwrite_input=True))
    slow_hosts = []
    host_of = np.array([hosts[rank_steps.host] for rank_steps in steps.ranks])
    for host, at in hosts.items():
        here = host_of == at
        gap = float(own_ns[here].min() - own_ns[~here].max())
        if here.sum() > 1 and (~here).sum() > 1 and gap >= SLOW_HOST_NOTICEABLE * step_ns:
            ranks = [rank_steps.rank for rank_steps in steps.ranks if rank_steps.host == host]
            slow_hosts.append(
                SlowHost(
                    host, ranks, float(own_ns[here].mean()), float(own_ns[~here].mean()), gap, steps.all_steady_steps()
                )
            )
    return slow_hosts


def host_imbalance(tables: Tables) -> list[Finding]:
    """The slow host, with what its ranks need more."""
    return [
        Finding(
            "host_imbalance",
            f"Host {slow.host} is slow: its ranks {ranges(slow.ranks)} need {seconds(slow.own_ns)} per step, "
            f"all others {seconds(slow.others_ns)}",
            "compare clock speed, temperature, other users and placement of that host with the others', or replace it",
            [f"step_parts: its fastest rank is {seconds(slow.gap_ns)} per step behind the slowest of the others"],
            slow.gap_ns * slow.steps,
            fix=Change("rank", ranks=tuple(sorted(slow.ranks))),
            loss_ns=slow.own_ns - slow.others_ns,
        )
        for slow in slow_host(tables)
    ]


# ---------------------------------------------------------------- ranks could run and have no CPU
NOTICEABLE = 0.1  # of the step, or of the run, on the median rank of a host
SQL = """
    SELECT rank, host, cpus_allowed, elapsed_ns::DOUBLE, (user_ns + system_ns)::DOUBLE, runnable_ns::DOUBLE,
        coalesce(mpi_elapsed_ns, elapsed_ns)::DOUBLE FROM ranks
    WHERE role = 'rank' AND tool = '' AND cpus_allowed > 0 AND elapsed_ns > 0 ORDER BY host, rank"""


@dataclass(slots=True)
class _Wanting:
    """One rank: of what time, for how long it had no CPU, how many CPUs it used meanwhile; the CPUs it may use."""

    whole_ns: float
    runnable_ns: float
    used: float
    cpus: int
    steps: int = 0  # 0: of the whole process

    @property
    def share(self) -> float:
        return self.runnable_ns / self.whole_ns


def oversubscribed(tables: Tables) -> list[Finding]:
    """Of the hosts whose ranks wait for a CPU that on which they wait longest, in steps or else in the whole run."""
    by_host: dict[str, list[_Wanting]] = {}
    for host, wanting in _wanting(tables):
        by_host.setdefault(host, []).append(wanting)
    findings = []
    for host, ranks in by_host.items():
        # in the whole of a run who waits for others may spin, and loses nothing by it: there the one that waits least
        typical = median if ranks[0].steps else min
        share = typical([wanting.share for wanting in ranks])
        if share < NOTICEABLE:
            continue
        cpus = max(wanting.cpus for wanting in ranks)
        wanted = sum(wanting.used + wanting.share for wanting in ranks)
        of = "each step" if ranks[0].steps else "the run"
        wait, they = ("wait", "they need") if len(ranks) > 1 else ("waits", "it needs")
        each = typical([wanting.runnable_ns for wanting in ranks])
        of_all = share if ranks[0].steps else each / (run_elapsed_ns(tables) or ranks[0].whole_ns)
        title = f"{counted(len(ranks), 'rank')} on {host} {wait} for a CPU for {100 * of_all:.0f} % of {of}: "
        if wanted > cpus:
            title += f"{they} {wanted:.1f} CPUs and have {cpus}"
            action = "start fewer ranks on a host, or fewer threads in each (OMP_NUM_THREADS, torch.set_num_threads, "
            action += "num_workers)"
        else:
            title += f"other programs, or other threads of the job, take its {cpus}"
            action = "keep other programs off its CPUs, start fewer threads (OMP_NUM_THREADS, num_workers), or bind "
            action += "each rank to its own cores"
        evidence = (
            f"step_parts: Runnable, no CPU, {seconds(each)} per step on the median rank"
            if ranks[0].steps
            else f"ranks (SQL): runnable_ns ÷ elapsed_ns, at least {100 * share:.0f} % on every rank"
        )
        steps = ranks[0].steps
        findings.append(
            Finding("oversubscribed", title, action, [evidence], each * max(1, steps), in_steps=bool(steps))
        )
    return sorted(findings, key=lambda finding: -(finding.saved_ns or 0))[:1]


def has_run_delay(tables: Tables) -> bool:
    """Whether a kernel said of any rank how long it had no CPU."""
    return any(wanting.runnable_ns > 0 for _, wanting in _wanting(tables))


def _wanting(tables: Tables) -> Iterator[tuple[str, _Wanting]]:
    steps = steps_of(tables)
    of_rank = {each.rank: each for each in steps.ranks if "runnable" in each.of_which and steps.steady(each).any()}
    for rank, host, cpus, elapsed_ns, cpu_ns, runnable_ns, span_ns in tables.query(SQL):
        if rank in of_rank:
            rank_steps = of_rank[rank]
            mask = steps.steady(rank_steps)
            length = float(rank_steps.length_ns[mask].mean())
            used = float(rank_steps.of_which["process_cpu"][mask].mean()) / length
            yield (
                host,
                _Wanting(
                    length, float(rank_steps.of_which["runnable"][mask].mean()), used, cpus, steps.all_steady_steps()
                ),
            )
        elif runnable_ns and not of_rank:
            # its share of the whole process is taken for that between MPI_Init and MPI_Finalize, too
            yield host, _Wanting(span_ns, runnable_ns / elapsed_ns * span_ns, (cpu_ns or 0.0) / elapsed_ns, cpus)


# ---------------------------------------------------------------- stragglers
ACTIONS = {
    "data loading": "give its data loader more workers or a faster source, or share the samples evenly",
    "forward": "compare its forward pass with the others': larger inputs, uneven batches",
    "backward": "compare its backward pass with the others': larger inputs, uneven batches",
    "compute": "compare its compiled programs with the others': larger inputs, uneven batches",
    "optimizer": "look at what follows its optimizer step: logging, averaging, callbacks on one rank only",
    "zero_grad": "look for what runs there on this rank only",
    "checkpoint": "save checkpoints asynchronously, or shard them over the ranks",
    "garbage collection": "call gc.freeze() after start-up, and collect by hand on all ranks at the same step",
    "preemption": "keep other programs off its cores, or bind each rank to its own cores",
    "page faults": "reuse its buffers instead of allocating them in each step; look at the memory left on its host",
    "slower device": "compare clock speed, power limit, temperature and neighbours of its GPU with the others'",
    "more work on the device": "share the samples evenly: larger inputs or longer sequences on this rank",
    "slower processor": "compare clock speed, power limit and neighbours of its device and host with the others'",
}
OF_A_KERNEL = {  # by the beginning of the cause
    "an extra kernel": "find what launches it on this rank only: a check, a metric, another branch of the model",
    "more calls of the kernel": "share the samples evenly: more or longer inputs on this rank",
    "a slower kernel": "compare its inputs with those of the others, then clock speed and power limit of its GPU",
}
ON_HOST = "look for what only its host does there: input, logging, synchronising, Python"
WAITED_NOTICEABLE = 0.05  # of the steps
OTHERWISE = "look for what only this rank computes outside collectives"


def straggler(tables: Tables) -> list[Finding]:
    """One finding per late rank; where its steps do not tell one, the rank that the matched collectives prove to be
    waited for, unless that was in a few steps only. What a pipeline waits for is told by `slow_pipeline_part`."""
    whole_host = {rank for host in slow_host(tables) for rank in host.ranks}
    explained = {one.late.rank for one in slow_in_pipeline(tables)[1]}
    late = [cause for cause in causes_of(tables) if cause.late.rank not in whole_host | explained]
    findings = _of_stages(tables, late)
    if findings or whole_host or explained or stall(tables) is not None:
        return findings
    return _by_waiting(tables)


STAGES = """
    SELECT stage, list(DISTINCT rank ORDER BY rank) FROM operations JOIN ranks USING (process)
    WHERE ranks.role = 'rank' AND stage >= 0 GROUP BY stage ORDER BY stage"""


def _of_stages(tables: Tables, late: Sequence[LateCause]) -> list[Finding]:
    """One for each late rank; where all ranks of a stage of a pipeline are late, one for the stage."""
    stages = dict(tables.query(STAGES))
    of_rank = {cause.late.rank: cause for cause in late}
    findings = []
    for stage, ranks in stages.items() if len(stages) > 1 else ():
        if len(ranks) > 1 and set(ranks) <= set(of_rank):
            findings.append(_of_stage(stage, [of_rank.pop(rank) for rank in ranks]))
    return findings + [_finding(cause) for cause in of_rank.values()]


def _of_stage(stage: int, late: Sequence[LateCause]) -> Finding:
    worst = max(late, key=lambda cause: cause.late.excess.value)
    ranks = ranges([cause.late.rank for cause in late])
    return Finding(
        "straggler",
        f"Stage {stage} (ranks {ranks}) is late by {seconds(worst.late.excess.value)} per step: {worst.name}",
        "move layers from it to other stages; rankscope whatif --balance stage shows what an even split would save",
        [
            f"causes: {worst.evidence}",
            f"step_parts: its peers are blocked {seconds(worst.late.waited_ns)} longer per step",
        ],
        worst.late.waited_ns * worst.late.steps,
        fix=Change("stage", stages=(stage,)),
        loss_ns=worst.late.excess.value,
    )


def _finding(cause: LateCause) -> Finding:
    late = cause.late
    title = f"{at_host(late.rank, late.host, 'Rank')} is late by {seconds(late.excess.value)} per step: {cause.name}"
    return Finding(
        "straggler",
        title,
        ACTIONS.get(cause.name, OTHERWISE),
        [f"causes: {cause.evidence}", f"step_parts: its peers are blocked {seconds(late.waited_ns)} longer per step"],
        late.waited_ns * late.steps,
        fix=Change("rank", ranks=(late.rank,)),
        loss_ns=late.excess.value,
    )


def _on_device(tables: Tables) -> bool:
    return bool(tables.query("SELECT 1 FROM untraced_events WHERE layer = 'nccl' LIMIT 1"))


def _by_waiting(tables: Tables) -> list[Finding]:
    known = collectives_of(tables)
    if not known.splits:
        return []
    waiting = sums(known)
    place, verdict = awaited_rank(known, waiting)
    if place is None or verdict != AWAITED:
        return []
    caused = float(waiting.caused_ns[place])
    saved_ns = _exposed_at_most(tables, known.log.ranks[place], caused / max(1, len(known.log.ranks) - 1))
    if saved_ns is None:
        return []
    title = f"Other ranks wait for {at_host(known.log.ranks[place], known.log.hosts[place])}"
    share = caused / waiting.all_caused_ns
    of_all = f"{100 * share:.0f} % of all waiting"
    evidence = [f"waiting: it makes the others wait {seconds(caused)} summed over them, {of_all}"]
    inside = waiting.wait_ns + waiting.transfer_ns + waiting.leaving_ns
    if inside[place] == inside.min():
        others = float(np.median(np.delete(inside, place)))
        evidence.append(f"waiting: it is in collectives for {seconds(inside[place])}, its peers for {seconds(others)}")
    action, loss_ns = OTHERWISE, 0.0
    for late in device_causes(tables):  # of the same rank, if it can be told
        title = f"{at_host(late.rank, late.host, 'Rank')} is late by {seconds(late.excess_ns)} per step: {late.name}"
        evidence.insert(0, f"causes: {late.evidence}")
        loss_ns = late.excess_ns
        of_a_kernel = (text for cause, text in OF_A_KERNEL.items() if late.name.startswith(cause))
        action = ACTIONS.get(late.name) or next(of_a_kernel, ON_HOST)
    fix = Change("rank", ranks=(known.log.ranks[place],))
    return [Finding("straggler", title, action, evidence, saved_ns, fix=fix, loss_ns=loss_ns)]


def _exposed_at_most(tables: Tables, rank: int, waited_ns: float) -> float | None:
    """Waiting before the steps, or that the others have hidden behind computing, is no loss in them; None where hardly
    any is left."""
    measured = steps_of(tables)
    others = [
        rank_steps for rank_steps in measured.ranks if rank_steps.rank != rank and measured.steady(rank_steps).any()
    ]
    if not others or _on_device(tables):
        return waited_ns
    waits = waits_per_step(tables, measured)
    steady = [(rank_steps, measured.steady(rank_steps)) for rank_steps in others]
    in_steps = [
        (waits[rank_steps.rank].wait_ns if rank_steps.rank in waits else 0.0, int(mask.sum()))
        for rank_steps, mask in steady
    ]
    in_steps_ns = median(wait_ns * steps for wait_ns, steps in in_steps)
    exposed_ns = median(float(rank_steps.exposed_ns[mask].sum()) for rank_steps, mask in steady)
    whole_ns = median(float(rank_steps.length_ns[mask].sum()) for rank_steps, mask in steady)
    least_ns = min(waited_ns, in_steps_ns, exposed_ns)
    return least_ns if least_ns >= WAITED_NOTICEABLE * whole_ns else None
