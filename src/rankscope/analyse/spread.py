"""How is something spread over the ranks?"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.model import Cell, Column, Unit


def spread_columns(unit: Unit) -> tuple[Column, ...]:
    """Least, median and most of the ranks, and which they are."""
    end = {Unit.NS: "_ns", Unit.RATE: "_rate"}[unit]
    return (
        Column("ranks", Unit.COUNT, "Ranks"),
        Column(f"least_rank{end}", unit, "Least rank"),
        Column("least_rank", Unit.NAME, "Which"),
        Column(f"median_rank{end}", unit, "Median rank"),
        Column(f"most_rank{end}", unit, "Most rank"),
        Column("most_rank", Unit.NAME, "Which"),
    )


def spread(values: Sequence[tuple[float, int]]) -> tuple[Cell, ...]:
    """Of a value and its rank each: how many, the least, the lower median, the most."""
    ordered = sorted(values)
    if len(ordered) < 2:
        return len(ordered), None, None, None, None, None
    (least, least_rank), (most, most_rank) = ordered[0], ordered[-1]
    return len(ordered), least, least_rank, ordered[(len(ordered) - 1) // 2][0], most, most_rank
