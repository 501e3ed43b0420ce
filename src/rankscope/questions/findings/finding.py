"""What a rule says."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.questions.whatif.changes import Change


@dataclass(slots=True)
class Finding:
    """Something worth doing about a run."""

    rule: str
    title: str  # with the ranks and numbers that matter
    action: str  # what to do next
    evidence: list[str] = field(default_factory=list)  # "table: what its rows say"
    saved_ns: float | None = None  # of the job's elapsed time, at most; None: what makes the other numbers doubtful
    once: bool = False  # however long the job runs, it costs no more than this
    in_steps: bool = True  # what is saved is time of the steps, so that a longer job saves more
    fix: Change | None = None  # the what-if that tells what it saves, where the run can be replayed
    loss_ns: float | None = None  # of a step, as the title says, 0 where it does not; None: saved_ns by the steps


def seconds(ns: float) -> str:
    """A time in three digits, for a sentence."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.0f} ns"
