"""What a page is to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankscope.model import Cell, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection

# ---------------------------------------------------------------- numbers in the sentences above pictures
SIZES = ((1024.0**4, "TiB"), (1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"))


def seconds(ns: float) -> str:
    """A time in three digits."""
    if abs(ns) >= 999.5e9:
        return f"{ns / 1e9:,.0f} s"
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.0f} ns"


def percent(share: float) -> str:
    return "less than 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def size(size_bytes: float) -> str:
    for scale, unit in SIZES:
        if size_bytes >= scale:
            return f"{size_bytes / scale:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def in_words(value: float, unit: Unit) -> str:
    if unit is Unit.NS:
        return seconds(value)
    if unit is Unit.BYTES:
        return size(value)
    return percent(value) if unit is Unit.SHARE else f"{value:,.3g}"


def number(cell: Cell) -> float:
    """A cell in arithmetic: what is not known counts nothing."""
    return float(cell) if isinstance(cell, int | float) else 0.0


def column(table: Table, name: str) -> list[Cell]:
    at = [one.name for one in table.columns].index(name)
    return [row[at] for row in table.rows]


def mean(table: Table, name: str) -> float:
    found = [number(cell) for cell in column(table, name) if cell is not None]
    return sum(found) / len(found) if found else 0.0


def largest_parts(means: Mapping[str, float], whole: float, most: int = 3) -> str:
    """`95 % transfer, 4 % wait`: the parts that matter, the largest first."""
    ordered = sorted(means.items(), key=lambda one: -one[1])[:most]
    told = [f"{percent(value / whole)} {name}" for name, value in ordered if whole and value >= 0.005 * whole]
    return ", ".join(told)


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
    imports: Mapping[str, Any] | None = None  # nested: name, wall_ns, self_wall_ns, calls, self_calls, children
