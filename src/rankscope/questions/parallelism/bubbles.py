"""How much of a pipeline's time is each stage idle, and why: filling, draining, uneven stages, or messages?

Tables of operations say when each pass began and ended. Recorded runs have messages and steps: a rank is idle while it
stands in a call for a message, and from the end of its step until the last rank of its pipeline ends the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.messages import Messages, matched_messages
from rankscope.questions.parallelism.groups import Pipeline, StepTimes, pipelines_of
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.whatif.of_operations import SQL, TimedOperation, has_operations, layouts, messages
from rankscope.questions.wording import rank_words

Array = Any  # of numpy
TIMES = (
    Column(
        "window_ns",
        Unit.NS,
        "Pipeline",
        "from the first forward pass of any stage to the last backward pass of any; of recorded runs from the begin of "
        "the first stage's step to the end of the last that ends it; the six columns from `compute_ns` to "
        "`imbalance_ns` add up to it",
    ),
    Column(
        "compute_ns", Unit.NS, "Compute", "passes of all micro-batches; of recorded runs all that is in no other column"
    ),
    Column(
        "bubble_share",
        Unit.SHARE,
        "Bubble",
        "(`warmup_ns` + `drain_ns` + `transfer_ns` + `imbalance_ns`) ÷ `window_ns`",
    ),
    Column(
        "collective_ns", Unit.NS, "Collectives", "recorded runs: blocked in collectives, such as those of gradients"
    ),
    Column("warmup_ns", Unit.NS, "Warm-up", "idle before the stage's first backward pass; without `transfer_ns`"),
    Column("drain_ns", Unit.NS, "Drain", "idle after its last forward pass; without `transfer_ns`"),
    Column(
        "transfer_ns",
        Unit.NS,
        "Exposed transfer",
        "idle while a message that it waits for is being transferred: since both ends posted it",
    ),
    Column(
        "imbalance_ns",
        Unit.NS,
        "Imbalance",
        "all other idle time: other stages are slower; with it warm-up and drain where two interleaved ranks do not "
        "tell which of their messages go forward",
    ),
)
COLUMNS = (
    Column("stage", Unit.NAME, "Stage", "place in the pipeline; a rank with several parts of the model is one stage"),
    Column(
        "ranks", Unit.COUNT, "Ranks", "ranks of this stage: one of each pipeline; times are means over them and steps"
    ),
    *TIMES,
)
STEP_COLUMNS = (
    Column("step", Unit.NAME, "Step", "number of the step"),
    Column("stage", Unit.NAME, "Stage", "place in the pipeline"),
    Column("ranks", Unit.COUNT, "Ranks", "ranks of this stage; times are means over them"),
    *TIMES,
)
PARTS = ("compute", "collective", "warmup", "drain", "transfer", "imbalance")


@dataclass(slots=True)
class Link:
    """Messages from one rank to another."""

    usual_ns: float  # median time from the send to the end of a receive that was posted before; 0: there is none
    exposed_ns: float  # in a mean step: the receiver stands in its call during the transfer


@dataclass(slots=True)
class Bubbles:
    """All pipelines of a run that are alike: times of each rank and step."""

    pipelines: list[tuple[int, ...]]  # ranks by stage
    numbers: Array  # S: of the steps
    window: Array  # N pipelines x S
    parts: dict[str, Array]  # N x P stages x S
    micro_batches: int = 0
    chunks: int = 0
    schedule: str = ""
    links: dict[tuple[int, int], Link] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def stages(self) -> int:
        return len(self.pipelines[0])

    @property
    def analytic_share(self) -> float | None:
        """The bubble of balanced stages with free messages; None where no formula holds."""
        if not self.micro_batches or (self.chunks > 1 and self.micro_batches < self.stages):
            return None
        return (self.stages - 1) / (max(1, self.chunks) * self.micro_batches + self.stages - 1)


_KEPT: WeakKeyDictionary[Tables, Bubbles | None] = WeakKeyDictionary()


def bubbles_of(tables: Tables) -> Bubbles | None:
    """Worked out once for each run that is open; None where there is no pipeline."""
    if tables not in _KEPT:
        _KEPT[tables] = _of_operations(tables) if has_operations(tables) else _of_messages(tables)
    return _KEPT[tables]


# ---------------------------------------------------------------- tables
def bubbles(tables: Tables, selection: Selection = ALL) -> Table:
    """Of each stage of a pipeline: compute, and idle time by cause: warm-up, drain, exposed transfer, imbalance."""
    bubble = bubbles_of(tables)
    table = Table("bubbles", "Pipeline: bubble of each stage", COLUMNS, [])
    if bubble is None:
        return table
    for stage in range(bubble.stages):
        if _is_wanted(bubble, stage, selection):
            table.rows.append((stage, len(bubble.pipelines), *_times(bubble, stage, slice(None))))
    table.notes += _schedule_note(bubble) + bubble.notes
    return arranged(table, selection)


def bubble_steps(tables: Tables, selection: Selection = ALL) -> Table:
    """The same of each step."""
    bubble = bubbles_of(tables)
    table = Table("bubble_steps", "Pipeline: bubble of each stage in each step", STEP_COLUMNS, [])
    if bubble is None:
        return table
    for at, number in enumerate(bubble.numbers.tolist()):
        for stage in range(bubble.stages):
            if _is_wanted(bubble, stage, selection):
                table.rows.append((number, stage, len(bubble.pipelines), *_times(bubble, stage, slice(at, at + 1))))
    return arranged(table, selection)


def _is_wanted(bubble: Bubbles, stage: int, selection: Selection) -> bool:
    return selection.ranks is None or any(ranks[stage] in selection.ranks for ranks in bubble.pipelines)


def _times(bubble: Bubbles, stage: int, steps: slice) -> tuple[Cell, ...]:
    window = float(bubble.window[:, steps].mean())
    mean = {name: float(values[:, stage, steps].mean()) for name, values in bubble.parts.items()}
    idle = sum(mean[name] for name in PARTS[2:])
    share = idle / window if window else 0.0
    return window, mean["compute"], min(1.0, share), *(mean[name] for name in PARTS[1:])


def _schedule_note(bubble: Bubbles) -> list[str]:
    if not bubble.micro_batches:
        return ["The number of micro-batches in a step does not follow from its messages."]
    chunks = f" of {bubble.chunks} chunks" if bubble.chunks > 1 else ""
    sentence = f"{bubble.schedule}, {bubble.stages} stages{chunks}, {bubble.micro_batches} micro-batches per step"
    share = bubble.analytic_share
    if share is None:
        return [f"{sentence}: fewer than stages, so that ranks wait between their chunks, too."]
    return [f"{sentence}: balanced stages and free messages would have a bubble of {100 * share:.1f} %."]


# ---------------------------------------------------------------- recorded runs: messages and steps
def _of_messages(tables: Tables) -> Bubbles | None:
    known = pipelines_of(tables)
    steps = StepTimes.of(tables) if known else None
    if steps is None:
        return None
    shape = (len(known[0].ranks), known[0].micro_batches, known[0].chunks)
    alike = [pipeline for pipeline in known if (len(pipeline.ranks), pipeline.micro_batches, pipeline.chunks) == shape]
    alike = [pipeline for pipeline in alike if all(rank in steps.place for rank in pipeline.ranks)]
    if not alike:
        return None
    matched = matched_messages(tables)
    results = [_one_pipeline(pipeline, steps, matched) for pipeline in alike]
    parts = {name: np.stack([result[1][name] for result in results]) for name in PARTS}
    notes = (
        [f"{len(known) - len(alike)} other pipelines have other shapes and are left out."]
        if len(alike) < len(known)
        else []
    )
    if len(matched) and not np.isfinite(matched.error_ns).all():
        notes.append("The clocks of some hosts cannot be compared: waits for messages between them may be wrong.")
    links = {
        (one, other): link
        for pipeline in alike
        for one in pipeline.ranks
        for other in pipeline.ranks
        if (link := _link(matched, one, other, steps)) is not None
    }
    schedule = results[0][2]
    return Bubbles(
        [pipeline.ranks for pipeline in alike], steps.numbers, np.stack([result[0] for result in results]), parts,
        shape[1], shape[2], schedule, links, notes,
    )  # fmt: skip


@dataclass(slots=True)
class _Stand:
    """Times that a rank stands in a call for a message."""

    since: Array
    until: Array
    both: Array  # when both ends had come to the message: from then on it is transferred


def _one_pipeline(pipeline: Pipeline, steps: StepTimes, matched: Messages) -> tuple[Array, dict[str, Array], str]:
    """Its window, the parts of each of its ranks in each step (P x S), and the schedule of its first stage."""
    places = [steps.place[rank] for rank in pipeline.ranks]
    begin, end = steps.begin[places[0]], steps.end[places].max(axis=0)
    inside = np.isin(matched.sender, pipeline.ranks) & np.isin(matched.receiver, pipeline.ranks)
    mine = matched.only(inside)
    forward = _forward(pipeline, steps, mine)
    parts = {name: np.zeros((len(places), len(begin))) for name in PARTS}
    ahead = 0.0
    for stage, (rank, place) in enumerate(zip(pipeline.ranks, places, strict=True)):
        stand, first_back, last_there, ahead_here = _stands(rank, steps, mine, forward)
        ahead = ahead_here if stage == 0 else ahead
        own_end = steps.end[place]
        blocked = np.zeros(len(begin))
        for at in range(len(begin)):
            since, until = (
                np.clip(values, steps.begin[place, at], own_end[at]) for values in (stand.since, stand.until)
            )
            blocked[at] = (until - since).sum()
            since, until = (np.clip(values, begin[at], own_end[at]) for values in (stand.since, stand.until))
            both = np.clip(stand.both, since, until)
            wait, transfer = both - since, until - both
            is_warmup = stand.since < first_back[at]
            is_drain = ~is_warmup & (stand.since >= last_there[at])
            parts["transfer"][stage, at] = transfer.sum()
            parts["warmup"][stage, at] = wait[is_warmup].sum()
            parts["drain"][stage, at] = wait[is_drain].sum() + max(0.0, end[at] - own_end[at])
            parts["imbalance"][stage, at] = wait[~is_warmup & ~is_drain].sum()
        idle = sum(parts[name][stage] for name in PARTS[2:])
        window = end - begin
        collective = np.clip(steps.exposed[place] - blocked, 0.0, np.maximum(window - idle, 0.0))
        parts["collective"][stage] = collective
        parts["compute"][stage] = np.maximum(window - idle - collective, 0.0)
    return end - begin, parts, _schedule_name(pipeline.chunks, pipeline.micro_batches, len(pipeline.ranks), ahead)


def _forward(pipeline: Pipeline, steps: StepTimes, matched: Messages) -> Array | None:
    """Of each message of this pipeline whether it goes forward; None where that cannot be told."""
    size = len(pipeline.ranks)
    if pipeline.chunks != 1 and size == 2:
        return _forward_of_two(pipeline, steps, matched)
    place = np.full(max(pipeline.ranks) + 1, 0)
    place[list(pipeline.ranks)] = np.arange(size)
    far = place[matched.receiver] - place[matched.sender]
    return (far == 1) | (far == 1 - size) if size > 2 else far == 1


def _forward_of_two(pipeline: Pipeline, steps: StepTimes, matched: Messages) -> Array | None:
    """Two ranks with several chunks send activations and gradients to each other: their order tells them apart."""
    forward = np.zeros(len(matched), bool)
    for stage, rank in enumerate(pipeline.ranks):
        order = interleaved_sends(stage, pipeline.micro_batches, pipeline.chunks)
        rows = np.flatnonzero(matched.sender == rank)
        rows = rows[np.argsort(matched.send_posted[rows], kind="stable")]
        step = steps.step_of(rank, (matched.send_begin_ns[rows] - steps.base_ns).astype(np.float64))
        rows, step = rows[step >= 0], step[step >= 0]
        if not len(order) or (np.bincount(step, minlength=len(steps.numbers)) != len(order)).any():
            return None
        forward[rows] = np.tile(order, len(steps.numbers))
    return forward


def interleaved_sends(rank: int, batches: int, chunks: int) -> list[bool]:
    """Of each message that one of two ranks sends in a step of interleaved 1F1B: whether it goes forward.

    Of warm-up, one forward and one backward in turn, drain, as Megatron and torch have it: the last stage sends no
    activations, the first no gradients.
    """
    passes, at_once = batches * chunks, batches // max(1, batches // 2)
    warmup = min(passes, (chunks - 1) * at_once + 2 * (1 - rank))
    forwards = [(at // at_once) % chunks for at in range(passes)]
    sends = [[True] if rank == 0 or chunk < chunks - 1 else [] for chunk in forwards]
    backs = [[False] if rank == 1 or chunk < chunks - 1 else [] for chunk in forwards]  # of the last chunk first
    order = sends[:warmup]
    for there, back in zip(sends[warmup:], backs, strict=False):
        order += [there, back]
    order += backs[passes - warmup :]
    return [send for some in order for send in some]


def _stands(
    rank: int, steps: StepTimes, matched: Messages, forward: Array | None
) -> tuple[_Stand, Array, Array, float]:
    """When this rank stands in calls for messages; when its first backward and its last forward pass are, by step; and
    how many micro-batches it sends on in a median step before the first comes back."""
    base = steps.base_ns
    received, sent = np.flatnonzero(matched.receiver == rank), np.flatnonzero(matched.sender == rank)
    recv_end, send_end = (
        values.astype(np.float64) for values in (matched.recv_end_ns[received] - base, matched.send_end_ns[sent] - base)
    )
    send_begin = (matched.send_begin_ns[sent] - base).astype(np.float64)
    since = np.concatenate([recv_end - matched.recv_blocked_ns[received], send_end - matched.send_blocked_ns[sent]])
    until = np.concatenate([recv_end, send_end])
    both = np.concatenate([matched.send_begin_ns[received] - base, matched.recv_begin_ns[sent] - base]).astype(
        np.float64
    )
    stand = _one_by_one(_Stand(since, until, both))
    count = len(steps.numbers)
    nothing = np.full(count, -np.inf)
    if forward is None:
        return stand, nothing, -nothing, 0.0
    there_in, there_out = forward[received], forward[sent]
    first_back, last_there = np.full(count, np.inf), np.full(count, -np.inf)
    for when, there in ((recv_end, there_in), (send_begin, there_out)):
        step = steps.step_of(rank, when)
        np.minimum.at(first_back, step[(step >= 0) & ~there], when[(step >= 0) & ~there])
        np.maximum.at(last_there, step[(step >= 0) & there], when[(step >= 0) & there])
    step = steps.step_of(rank, send_begin)
    early = (step >= 0) & there_out & (send_begin < first_back[np.maximum(step, 0)])
    ahead = float(np.median(np.bincount(step[early], minlength=count)))
    return stand, first_back, last_there, ahead


def _one_by_one(stand: _Stand) -> _Stand:
    """Each moment once: what NCCL sends and receives in one kernel it does at the same time."""
    order = np.lexsort((stand.until, stand.since))
    since, until, both = stand.since[order], stand.until[order], stand.both[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(until)[:-1]]) if len(until) else until
    since = np.minimum(np.maximum(since, before), until)
    return _Stand(since, until, both)


def _schedule_name(chunks: int, batches: int, stages: int, ahead: float) -> str:
    """By how many micro-batches the first stage sends on before one comes back."""
    if chunks > 1:
        return "interleaved"
    if batches <= stages:
        return "1F1B or GPipe"  # with so few micro-batches the first stage does the same in both
    return "GPipe" if ahead >= batches else "1F1B"


def _link(matched: Messages, one: int, other: int, steps: StepTimes) -> Link | None:
    """What its messages took, of those that the receiver waited for."""
    rows = np.flatnonzero((matched.sender == one) & (matched.receiver == other))
    if not len(rows):
        return None
    over = (matched.recv_end_ns[rows] - steps.base_ns).astype(np.float64)
    rows = rows[steps.step_of(other, over) >= 0]
    if not len(rows):
        return None
    blocked = matched.recv_blocked_ns[rows].astype(np.float64)
    took = (matched.recv_end_ns[rows] - np.maximum(matched.send_begin_ns[rows], matched.recv_begin_ns[rows])).astype(
        np.float64
    )
    # where the receiver came later than the sender, the message may have been under way for longer than that
    prompt = (matched.recv_begin_ns[rows] <= matched.send_begin_ns[rows]) & (blocked > 0.5 * took)
    exposed = np.minimum(blocked, np.maximum(took, 0.0)).sum() / len(steps.numbers)
    return Link(float(np.median(took[prompt])) if prompt.any() else 0.0, float(exposed))


# ---------------------------------------------------------------- tables of operations
def _of_operations(tables: Tables) -> Bubbles | None:
    combined: Bubbles | None = None
    for numbers, operations, *_ in layouts(tables.columns(SQL)):
        passes = [operation for operation in operations if _pass(operation)]
        stages = sorted({operation.stage for operation in passes})
        if len(stages) < 2:
            continue
        other, _ = messages(operations)
        window = (
            np.min([operation.start for operation in passes], axis=0),
            np.max([operation.end for operation in passes], axis=0),
        )
        of_stage: dict[int, list[int]] = {}
        for rank, stage in sorted({(operation.rank, operation.stage) for operation in passes}):
            of_stage.setdefault(stage, []).append(rank)
        both = {operation.rank for operation in passes if _pass(operation) == "forward"}
        both &= {operation.rank for operation in passes if _pass(operation) == "backward"}
        if len({len(ranks) for ranks in of_stage.values()}) > 1 or not both.issuperset(chain(*of_stage.values())):
            continue
        pipelines = list(zip(*of_stage.values(), strict=True))
        of_rank: dict[int, list[TimedOperation]] = {}
        for operation in operations:
            of_rank.setdefault(operation.rank, []).append(operation)
        mine = {rank: _of_rank(of_rank[rank], other, *window) for ranks in pipelines for rank in ranks}
        parts = {
            name: np.stack([np.stack([mine[rank][name] for rank in ranks]) for ranks in pipelines]) for name in PARTS
        }
        lengths = np.stack([window[1] - window[0]] * len(pipelines))
        if combined is None:
            name, batches, chunks = _schedule(passes)
            combined = Bubbles(pipelines, numbers, lengths, parts, batches, chunks, name)
        elif combined.pipelines == pipelines:
            combined.numbers = np.concatenate([combined.numbers, numbers])
            combined.window = np.concatenate([combined.window, lengths], axis=1)
            combined.parts = {name: np.concatenate([combined.parts[name], parts[name]], axis=2) for name in PARTS}
    return combined


def _pass(operation: TimedOperation) -> str:
    """Which pass an operation is, "" where it is none."""
    kind = operation.kind.lower()
    if operation.role != "compute" or operation.stage < 0:
        return ""
    return (
        "forward" if "forward" in kind or kind == "fwd" else "backward" if "backward" in kind or kind == "bwd" else ""
    )


def _schedule(passes: Sequence[TimedOperation]) -> tuple[str, int, int]:
    stages = len({operation.stage for operation in passes})
    lowest = min(operation.rank for operation in passes if operation.stage == 0)
    first = [operation for operation in passes if operation.stage == 0 and operation.rank == lowest]
    forward = [operation for operation in first if _pass(operation) == "forward"]
    backward = min((operation.usual_start for operation in first if _pass(operation) == "backward"), default=np.inf)
    ahead = sum(operation.usual_start < backward for operation in forward)
    chunks = max(1, len({operation.key[2] for operation in forward}))
    batches = len(forward) // chunks
    return _schedule_name(chunks, batches, stages, ahead), batches, chunks


def _of_rank(mine: Sequence[TimedOperation], other: Any, begin: Array, end: Array) -> dict[str, Array]:
    """What one rank does in the pipeline's time, in all steps of a layout."""
    passes = sorted((operation for operation in mine if _pass(operation)), key=lambda operation: operation.usual_start)
    first_backward = np.min([operation.start for operation in passes if _pass(operation) == "backward"], axis=0)
    last_forward = np.max([operation.end for operation in passes if _pass(operation) == "forward"], axis=0)
    moving = [
        (np.maximum(operation.start, other[id(operation)].start), operation.end)
        for operation in mine
        if operation.role == "receive" and id(operation) in other
    ]
    edges = [begin, *(edge for operation in passes for edge in (operation.start, operation.end)), end]
    parts_ns = {name: np.zeros(len(begin)) for name in PARTS}
    for low, high in zip(edges[::2], edges[1::2], strict=True):
        high = np.maximum(high, low)
        transfer = sum(
            (np.clip(np.minimum(high, over) - np.maximum(low, since), 0, None) for since, over in moving), 0.0
        )
        transfer = np.minimum(transfer, high - low)
        idle = high - low - transfer
        is_warmup, is_drain = low < first_backward, low >= last_forward
        parts_ns["transfer"] += transfer
        parts_ns["warmup"] += np.where(is_warmup, idle, 0.0)
        parts_ns["drain"] += np.where(is_drain & ~is_warmup, idle, 0.0)
        parts_ns["imbalance"] += np.where(~is_warmup & ~is_drain, idle, 0.0)
    parts_ns["compute"] = np.maximum(end - begin - sum(parts_ns[name] for name in PARTS[2:]), 0.0)
    return parts_ns


