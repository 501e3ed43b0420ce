"""Numbers in the sentences above pictures."""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.analyse.findings.finding import seconds
from rankscope.model import Cell, Table, Tables

__all__ = ["column", "hosts_of", "largest_parts", "mean", "number", "percent", "seconds", "size"]

SIZES = ((1024.0**4, "TiB"), (1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"))


def percent(share: float) -> str:
    return "less than 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def size(size_bytes: float) -> str:
    for scale, unit in SIZES:
        if size_bytes >= scale:
            return f"{size_bytes / scale:.3g} {unit}"
    return f"{size_bytes:.0f} B"


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
    """`95 % moving data, 4 % waiting`: the parts that matter, the largest first."""
    ordered = sorted(means.items(), key=lambda one: -one[1])[:most]
    told = [f"{percent(value / whole)} {name}" for name, value in ordered if whole and value >= 0.005 * whole]
    return ", ".join(told)


def hosts_of(tables: Tables) -> dict[int, str]:
    return dict(tables.query("SELECT rank, host FROM ranks WHERE role = 'rank'"))
