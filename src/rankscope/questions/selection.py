"""What of a run to look at, and how to order and cut a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankscope.model.tables import Cell, Column, Table, Unit

MANY_RANKS = 64  # from so many on nobody reads rows of single ranks any more


# ---------------------------------------------------------------- how is something spread over the ranks?
def spread_columns(unit: Unit) -> tuple[Column, ...]:
    """Least, median and most of the ranks, and which they are."""
    end = {Unit.NS: "_ns", Unit.RATE: "_rate"}[unit]
    return (
        Column("ranks", Unit.COUNT, "Ranks", "number of ranks that have it"),
        Column(f"least_rank{end}", unit, "Min rank", "smallest value of a rank"),
        Column("least_rank", Unit.NAME, "On rank", "the rank with the smallest value"),
        Column(f"median_rank{end}", unit, "Median rank", "median of the values of the ranks (the lower of two)"),
        Column(f"most_rank{end}", unit, "Max rank", "largest value of a rank"),
        Column("most_rank", Unit.NAME, "On rank", "the rank with the largest value"),
    )


def spread(values: Sequence[tuple[float, int]]) -> tuple[Cell, ...]:
    """Of a value and its rank each: how many, the least, the lower median, the most."""
    ordered = sorted(values)
    if len(ordered) < 2:
        return len(ordered), None, None, None, None, None
    (least, least_rank), (most, most_rank) = ordered[0], ordered[-1]
    return len(ordered), least, least_rank, ordered[(len(ordered) - 1) // 2][0], most, most_rank


# ---------------------------------------------------------------- selection
@dataclass(frozen=True, slots=True)
class Selection:
    """Which ranks (None: all), how many rows at most (None: all), sorted by what (None: the table's own order)."""

    ranks: frozenset[int] | None = None
    top: int | None = None
    sort: str | None = None

    @property
    def condition(self) -> str:
        """The SQL condition on the table ranks."""
        if self.ranks is None:
            return "role = 'rank'"
        return f"role = 'rank' AND rank IN ({', '.join(str(int(rank)) for rank in sorted(self.ranks)) or 'NULL'})"


ALL = Selection()


def arranged(table: Table, selection: Selection) -> Table:
    """The table in the wanted order (largest numbers first), cut to the wanted length, and saying so."""
    names = [column.name for column in table.columns]
    if selection.sort in names:
        table.rows.sort(key=_order(names.index(selection.sort)))
    if selection.top is not None and len(table.rows) > selection.top:
        table.notes.append(f"{len(table.rows) - selection.top} more rows: --top 0 shows all")
        del table.rows[selection.top :]
    return table


def _order(at: int) -> Callable[[tuple[Cell, ...]], tuple[int, float, str]]:
    def key(row: tuple[Cell, ...]) -> tuple[int, float, str]:
        cell = row[at]
        if isinstance(cell, str):
            return 0, 0.0, cell
        return (1, 0.0, "") if cell is None else (0, -float(cell), "")

    return key
