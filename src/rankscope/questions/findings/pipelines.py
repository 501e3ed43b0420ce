"""What a pipeline loses, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from rankscope.model.tables import Tables
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.parallelism.bubbles import Bubbles, Slow, bubbles_of, slow_parts, slow_words
from rankscope.questions.parallelism.micro_batches import unequal_micro_batches
from rankscope.questions.steps.data import steps_of
from rankscope.questions.stragglers.causes import LateCause, causes_of
from rankscope.questions.whatif.changes import Change
from rankscope.questions.whatif.of_operations import has_operations

LARGE = 0.15  # of the step: warm-up and drain


def pipeline_bubble(tables: Tables) -> list[Finding]:
    """Filling and draining take much of a step, so that more micro-batches would be worth it."""
    bubbles = bubbles_of(tables)
    if bubbles is None or not bubbles.micro_batches:
        return []
    window, step = float(bubbles.window.mean()), _step_ns(tables, bubbles)
    filling = float((bubbles.parts["warmup"] + bubbles.parts["drain"]).mean())
    shares = [float(bubbles.parts[name].mean()) / step for name in ("warmup", "drain", "transfer", "imbalance")]
    share = bubbles.analytic_share
    by_schedule = share * window if share is not None else filling  # what is beyond is uneven stages and messages
    saved = min(filling, by_schedule) / 2
    if filling < LARGE * window or saved < LARGE / 2 * window:
        return []
    more = f"{2 * bubbles.micro_batches} micro-batches of half the size"
    interleave = f"2 chunks of the model on each rank (an interleaved schedule) instead of {max(1, bubbles.chunks)}"
    if bubbles.chunks > 1:
        interleave = f"{2 * bubbles.chunks} chunks of the model on each rank instead of {bubbles.chunks}"
    causes = ", ".join(f"{100 * share:.0f} % {name}" for share, name in zip(shares, NAMES, strict=True))
    return [
        Finding(
            "pipeline_bubble",
            f"The pipeline of {bubbles.stages} stages is idle for {100 * sum(shares):.0f} % of each "
            f"{seconds(step)} step: it fills and drains for only {bubbles.micro_batches} micro-batches",
            f"{more}, or {interleave}: either halves the time to fill and drain and saves {seconds(saved)} per step",
            [f"bubbles: {causes} of the step, mean over the stages"],
            saved * len(bubbles.numbers),
        )
    ]


def uneven_micro_batches(tables: Tables) -> list[Finding]:
    """Micro-batches that differ in what they cost: every stage waits for the long ones, and ranks for each other."""
    unequal = unequal_micro_batches(tables) if has_operations(tables) else None
    if unequal is None:
        return []
    return [
        Finding(
            "uneven_micro_batches",
            f"Micro-batches take unequal time: one in twenty at least {unequal.tail:.2g} times the median, forward and "
            "backward alike",
            "pack sequences so that every micro-batch costs the same, on all data-parallel ranks (attention grows "
            "with the square of a sequence's length)",
            [f"bubbles: forward and backward passes of the same micro-batch correlate ({unequal.correlation:.2f})"],
            0.0,
            fix=Change("even"),
            loss_ns=0.0,
        )
    ]


def _step_ns(tables: Tables, bubbles: Bubbles) -> float:
    """The mean step, as on the first screen: in a table of operations a pipeline's passes are only a part of it."""
    steps = steps_of(tables)
    lengths = (rank.length_ns[steps.steady(rank)] for rank in steps.ranks)
    known = [float(steady.mean()) for steady in lengths if len(steady)]
    return mean(known) if known else float(bubbles.window.mean())


NAMES = ("warm-up", "drain", "exposed transfer", "imbalance")
WHAT_TO_DO = {
    "stage": "move layers from it to the other stages until all take equally long (loss and embedding count too)",
    "rank": "the same work takes longer there than on the other ranks of its stage: look at its host, clocks and cores",
    "link": "look at this connection (NIC, cable, route, a host's load), or send what goes over it in lower precision",
}


# why a rank is late that no share of layers explains; the machine may do the latter two to any rank
OF_A_RANK = ("data wait", "garbage collection", "checkpoint")
OF_A_HOST = ("preemption", "page faults")


def slow_in_pipeline(tables: Tables) -> tuple[Slow | None, list[LateCause]]:
    """What all others of a pipeline wait for, and the ranks of it that are late because their passes are longer. None
    where one is late for a reason of its own: then that is to be told, and no stage has too many layers."""
    bubbles = bubbles_of(tables)
    slow = slow_parts(bubbles) if bubbles is not None else []
    if not slow or slow[0].kind == "link":
        return (slow[0] if slow else None), []
    late = [cause for cause in causes_of(tables) if cause.late.rank in slow[0].ranks]
    if any(cause.name in OF_A_RANK for cause in late):
        return None, []
    return slow[0], [cause for cause in late if cause.name not in OF_A_HOST]


def slow_pipeline_part(tables: Tables) -> list[Finding]:
    """A stage, rank or link that all others of a pipeline wait for."""
    bubbles = bubbles_of(tables)
    slow, late = slow_in_pipeline(tables)
    return (
        [_finding(_step_ns(tables, bubbles), bubbles, slow, late)] if bubbles is not None and slow is not None else []
    )


def _finding(step: float, bubbles: Bubbles, slow: Slow, late: Sequence[LateCause]) -> Finding:
    what = "messages take" if slow.kind == "link" else "computing takes"
    title = (
        f"The pipeline waits for {slow_words(slow)}: {what} {slow.times:.2g} times as long as elsewhere, "
        f"{seconds(slow.excess_ns)} of each {seconds(step)} step ({100 * slow.excess_ns / step:.0f} %)"
    )
    evidence = ["messages: transfer between the two ranks" if slow.kind == "link" else "bubbles: compute of each stage"]
    evidence += [f"causes: {cause.evidence}" for cause in late[:1]]
    saved_ns = slow.excess_ns * len(bubbles.numbers)
    loss_ns = slow.excess_ns
    return Finding(
        "slow_pipeline_part", title, WHAT_TO_DO[slow.kind], evidence, saved_ns, fix=_fix(slow), loss_ns=loss_ns
    )


def _fix(slow: Slow) -> Change | None:
    """As fast as the others; what that is at most: where it has more layers they are computed elsewhere."""
    if slow.kind == "link":
        return None
    return Change("stage", stages=(slow.stage,)) if slow.kind == "stage" else Change("rank", ranks=slow.ranks)
