"""One rank is late in every step, and the others wait for it."""

from __future__ import annotations

import numpy as np

from rankscope.analyse.findings.slow_host import slow_host
from rankscope.model import Tables
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.collectives.waiting import AWAITED, sums
from rankscope.questions.collectives.waiting import straggler as awaited_rank
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.steps.data import steps_of
from rankscope.questions.stragglers.causes import Cause, causes_of
from rankscope.questions.stragglers.device_causes import device_causes

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


def _finding(one: Cause) -> Finding:
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
        action = ACTIONS.get(one.name, ON_HOST)
    return [Finding("straggler", told, action, evidence, caused / max(1, len(known.log.ranks) - 1))]
