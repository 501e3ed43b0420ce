"""Communication that nothing hides takes much of the step."""

from __future__ import annotations

import numpy as np

from rankscope.model import Tables
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.steps.data import Steps, steps_of
from rankscope.questions.steps.waits import waits_per_step

NOTICEABLE = 0.15  # of the step, waiting for late ranks left out


def exposed_communication(tables: Tables) -> list[Finding]:
    """Blocked in collectives while data moved: without the waiting, which no faster network would shorten."""
    found = steps_of(tables)
    waits = waits_per_step(tables, found)
    moving, lengths, counts = [], [], []
    for one in found.ranks:
        mask = found.steady(one)
        if not mask.any() or one.rank not in waits:
            return []
        exposed = float(one.exposed_ns[mask].mean())
        # waiting comes first in a collective and moving data last: what is exposed is moving data as far as it goes
        moving.append(min(exposed, waits[one.rank][1]))
        lengths.append(float(one.length_ns[mask].mean()))
        counts.append(int(mask.sum()))
    if len(moving) < 2:
        return []
    # the rank that came last waits for nobody: what it is blocked for is no waiting by any clock
    each, step = float(np.min(moving)), float(np.mean(lengths))
    if each < NOTICEABLE * step:
        return []
    return [
        Finding(
            "exposed_communication",
            f"Moving data takes {seconds(each)} of a step of {seconds(step)} ({each / step:.0%}) unhidden",
            "overlap it with the backward pass (DDP buckets, nonblocking calls), send less (larger batches, gradient "
            "accumulation, lower precision) or look at the network's bandwidth in the table collectives",
            [f"step_parts: moving data blocks every rank at least {seconds(each)} a step{_hidden(found)}"],
            each * min(counts),
        )
    ]


def _hidden(found: Steps) -> str:
    """What is hidden already, where it was recorded."""
    told = [float(one.of_which["hidden"][found.steady(one)].mean()) for one in found.ranks if "hidden" in one.of_which]
    return f"; {seconds(float(np.mean(told)))} are hidden" if told else ""
