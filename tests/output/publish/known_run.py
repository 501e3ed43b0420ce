"""A run of two ranks and a hundred steps whose every metric is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankscope.rank_file import Part
from runs.small_run import write_run
from runs.step_runs import log, rank, steps

STEPS = 100
PARTS_S = {"data": 0.001, "forward": 0.004, "backward": 0.003, "exposed_communication": 0.002}
STEP_S = sum(PARTS_S.values())
LATE = 1  # comes 1.5 ms late to the all-reduce of every step
LATE_S = 0.0015


def known_run(folder: Path, ranks: int = 2, done: int = STEPS, **header: Any) -> Path:
    """Its ranks have a step of 10 ms each, one after the other, and an all-reduce at the end of each step."""
    parts = {Part.DATA: 1.0, Part.FORWARD: 4.0, Part.BACKWARD: 3.0, Part.COMMUNICATION: 2.0}
    made = []
    for number in range(ranks):
        one = rank(number, ranks, **header)
        one.steps(steps([parts] * done, [{Part.COMMUNICATION: 2.0}] * done))
        late_ms = 1e3 * LATE_S if number == LATE else 0.0
        log(one, [("MPI_Allreduce", 8, 1008.0 + 10 * at + late_ms, 1010.0 + 10 * at) for at in range(done)])
        made.append(one)
    return write_run(folder, *made, expected_ranks=ranks)
