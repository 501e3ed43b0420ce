"""Programs without torch that name their ranges: which of them makes a rank late."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rankscope.questions.stragglers.causes import causes_of
from rankscope.rank_file import LayerNumber, Part
from rankscope.store.run import RunTables
from runs.small_run import MILLI
from runs.step_runs import opened, rank, steps

STEPS, RANKS, LATE = 40, 4, 2


def made(folder: Path, part: Part, ranges_ms: dict[str, tuple[float, float]]) -> RunTables:
    """Rank 2 takes 8 ms longer in one part and its peers wait; of each range: ms of its peers, and of the late rank."""
    ranks = []
    for number in range(RANKS):
        random = np.random.default_rng(number)
        is_late = number == LATE
        parts, blocked = [], []
        for _ in range(STEPS):
            own = {Part.FORWARD: 5.0 * random.lognormal(0, 0.02), Part.OTHER: 4.0 * random.lognormal(0, 0.02)}
            own[part] += 8.0 if is_late else 0.0
            waits = 1.0 if is_late else 9.0
            blocked.append({Part.COMMUNICATION: waits})
            parts.append({**own, Part.COMMUNICATION: waits})
        one = rank(number, RANKS)
        one.steps(steps(parts, blocked))
        for name, values in ranges_ms.items():
            one.tally(name, STEPS, round(values[is_late] * STEPS * MILLI), layer=LayerNumber.TORCH)
        ranks.append(one)
    return opened(folder, *ranks)


@pytest.mark.parametrize(
    ("ranges_ms", "name"),
    [
        ({"assemble": (3.0, 11.0), "solve": (1.0, 1.0)}, "range assemble"),
        ({"assemble": (3.0, 11.0), "iteration": (9.0, 17.2)}, "range assemble"),  # one around the other
        ({"assemble": (3.0, 5.0)}, "other"),  # too little of it
        ({"only here": (0.0, 8.0)}, "range only here"),
        ({}, "other"),
    ],
)
def test_the_range_that_is_longer(ranges_ms: dict[str, tuple[float, float]], name: str, tmp_path: Path) -> None:
    (found,) = causes_of(made(tmp_path, Part.OTHER, ranges_ms))
    assert (found.late.rank, found.name) == (LATE, name)
    assert found.late.excess.value == pytest.approx(8 * MILLI, rel=0.05)


def test_a_part_that_tells_is_not_told_again_as_a_range(tmp_path: Path) -> None:
    (found,) = causes_of(made(tmp_path, Part.FORWARD, {"forward": (5.0, 13.0), "inner": (2.0, 10.0)}))
    assert found.name == "forward"


def test_nobody_is_late_for_a_range_that_delays_nobody(tmp_path: Path) -> None:
    run = made(tmp_path, Part.OTHER, {"assemble": (3.0, 11.0)})
    assert [one.late.rank for one in causes_of(run)] == [LATE]
    ranks = [rank(number, RANKS) for number in range(RANKS)]
    for number, one in enumerate(ranks):
        one.steps(steps([{Part.FORWARD: 5.0, Part.OTHER: 4.0}] * STEPS))
        one.tally("assemble", STEPS, (11 if number == LATE else 3) * STEPS * MILLI, layer=LayerNumber.TORCH)
    assert causes_of(opened(tmp_path / "even", *ranks)) == []
