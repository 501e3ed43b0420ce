"""One rank is late in every step, and the others wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model import Tables
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.collectives.waiting import AWAITED, sums
from rankscope.questions.collectives.waiting import straggler as awaited_rank
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.steps.data import Steps, steps_of
from rankscope.questions.stragglers.causes import LateCause, causes_of
from rankscope.questions.stragglers.device_causes import device_causes
from rankscope.questions.stragglers.lateness import Chosen, estimates
from rankscope.questions.wording import counted, ranges

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


def _slow_host(found: Steps) -> list[SlowHost]:
    common = found.common()
    hosts = {host: at for at, host in enumerate(sorted({one.host for one in found.ranks}))}
    if len(hosts) < 2 or len(common) < FEWEST_STEPS:
        return []
    chosen = Chosen(found.ranks, common)
    own = np.array([one.value for one in estimates(chosen.table(lambda one: one.own_ns))])
    step_ns = float(np.median(found.pooled(found.ranks, lambda one: one.length_ns), overwrite_input=True))
    made = []
    host_of = np.array([hosts[one.host] for one in found.ranks])
    for host, at in hosts.items():
        here = host_of == at
        gap = float(own[here].min() - own[~here].max())
        if here.sum() > 1 and (~here).sum() > 1 and gap >= SLOW_HOST_NOTICEABLE * step_ns:
            ranks = [one.rank for one in found.ranks if one.host == host]
            made.append(SlowHost(host, ranks, float(own[here].mean()), float(own[~here].mean()), gap, len(common)))
    return made


def host_imbalance(tables: Tables) -> list[Finding]:
    """The slow host, with what its ranks need more."""
    return [
        Finding(
            "host_imbalance",
            f"Host {one.host} is slow: its ranks {ranges(one.ranks)} need {seconds(one.own_ns)} a step, "
            f"all others {seconds(one.others_ns)}",
            "compare clock speed, temperature, other users and placement of that host with the others', or replace it",
            [f"step_parts: the fastest of its ranks is {seconds(one.gap_ns)} a step behind the slowest of the others"],
            one.gap_ns * one.steps,
        )
        for one in slow_host(tables)
    ]


# ---------------------------------------------------------------- more threads want to run than there are CPUs
NOTICEABLE = 0.1  # of the step, on the median rank of a host
SWITCHES_A_SECOND = 50.0  # on the median rank
SQL = """
    SELECT host, count(*), median(cpus_allowed), median(threads), list(rank),
        median(involuntary_switches / greatest(elapsed_ns, 1) * 1e9), sum(user_ns + system_ns) / max(elapsed_ns)
    FROM ranks WHERE role = 'rank' AND tool = '' AND cpus_allowed > 0 GROUP BY host ORDER BY host"""


def oversubscribed(tables: Tables) -> list[Finding]:
    """Of the hosts on which ranks × threads exceed the CPUs, that where the ranks wait most for a CPU."""
    waits = _waits(tables)
    made = []
    for host, ranks, cpus, threads, places, switches, busy in tables.query(SQL):
        wanted = ranks * max(1, int(threads or 1))
        here = [waits[rank] for rank in places if rank in waits]
        if wanted <= cpus or not here:
            continue
        share, ns, steps = (median(column) for column in zip(*here, strict=True))
        if share < NOTICEABLE or (switches or 0) < SWITCHES_A_SECOND:
            continue
        made.append(
            Finding(
                "oversubscribed",
                f"{counted(ranks, 'rank')} of {counted(int(threads or 1), 'thread')} share "
                f"{counted(int(cpus), 'CPU')} of {host}",
                "start fewer ranks on a host, or fewer threads in each (OMP_NUM_THREADS, torch.set_num_threads, "
                "num_workers)",
                [
                    f"step_parts: {seconds(ns)} a step ({share:.0%}) without a CPU on the median rank",
                    f"ranks: {switches:.0f} involuntary switches a second, {busy:.1f} CPUs busy",
                ],
                ns * steps,
            )
        )
    return sorted(made, key=lambda one: -(one.saved_ns or 0))[:1]


def _waits(tables: Tables) -> dict[int, tuple[float, float, float]]:
    """Of each rank with recorded steps: the share of a step, the ns of it, and the steps."""
    found = steps_of(tables)
    made = {}
    for one in found.ranks:
        mask = found.steady(one)
        if "runnable" in one.of_which and mask.any():
            ns = float(np.mean(one.of_which["runnable"][mask]))
            made[one.rank] = (ns / float(np.mean(one.length_ns[mask])), ns, float(mask.sum()))
    return made


# ---------------------------------------------------------------- stragglers
ACTIONS = {
    "data wait": "give its data loader more workers or a faster source, or share the samples evenly",
    "forward": "look at what its forward pass does more than that of the others: larger inputs, uneven batches",
    "backward": "look at what its backward pass does more than that of the others: larger inputs, uneven batches",
    "optimizer": "look at what follows its optimizer step: logging, averaging, callbacks on one rank only",
    "zero_grad": "look at what else runs there on this rank only",
    "checkpoint": "save checkpoints asynchronously, or shard them over the ranks",
    "garbage collection": "call gc.freeze() after the start, and collect by hand on all ranks at the same step",
    "preemption": "keep other programs off its cores, or bind ranks to cores of their own",
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
ON_HOST = "look at what its host does there that the others do not: input, logging, synchronising, Python"
OTHERWISE = "look at what it computes outside collectives that the others do not"


def straggler(tables: Tables) -> list[Finding]:
    """One finding per late rank; without steps, the rank that the matched collectives prove to be waited for.

    So, too, where the collectives run on the device: the host does not wait where they do, and its parts do not tell.
    """
    whole_host = {rank for one in slow_host(tables) for rank in one.ranks}
    found = [_finding(one) for one in causes_of(tables) if one.late.rank not in whole_host]
    if found or whole_host or (len(steps_of(tables).ranks) > 1 and not _on_device(tables)):
        return found
    return _by_waiting(tables)


def _finding(one: LateCause) -> Finding:
    late = one.late
    told = f"Rank {late.rank} ({late.host}) is late by {seconds(late.excess.value)} a step: {one.name}"
    return Finding(
        "straggler",
        told,
        ACTIONS.get(one.name, OTHERWISE),
        [f"causes: {one.evidence}", f"step_parts: its peers are blocked {seconds(late.waited_ns)} a step longer"],
        late.waited_ns * late.steps,
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
    told = f"The others wait for rank {known.log.ranks[place]} ({known.log.hosts[place]})"
    share = caused / waiting.all_caused_ns
    evidence = [f"waiting: it makes the others wait {seconds(caused)}, {share:.0%} of all waiting"]
    inside = waiting.wait_ns + waiting.transfer_ns + waiting.leaving_ns
    if inside[place] == inside.min():
        others = float(np.median(np.delete(inside, place)))
        evidence.append(f"waiting: it is in collectives for {seconds(inside[place])}, its peers for {seconds(others)}")
    action = OTHERWISE
    for one in device_causes(tables):  # of the same rank, if it can be told
        told = f"Rank {one.rank} ({one.host}) is late by {seconds(one.excess_ns)} a step: {one.name}"
        evidence.insert(0, f"causes: {one.evidence}")
        of_a_kernel = (text for cause, text in OF_A_KERNEL.items() if one.name.startswith(cause))
        action = ACTIONS.get(one.name) or next(of_a_kernel, ON_HOST)
    return [Finding("straggler", told, action, evidence, caused / max(1, len(known.log.ranks) - 1))]
