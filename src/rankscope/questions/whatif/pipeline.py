"""How much of a pipeline's time is each stage idle, and why: filling, draining, uneven stages, or messages?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.whatif.of_operations import SQL, TimedOperation, layouts, messages

Array = Any  # of numpy
COLUMNS = (
    Column("stage", Unit.NAME, "Stage"),
    Column("ranks", Unit.COUNT, "Ranks", "ranks of this stage"),
    Column(
        "window_ns",
        Unit.NS,
        "Pipeline",
        "from the first forward pass of any stage to the last backward pass of any, mean over steps; the six columns "
        "from `forward_ns` to `imbalance_ns` add up to it",
    ),
    Column("forward_ns", Unit.NS, "Forward", "forward passes of all micro-batches, mean over ranks and steps"),
    Column("backward_ns", Unit.NS, "Backward", "backward passes of all micro-batches"),
    Column("bubble_share", Unit.SHARE, "Bubble", "1 − (`forward_ns` + `backward_ns`) ÷ `window_ns`"),
    Column("warmup_ns", Unit.NS, "Warm-up", "neither, before the stage's first backward pass; without `transfer_ns`"),
    Column("drain_ns", Unit.NS, "Drain", "neither, after its last forward pass; without `transfer_ns`"),
    Column(
        "transfer_ns",
        Unit.NS,
        "Exposed transfer",
        "neither, while a message that it receives is transferred: since both ends have come to it",
    ),
    Column("imbalance_ns", Unit.NS, "Imbalance", "all other time without a pass: other stages are slower"),
)


@dataclass(slots=True)
class _Stage:
    window: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    warmup: float = 0.0
    drain: float = 0.0
    transfer: float = 0.0
    imbalance: float = 0.0
    steps: int = 0  # x ranks


def pipeline(tables: Tables) -> Table | None:
    """The bubble of each stage; None where there is no pipeline."""
    columns = tables.columns(SQL)
    stages: dict[int, _Stage] = {}
    ranks: dict[int, set[int]] = {}
    schedule = ""
    for _, operations, _ in layouts(columns):
        passes = [one for one in operations if _pass(one)]
        if len({one.stage for one in passes}) < 2:
            continue
        schedule = schedule or _schedule(passes)
        other, _ = messages(operations)
        begin = np.min([one.start for one in passes], axis=0)
        end = np.max([one.end for one in passes], axis=0)
        for rank in sorted({one.rank for one in passes}):
            mine = [one for one in operations if one.rank == rank]
            stage = mine[0].stage
            ranks.setdefault(stage, set()).add(rank)
            _add(stages.setdefault(stage, _Stage()), mine, other, begin, end)
    if not stages:
        return None
    rows: list[tuple[Cell, ...]] = []
    for stage, one in sorted(stages.items()):
        mean = {name: getattr(one, name) / one.steps for name in _Stage.__slots__ if name != "steps"}
        bubble = 1 - (mean["forward"] + mean["backward"]) / mean["window"]
        times = (mean[name] for name in ("warmup", "drain", "transfer", "imbalance"))
        rows.append(
            (stage, len(ranks[stage]), mean["window"], mean["forward"], mean["backward"], max(0.0, bubble), *times)
        )
    return Table("pipeline", "Pipeline: bubble of each stage", COLUMNS, rows, notes=[schedule])


def _pass(one: TimedOperation) -> str:
    """Which pass an operation is, "" where it is none."""
    kind = one.kind.lower()
    if one.role != "compute" or one.stage < 0:
        return ""
    return (
        "forward" if "forward" in kind or kind == "fwd" else "backward" if "backward" in kind or kind == "bwd" else ""
    )


def _schedule(passes: Sequence[TimedOperation]) -> str:
    stages = len({one.stage for one in passes})
    first = [one for one in passes if one.stage == 0 and one.rank == min(one.rank for one in passes if one.stage == 0)]
    forward = [one for one in first if _pass(one) == "forward"]
    backward = min(one.usual_start for one in first if _pass(one) == "backward")
    ahead = sum(one.usual_start < backward for one in forward)
    chunks = max(1, len({one.key[2] for one in forward}))
    batches = len(forward) // chunks
    name = "interleaved" if chunks > 1 else "GPipe" if ahead == len(forward) and batches > stages else "1F1B"
    share = (stages - 1) / (chunks * batches + stages - 1)
    balanced = f"balanced stages and free messages would have a bubble of {100 * share:.1f} %"
    if batches <= stages and chunks == 1:
        name = "1F1B or GPipe"  # with so few micro-batches the first stage does the same in both
    told = f" of {chunks} chunks" if chunks > 1 else ""
    return f"{name}, {stages} stages{told}, {batches} micro-batches a step: {balanced}."


def _add(stage: _Stage, mine: Sequence[TimedOperation], other: Any, begin: Array, end: Array) -> None:
    """What one rank does in the pipeline's time, in all steps of a layout."""
    passes = sorted((one for one in mine if _pass(one)), key=lambda one: one.usual_start)
    first_backward = np.min([one.start for one in passes if _pass(one) == "backward"], axis=0)
    last_forward = np.max([one.end for one in passes if _pass(one) == "forward"], axis=0)
    moving = [
        (np.maximum(one.start, other[id(one)].start), one.end)
        for one in mine
        if one.role == "receive" and id(one) in other
    ]
    edges = [begin, *(edge for one in passes for edge in (one.start, one.end)), end]
    for one in passes:
        length = float((one.end - one.start).sum())
        setattr(stage, _pass(one), getattr(stage, _pass(one)) + length)
    for low, high in zip(edges[::2], edges[1::2], strict=True):
        high = np.maximum(high, low)
        transfer = sum(
            (np.clip(np.minimum(high, over) - np.maximum(low, since), 0, None) for since, over in moving), 0.0
        )
        transfer = np.minimum(transfer, high - low)
        idle = high - low - transfer
        is_warmup, is_drain = low < first_backward, low >= last_forward
        stage.transfer += float(np.sum(transfer))
        stage.warmup += float(idle[is_warmup].sum())
        stage.drain += float(idle[is_drain & ~is_warmup].sum())
        stage.imbalance += float(idle[~is_warmup & ~is_drain].sum())
    stage.window += float((end - begin).sum())
    stage.steps += len(begin)
