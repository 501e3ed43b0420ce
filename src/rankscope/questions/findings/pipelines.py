"""What a pipeline loses, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.model.tables import Tables
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.parallelism.bubbles import Bubbles, Slow, bubbles_of, slow_parts, slow_words
from rankscope.questions.stragglers.causes import LateCause, causes_of
from rankscope.questions.whatif.changes import Change

LARGE = 0.15  # of the step: warm-up and drain


def pipeline_bubble(tables: Tables) -> list[Finding]:
    """Filling and draining take much of a step, so that more micro-batches would be worth it."""
    found = bubbles_of(tables)
    if found is None or not found.micro_batches:
        return []
    step = float(found.window.mean())
    filling = float((found.parts["warmup"] + found.parts["drain"]).mean())
    shares = [float(found.parts[name].mean()) / step for name in ("warmup", "drain", "transfer", "imbalance")]
    share = found.analytic_share
    by_schedule = share * step if share is not None else filling  # what is beyond is uneven stages and messages
    saved = min(filling, by_schedule) / 2
    if filling < LARGE * step or saved < LARGE / 2 * step:
        return []
    more = f"{2 * found.micro_batches} micro-batches of half the size"
    interleave = f"2 chunks of the model on each rank (an interleaved schedule) instead of {max(1, found.chunks)}"
    if found.chunks > 1:
        interleave = f"{2 * found.chunks} chunks of the model on each rank instead of {found.chunks}"
    told = ", ".join(f"{100 * share:.0f} % {name}" for share, name in zip(shares, NAMES, strict=True))
    return [
        Finding(
            "pipeline_bubble",
            f"The pipeline of {found.stages} stages is idle for {100 * sum(shares):.0f} % of a step of "
            f"{seconds(step)}: it is filled and drained for only {found.micro_batches} micro-batches",
            f"{more}, or {interleave}: either halves the time to fill and drain, {seconds(saved)} of a step",
            [f"bubbles: {told} of the step, mean over the stages"],
            saved * len(found.numbers),
        )
    ]


NAMES = ("warm-up", "drain", "exposed transfer", "imbalance")
WHAT_TO_DO = {
    "stage": "move layers from it to the other stages until all take as long (the loss and the embedding count too)",
    "rank": "the same work takes longer there than on the other ranks of its stage: look at its host, clocks and cores",
    "link": "look at this connection (NIC, cable, route, a host's load), or send what goes over it in lower precision",
}


OF_A_STAGE = ("forward", "backward", "compute")  # what a stage has more of where it has more layers


def slow_in_pipeline(tables: Tables) -> tuple[Slow | None, list[LateCause]]:
    """What all others of a pipeline wait for, and why its ranks are late. None where they are late for a reason of their
    own, such as data or garbage collection: then that is to be told, and no stage has too many layers."""
    found = bubbles_of(tables)
    slow = slow_parts(found) if found is not None else []
    if not slow or slow[0].kind == "link":
        return (slow[0] if slow else None), []
    late = [one for one in causes_of(tables) if one.late.rank in slow[0].ranks]
    return (slow[0] if all(one.name in OF_A_STAGE for one in late) else None), late


def slow_pipeline_part(tables: Tables) -> list[Finding]:
    """A stage, rank or link that all others of a pipeline wait for."""
    found = bubbles_of(tables)
    slow, late = slow_in_pipeline(tables)
    return [_finding(found, slow, late)] if found is not None and slow is not None else []


def _finding(found: Bubbles, one: Slow, late: Sequence[LateCause]) -> Finding:
    step = float(found.window.mean())
    what = "messages take" if one.kind == "link" else "computing takes"
    title = (
        f"The pipeline waits for {slow_words(one)}: {what} {one.times:.2g} times as long as elsewhere, "
        f"{seconds(one.excess_ns)} of a step of {seconds(step)} ({100 * one.excess_ns / step:.0f} %)"
    )
    evidence = ["messages: transfer between the two ranks" if one.kind == "link" else "bubbles: compute of each stage"]
    evidence += [f"causes: {cause.evidence}" for cause in late[:1]]
    saved_ns = one.excess_ns * len(found.numbers)
    return Finding("slow_pipeline_part", title, WHAT_TO_DO[one.kind], evidence, saved_ns, fix=_fix(one))


def _fix(one: Slow) -> Change | None:
    """As fast as the others; what that is at most: where it has more layers they are computed elsewhere."""
    if one.kind == "link":
        return None
    return Change("stage", stages=(one.stage,)) if one.kind == "stage" else Change("rank", ranks=one.ranks)
