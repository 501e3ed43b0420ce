"""Which of a rank's own time between messages are forward and backward passes of a pipeline, and how long are they?

A forward pass lies between what came from the stage before and what is sent to the next one, a backward pass the other
way round; the first and the last stage have one of the two only. What two stages do between two messages is not the
same, but a pass of one is: so one stage can be given the passes of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.questions.messages import Messages
from rankscope.questions.parallelism.groups import Pipeline
from rankscope.questions.whatif.program import Durations, Program

Array = Any  # of numpy
MOST_GAPS = 8  # of a rank's own time in the window of one pass
OFTEN = 0.1  # of the most frequent passes between two messages: what is rarer tells nothing about their length


@dataclass(slots=True)
class Passes:
    """P passes of the ranks of pipelines, each with the time in which it must have been, in the order of ranks."""

    place: Array  # of the rank
    forward: Array
    since: Array
    until: Array


@dataclass(slots=True)
class Gaps:
    """G stretches of own time, and the operation that each comes before."""

    operation: Array
    place: Array
    since: Array
    until: Array


def stages_of(pipelines: Sequence[Pipeline], ranks: Sequence[int]) -> Array:
    """Of each rank its place in its pipeline, -1 where it is in none."""
    place = {rank: at for at, rank in enumerate(ranks)}
    stages = np.full(len(ranks), -1)
    for pipeline in pipelines:
        for stage, rank in enumerate(pipeline.ranks):
            if rank in place:
                stages[place[rank]] = stage
    return stages


def passes_of(
    messages: Messages, pipelines: Sequence[Pipeline], ranks: Sequence[int], base_ns: int, begin: Array, end: Array
) -> Passes:
    """All passes in the steps, whose begins and ends are those of each rank; none of ranks with several chunks."""
    place = {rank: at for at, rank in enumerate(ranks)}
    pieces: list[tuple[Array, ...]] = []
    for pipeline in pipelines:
        for stage, rank in enumerate(pipeline.ranks if pipeline.chunks == 1 else ()):
            neighbours = [
                pipeline.ranks[at] if 0 <= at < len(pipeline.ranks) else None for at in (stage - 1, stage + 1)
            ]
            windows = _windows(messages, rank, neighbours, base_ns)
            pieces.append(_in_steps(place[rank], windows, begin[place[rank]], end[place[rank]]))
    if not pieces:
        return Passes(*(np.zeros(0, kind) for kind in (np.int64, bool, np.float64, np.float64)))
    return Passes(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _windows(messages: Messages, rank: int, neighbours: Sequence[int | None], base_ns: int) -> tuple[Array, ...]:
    """Of each pass: a moment of its step, whether it is forward, since and until.

    What begins or ends with no message is bounded by the pass before or after it on its rank.
    """
    windows: list[tuple[Array, ...]] = []
    for is_forward, (source, target) in ((True, neighbours), (False, neighbours[::-1])):
        came = _sorted(
            messages.recv_end_ns, messages.recv_posted, (messages.receiver == rank) & (messages.sender == source)
        )
        left = _sorted(
            messages.send_begin_ns, messages.send_posted, (messages.sender == rank) & (messages.receiver == target)
        )
        count = min(len(times) for times, there in ((came, source), (left, target)) if there is not None)
        unknown = np.full(count, np.nan)
        # what is missing was overwritten, and so at the beginning
        begin = (came[len(came) - count :] - base_ns).astype(np.float64) if source is not None else unknown
        end = (left[len(left) - count :] - base_ns).astype(np.float64) if target is not None else unknown
        windows.append((end if target is not None else begin, np.full(count, is_forward), begin, end))
    anchor, forward, since, until = (np.concatenate(column) for column in zip(*windows, strict=True))
    order = np.lexsort((np.isnan(until), anchor))  # at one moment a rank sends before it receives
    anchor, forward, since, until = anchor[order], forward[order], since[order], until[order]
    before, after = np.concatenate([[np.nan], anchor[:-1]]), np.concatenate([anchor[1:], [np.nan]])
    opens = forward & np.isnan(since)  # of the first stage: the pass before may be one of the step before
    since, until = np.where(np.isnan(since), before, since), np.where(np.isnan(until), after, until)
    # what a GPU sends last it may send when its step has ended: the other end of a pass is in its step
    return np.where(opens, until, since), forward, since, until


def _sorted(when: Array, posted: Array, rows: Array) -> Array:
    chosen = np.flatnonzero(rows)
    return when[chosen[np.argsort(posted[chosen], kind="stable")]]


def _in_steps(place: int, windows: tuple[Array, ...], begin: Array, end: Array) -> tuple[Array, ...]:
    moment, forward, since, until = windows
    step: Array = np.searchsorted(begin, moment, "right") - 1
    inside = (step >= 0) & (moment <= end[np.maximum(step, 0)])
    step = step[inside]
    since, until = np.fmax(since[inside], begin[step]), np.fmin(until[inside], end[step])
    return np.full(len(step), place), forward[inside], since, until


def passes_before(passes: Passes, gaps: Gaps, operations: int) -> Array:
    """N x 2: how many forward and backward passes lie in the own time before each operation.

    Of the stretches of own time in its window a pass is in the longest.
    """
    counts = np.zeros((operations, 2), np.int16)
    for place in np.unique(passes.place).tolist():
        own_gaps = np.flatnonzero(gaps.place == place)
        own_gaps = own_gaps[np.argsort(gaps.since[own_gaps], kind="stable")]
        mine = passes.place == place
        if not len(own_gaps):
            continue
        begin, end = gaps.since[own_gaps], np.maximum.accumulate(gaps.until[own_gaps])
        since, until = passes.since[mine], passes.until[mine]
        first = np.searchsorted(end, since, "right")
        best, longest = np.full(len(since), -1), np.zeros(len(since))
        for more in range(MOST_GAPS):
            at = np.minimum(first + more, len(own_gaps) - 1)
            common = np.minimum(gaps.until[own_gaps][at], until) - np.maximum(begin[at], since)
            longer = (common > longest) & (first + more < len(own_gaps))
            best, longest = np.where(longer, at, best), np.where(longer, common, longest)
        has = best >= 0
        kind = np.where(passes.forward[mine], 0, 1)
        np.add.at(counts, (gaps.operation[own_gaps[best[has]]], kind[has]), 1)
    return counts


# ---------------------------------------------------------------- what a stage takes
@dataclass(slots=True)
class _Work:
    """What the passes of one rank take on average, in ns."""

    rows: dict[tuple[int, int], Array]  # operations by the forward and backward passes before them
    usual: dict[tuple[int, int], float]
    both: float  # a forward and a backward pass
    forward: float | None  # None: they always follow each other
    backward: float | None


def _work_of(program: Program, gap: Array, place: int) -> _Work | None:
    assert program.passes is not None
    mine = np.flatnonzero((program.rank == place) & program.passes.any(axis=1))
    if not len(mine):
        return _all_of(program, gap, place)
    kinds, of_kind = np.unique(program.passes[mine], axis=0, return_inverse=True)
    rows = {(int(f), int(b)): mine[of_kind.reshape(-1) == at] for at, (f, b) in enumerate(kinds.tolist())}
    usual = {kind: float(gap[own_rows, 0].mean(dtype=np.float64)) for kind, own_rows in rows.items()}
    most = max(len(own_rows) for own_rows in rows.values())
    often = [kind for kind, own_rows in rows.items() if len(own_rows) >= OFTEN * most]
    weights = np.sqrt([len(rows[kind]) for kind in often])
    (forward, backward), _, independent, _ = np.linalg.lstsq(
        np.array(often, np.float64) * weights[:, None], np.array([usual[kind] for kind in often]) * weights, rcond=None
    )
    forward, backward = max(0.0, float(forward)), max(0.0, float(backward))
    if independent < 2:
        return _Work(rows, usual, forward + backward, None, None)
    return _Work(rows, usual, forward + backward, forward, backward)


def _all_of(program: Program, gap: Array, place: int) -> _Work | None:
    """Where no single passes are known: all of its time in the steps, as if it were one pass both ways."""
    assert program.step is not None
    mine = np.flatnonzero((program.rank == place) & (program.step >= 0))
    usual = float(gap[mine, 0].mean(dtype=np.float64)) if len(mine) else 0.0
    total_ns = usual * len(mine) / len(program.numbers)
    return _Work({(1, 1): mine}, {(1, 1): usual}, total_ns, None, None) if total_ns else None


def as_other_stages(program: Program, gap: Array, stages: Sequence[int], others: Sequence[int]) -> None:
    """Give the ranks at these places the passes that the median of other ranks of pipelines has; their noise stays."""
    known = [work for place in others if (work := _work_of(program, gap, place)) is not None]
    if not known:
        return
    both = _lower_median([work.both for work in known])
    apart = [(work.forward, work.backward) for work in known if work.forward is not None and work.backward is not None]
    passes = tuple(map(_lower_median, zip(*apart, strict=True))) if apart else None
    for place in stages:
        work = _work_of(program, gap, place)
        if work is None or not work.both:
            continue
        forward, backward = passes or _shared_out(both, work)
        for (f, b), rows in work.rows.items():
            if work.forward is not None and work.usual[f, b] > 0:
                gap[rows] *= (f * forward + b * backward) / work.usual[f, b]
            else:  # nothing but the sum is known of this one
                gap[rows] *= both / work.both


def _shared_out(both: float, work: _Work) -> tuple[float, float]:
    """Of others only the sum of both passes is known: backward takes twice as long as forward, but no longer than here.

    For each product of a forward pass there are two in its backward pass: the gradients of inputs and of weights.
    """
    backward = min(both * 2 / 3, work.backward if work.backward is not None else both)
    return both - backward, backward


def share_evenly(program: Program, time: Durations) -> Durations:
    """Every rank of a pipeline with as much work as their mean."""
    stage_of = np.full(len(program.ranks), -1)
    stage_of[program.rank] = program.stage
    gap = time.gap_ns.copy()
    known: Mapping[int, _Work] = {
        place: work
        for place in np.flatnonzero(stage_of >= 0).tolist()
        if (work := _work_of(program, gap, place)) is not None
    }
    mean = float(np.mean([work.both for work in known.values()])) if known else 0.0
    for work in known.values():
        for rows in work.rows.values():
            gap[rows] *= mean / work.both if work.both else 1.0
    return Durations(gap, time.own_ns)


def _lower_median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]
