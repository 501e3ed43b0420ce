"""What the analysis says of each case of a job, beside the truth."""

from __future__ import annotations

import json
from pathlib import Path

from questions.stragglers.schedule import SETTLING_STEPS, Window, windows_of
from questions.stragglers.scores import Scores
from rankscope.questions.steps.data import Steps, steps_of
from rankscope.questions.stragglers.causes import LateCause, cause_of
from rankscope.questions.stragglers.lateness import late_ranks
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run

DISTURBED = 0.5  # CPUs that other programs use


def judge(folder: Path, cases: tuple[int, int, int, int, float], scores: Scores) -> None:
    """Add up the cases of one job: seed, ranks, cases, steps of each, share of none."""
    found = steps_of(open_run(folder, read_rank_file))
    for window in windows_of(*cases):
        cause = first_cause(found, window)
        told = (cause.late.rank, cause.name) if cause else None
        other = other_load(folder, found, window)
        scores.add(window.told, told, ratios_of(folder, window, cause), other > DISTURBED)
        if told != window.told:
            why = f"{cause.evidence if cause else ''}; other programs: {other:.1f} CPUs"
            print(f"  {cases[1]} ranks, {window}: told {told} ({why})")


def first_cause(found: Steps, window: Window) -> LateCause | None:
    late = late_ranks(found.between(window.first + SETTLING_STEPS, window.last))
    return cause_of(late[0]) if late else None


def other_load(folder: Path, found: Steps, window: Window) -> float:
    """How many CPUs other programs used meanwhile; 0 beside hogs of our own, which are others too."""
    truth = Path(f"{folder}.truth.busy.{window.first}")
    if window.cause == "hog" or not truth.exists():
        return 0.0
    cut = found.between(window.first, window.last)
    own_ns = sum(float(one.of_which["process_cpu"].sum()) for one in cut.ranks)
    elapsed_ns = max(float(one.length_ns.sum()) for one in cut.ranks)
    return (float(json.loads(truth.read_text(encoding="utf-8"))["busy_ns"]) - own_ns) / elapsed_ns


def ratios_of(folder: Path, window: Window, cause: LateCause | None) -> tuple[float, ...]:
    """Estimated ÷ true wait a step, in the cause and in all; a hog's is not known."""
    truth = Path(f"{folder}.truth.{window.first}")
    if cause is None or window.cause in ("", "hog") or not truth.exists():
        return ()
    held_ns = float(json.loads(truth.read_text(encoding="utf-8"))["held_ns"])
    return cause.ns / held_ns, cause.late.excess.value / held_ns