# ---------------------------------------------------------------- what is slow?
SLOWER = 1.2  # times as long as the others
MUCH = 0.03  # of the step: less is not worth a sentence
LINK_SLOWER = 4.0
MUCH_OF_LINK = 0.02  # of the step: only the first message of a step may show a latency, the others are on their way


@dataclass(frozen=True, slots=True)
class Slow:
    """A stage, a rank or a link that holds the pipeline up."""

    kind: str  # stage, rank or link
    ranks: tuple[int, ...]  # of a link: sender and receiver
    stage: int  # of a link: that of the sender
    times: float  # as long as the others
    excess_ns: float  # in a step


def slow_parts(bubble: Bubbles) -> list[Slow]:
    """What stands out, the most costly first: stages, ranks of a stage, links."""
    window = float(bubble.window.mean())
    slow = [*_slow_passes(bubble, window), *_slow_links(bubble, window)]
    return sorted(slow, key=lambda part: -part.excess_ns)


def _slow_passes(bubble: Bubbles, window: float) -> list[Slow]:
    slow = []
    compute = bubble.parts["compute"]  # N x P x S
    least = compute.min(axis=0)  # of a stage: what it takes where no rank of it is slow
    for stage in range(bubble.stages):
        ranks = tuple(pipeline[stage] for pipeline in bubble.pipelines)
        others = np.median(np.delete(least, stage, axis=0), axis=0)
        if excess := _excess(least[stage], others, window):
            slow.append(Slow("stage", ranks, stage, 1 + excess / float(np.median(others)), excess))
        for at, rank in enumerate(ranks if len(ranks) > 1 else ()):
            mates = np.median(np.delete(compute[:, stage], at, axis=0), axis=0)
            if excess := _excess(compute[at, stage], mates, window):
                slow.append(Slow("rank", (rank,), stage, 1 + excess / float(np.median(mates)), excess))
    return slow


