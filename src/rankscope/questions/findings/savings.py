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
        finding.title += _of_it(model, change, loss_ns, before - after) + _by_moving_layers(model, change)
        finding.saved_ns = (before - after) * steps


# by the kind of the what-if: why it saves less than its title says that a step loses, and why more
THEN_OTHERS = ", then others hold the step up"
LATER = ": in some steps it is later than that, and waits that follow from it end, too"
LESS = {
    "overlap": " by overlap: the rest becomes wait",
    "rank": THEN_OTHERS,
    "stage": THEN_OTHERS,
    "cause": ": ranks wait for others as long",
}
MORE = {
    "overlap": " by overlap: waits that follow from it end, too",
    "rank": LATER,
    "stage": LATER,
    "cause": ": some ranks lose more by it, and others wait for them",
}
NOTHING_TO_OVERLAP = " by overlap: there is no more compute to hide it behind"


def _of_it(model: Model, change: Change, loss_ns: float, saved_ns: float) -> str:
    """What a title says of its saving, where that is another time than the one it begins with."""
    if not loss_ns or abs(saved_ns - loss_ns) <= ALIKE * loss_ns:
        return ""
    if saved_ns > loss_ns:
        return f"; {seconds(saved_ns)} of a step could be saved{MORE[change.kind]}"
    why = NOTHING_TO_OVERLAP if change.kind == "overlap" and _is_least(model, change) else LESS[change.kind]
    return f"; {seconds(saved_ns)} of it could be saved{why}"


def _by_moving_layers(model: Model, change: Change) -> str:
    """What is left of the saving where other stages take the work over, as the advice is: no more than the ideal."""
    if change.kind != "stage":
        return ""
    moved_ns = float((model.replayed_ns - model.changed_ns([Change("balance")])).mean())
    return f"; {seconds(max(0.0, moved_ns))} by moving layers, which other stages then compute"


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
