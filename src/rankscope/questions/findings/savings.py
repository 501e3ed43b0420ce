"""What would fixing a finding save, by the replay that `rankscope whatif` makes of the same run?"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from rankscope.model.tables import Tables, Wrong
from rankscope.questions.findings.finding import Finding
from rankscope.questions.steps.data import steps_of
from rankscope.questions.whatif.changes import checked
from rankscope.questions.whatif.whatif import LEAST_SAVING, Model, model_of

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
        if (
            before - after >= LEAST_SAVING * before
        ):  # else it does not see what the rule sees, and `whatif` shows nothing
            finding.saved_ns = (before - after) * _steps(tables, model)


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