def _excess(own_ns: Array, others: Array, window: float) -> float:
    """By how much longer it takes in the median step; 0.0: no more than chance, or too little to matter."""
    usual, excess = float(np.median(others)), float(np.median(own_ns - others))
    is_steady = float(np.quantile(own_ns - others, 0.25)) > (SLOWER - 1) / 2 * usual  # not only in a step or two
    return excess if is_steady and excess > max((SLOWER - 1) * usual, MUCH * window) else 0.0


def _slow_links(bubble: Bubbles, window: float) -> list[Slow]:
    slow = []
    stage_of = {rank: stage for pipeline in bubble.pipelines for stage, rank in enumerate(pipeline)}
    for pair, link in bubble.links.items():
        others = [
            usual_link.usual_ns for other, usual_link in bubble.links.items() if other != pair and usual_link.usual_ns
        ]
        usual = float(np.median(others)) if others else 0.0
        if others and link.usual_ns > LINK_SLOWER * usual and link.exposed_ns > MUCH_OF_LINK * window:
            slow.append(Slow("link", pair, stage_of[pair[0]], link.usual_ns / usual, link.exposed_ns))
    return slow


def slow_words(slow: Slow) -> str:
    """Stage 2 (rank 2), rank 5 of stage 1, the link from rank 0 to rank 1."""
    if slow.kind == "link":
        return f"the link from rank {slow.ranks[0]} to rank {slow.ranks[1]}"
    return (
        f"rank {slow.ranks[0]} of stage {slow.stage}"
        if slow.kind == "rank"
        else f"stage {slow.stage} ({rank_words(slow.ranks)})"
    )
