"""What a run would take without one of its problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike

from rankscope.api.run import Run
from rankscope.model.tables import Table
from rankscope.questions.parallelism.bubbles import bubbles
from rankscope.questions.whatif.changes import BALANCES, checked, parsed
from rankscope.questions.whatif.whatif import critical_path, model_of, whatif

__all__ = ["BALANCES", "Asked", "Whatif", "ask_whatif"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be different; nothing: the obvious changes are tried."""

    without: Sequence[str] = ()  # rank=7, stage=2, cause=data, preemption
    balance: Sequence[str] = ()  # stage, micro-batches
    bandwidth: str = ""  # x2
    overlap: bool = False
    ideal: bool = False


@dataclass(slots=True)
class Whatif:
    """The answer: how good the model is first; where it is not good enough that is all, and `refusal` says why."""

    tables: list[Table] = field(default_factory=list)
    refusal: str = ""


def ask_whatif(run: str | PathLike[str] | None, request: Asked, groups: str | None = None) -> Whatif:
    """Replay a run with these changes; groups of ranks, as in pp=0-3;dp=0,4, stand for what would be inferred."""
    changes = parsed(request.without, request.balance, request.bandwidth, request.overlap, request.ideal)
    tables = Run(run, groups=groups).store(events=True)
    model = model_of(tables)
    if changes:  # all in one go: the answers below find what they ask for
        asked_for = [checked(change, model.some) for change in changes]
        model.replay([*([change] for change in asked_for), asked_for])
    refusal = model.refusal()
    if refusal:
        return Whatif([model.table()], refusal)
    stages = bubbles(tables)
    return Whatif([model.table(), whatif(model, changes), critical_path(model), *([stages] if stages.rows else [])])
