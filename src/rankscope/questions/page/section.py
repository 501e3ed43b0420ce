"""What a page is to show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankscope.model.tables import Cell, Table, Tables
from rankscope.pictures import Screen
from rankscope.questions.selection import ALL, Selection
from rankscope.questions.wording import percent


def number(cell: Cell) -> float:
    """A cell in arithmetic: what is not known counts nothing."""
    return float(cell) if isinstance(cell, int | float) else 0.0


def column(table: Table, name: str) -> list[Cell]:
    at = [each.name for each in table.columns].index(name)
    return [row[at] for row in table.rows]


def mean(table: Table, name: str) -> float:
    numbers = [number(cell) for cell in column(table, name) if cell is not None]
    return sum(numbers) / len(numbers) if numbers else 0.0


VISIBLE = 0.001  # of the whole: a part that is smaller on every rank is no bar
WORDS = {"exposed_ns": "exposed communication", "data_ns": "data loading"}  # of columns with a shorter heading


def visible_parts(table: Table, names: Iterable[str], total: str) -> tuple[str, ...]:
    """The columns whose bars can be seen on some rank."""
    wholes = [number(cell) for cell in column(table, total)]
    return tuple(
        name
        for name in names
        if any(number(cell) > VISIBLE * all_of for cell, all_of in zip(column(table, name), wholes, strict=True))
    )


def part_words(table: Table) -> dict[str, str]:
    """What a sentence calls the columns: as their headings, begun small unless that is an abbreviation."""
    titles = {each.name: each.title or each.name for each in table.columns}
    small = {name: title if title[1:2].isupper() else title[:1].lower() + title[1:] for name, title in titles.items()}
    small |= {name: word for name, word in WORDS.items() if not small.get(name, "").startswith("idle")}
    return {name: re.sub(r"^idle: (.*)$", r"idle (\1)", word) for name, word in small.items()}


def largest_parts(means: Mapping[str, float], total: float, most: int = 3) -> str:
    """`95 % transfer, 4 % wait`: the parts that matter, the largest first."""
    ordered = sorted(means.items(), key=lambda item: -item[1])[:most]
    texts = [f"{percent(value / total)} {name}" for name, value in ordered if total and value >= 0.005 * total]
    return ", ".join(texts)


def hosts_of(tables: Tables) -> dict[int, str]:
    return dict(tables.query("SELECT rank, host FROM ranks WHERE role = 'rank'"))


# ---------------------------------------------------------------- section
@dataclass(frozen=True, slots=True)
class PageOptions:
    """Which ranks, what kernels are called, and which tables besides those that belong to a question."""

    selection: Selection = ALL
    called: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Callable[[], Table]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    screen: Screen | None = None  # None: worked out from all that was read
    imports: Mapping[str, Any] | None = None  # nested: name, wall_ns, self_wall_ns, calls, self_calls, children
