"""How long is it until the study is done, by the cells that have ended?"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.studies.outcome import Outcome
from rankscope.studies.plan import Cell


class Pace:
    """How long cells take, by what they have in common with those that have ended."""

    def __init__(self, outcomes: Sequence[Outcome] = ()) -> None:
        self.seconds: dict[tuple[object, ...], list[float]] = {}
        for outcome in outcomes:
            self.took(outcome)

    def took(self, outcome: Outcome) -> None:
        if outcome.seconds is not None:
            for key in keys(outcome.cell):
                self.seconds.setdefault(key, []).append(outcome.seconds)

    def left_s(self, waiting: Sequence[Cell]) -> float | None:
        """None while nothing is known yet."""
        if not self.seconds:
            return None
        return sum(self.expected_s(cell) for cell in waiting)

    def expected_s(self, cell: Cell) -> float:
        known = next((self.seconds[key] for key in keys(cell) if key in self.seconds), [])
        return sum(known) / len(known) if known else 0.0


def keys(cell: Cell) -> list[tuple[object, ...]]:
    """From what is most alike to what all have in common."""
    return [("cell", cell.values, cell.ranks), ("values", cell.values), ("ranks", cell.ranks), ()]
