"""Outcomes in the order of tables: done ones by their place on the axes, repeats together."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.studies.outcome import Outcome


def by_place(outcomes: Sequence[Outcome], *axes: str) -> dict[tuple[str | int, ...], list[Outcome]]:
    """(values of the axes…, ranks) to the repeats that are done."""
    found: dict[tuple[str | int, ...], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.done:
            found.setdefault((*(outcome.cell[axis] for axis in axes), outcome.cell.ranks), []).append(outcome)
    return found
