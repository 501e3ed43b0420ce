"""What would fixing a finding save, by the replay that `rankscope whatif` makes of the same run?"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Tables, Wrong
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.steps.data import steps_of
from rankscope.questions.whatif.changes import Change, checked, least_step_ns
from rankscope.questions.whatif.whatif import LEAST_SAVING, Model, model_of

LITTLE = 0.25  # of a stage's saving: if moving layers brings less, something else makes its ranks wait
ALIKE = 0.05  # of what the title says that a step loses: a saving as near as that is the same
_KEPT: WeakKeyDictionary[Tables, Model | None] = WeakKeyDictionary()


def replayed_savings(tables: Tables, findings: Sequence[Finding]) -> None:
    """Give the findings that a what-if stands for its saving; where the run cannot be replayed they keep their own."""
    fixed = [finding for finding in findings if finding.fix is not None]
    model = replayed_model(tables) if fixed else None
    for finding in fixed if model is not None else ():
        assert model is not None and finding.fix is not None
        try:
            change = checked(finding.fix, model.some)
        except Wrong:  # this run does not tell it
            continue
        before, after = float(model.replayed_ns.mean()), float(model.changed_ns([change]).mean())
        if before - after < LEAST_SAVING * before:
            continue  # it does not see what the rule sees, and `whatif` shows nothing
        steps = _steps(tables, model)
        loss_ns = finding.loss_ns if finding.loss_ns is not None else (finding.saved_ns or 0.0) / steps
        finding.title += _of_it(model, change, loss_ns, before - after)
        finding.saved_ns = (before - after) * steps
        if change.kind == "stage":
            _advise_of_stage(finding, model, before - after)
        elif change.kind == "even":
            share = (before - after) / before
            finding.title += f"; equal ones would save {seconds(before - after)} of each step ({100 * share:.0f} %)"


# by the kind of the what-if: why it saves less than its title says that a step loses, and why more
OTHERS_LIMIT = "then other ranks limit the step"
LATER_AT_TIMES = "it is later in some steps, and delays the steps that follow"
LESS = {
    "overlap": "the rest turns into wait",
    "rank": OTHERS_LIMIT,
    "stage": OTHERS_LIMIT,
    "cause": "ranks would still wait for others",
    "even": OTHERS_LIMIT,
}
MORE = {
    "overlap": "ranks would also wait less for each other",
    "rank": LATER_AT_TIMES,
    "stage": LATER_AT_TIMES,
    "cause": "some ranks lose more, and the others wait for them",
    "even": LATER_AT_TIMES,
}
TOO_LITTLE_COMPUTE = "there is too little compute to hide all of it"


def _of_it(model: Model, change: Change, loss_ns: float, saved_ns: float) -> str:
    """What a title says of its saving, where that is another time than the one it begins with."""
    if not loss_ns or abs(saved_ns - loss_ns) <= ALIKE * loss_ns:
        return ""
    if saved_ns > loss_ns:
        why = MORE[change.kind]
    else:
        why = TOO_LITTLE_COMPUTE if change.kind == "overlap" and _is_least(model, change) else LESS[change.kind]
    fixing = "overlapping" if change.kind == "overlap" else "fixing"
    return f"; {fixing} it would save {seconds(saved_ns)} per step: {why}"


def _advise_of_stage(finding: Finding, model: Model, saved_ns: float) -> None:
    """What is left of the saving where other stages take the work over, as the advice is: no more than the ideal."""
    moved_ns = max(0.0, float((model.replayed_ns - model.changed_ns([Change("balance")])).mean()))
    if model.uneven and moved_ns < LITTLE * saved_ns:
        both_ns = float((model.replayed_ns - model.changed_ns([Change("even"), Change("balance")])).mean())
        finding.title += f"; moving layers alone would save {seconds(moved_ns)} per step, as micro-batches differ"
        finding.action = (
            "make micro-batches equally long first, then move layers from it to the other stages: both together "
            f"save {seconds(both_ns)} per step"
        )
    else:
        finding.title += (
            f"; moving layers to other stages would save {seconds(moved_ns)} per step, as those then take longer"
        )


def _is_least(model: Model, change: Change) -> bool:
    """Whether most steps would take no longer than their transfer alone."""
    least_ns = np.concatenate([least_step_ns(program, [change], program.time) for program in model.programs])
    return bool(np.median(model.changed_ns([change]) - least_ns) <= ALIKE * least_ns.mean())


def _steps(tables: Tables, model: Model) -> int:
    """All steady ones: some are replayed, of those whose records are kept and, on GPUs, that windows have recorded."""
    return max(len(model.replayed_ns), steps_of(tables).all_steady_steps())


def replayed_model(tables: Tables) -> Model | None:
    """None where it does not give the steps back, and of runs so large that making it takes as long as the report."""
    if tables not in _KEPT:
        _KEPT[tables] = None
        if getattr(tables, "log_parts", lambda: None)() is None:
            try:
                model = model_of(tables)
            except Wrong:
                return None
            _KEPT[tables] = None if model.is_large or model.refusal() else model
    return _KEPT[tables]
