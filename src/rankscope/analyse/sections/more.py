"""All other tables of the run."""

from __future__ import annotations

from rankscope.model import Table
from rankscope.pictures import Section

MOST_ROWS = 500
NAME = "tables"


def more_section(tables: list[Table]) -> Section | None:
    """Those that belong to no question of the page, cut where they are long."""
    found = [cut(table) for table in tables if table.rows or table.warnings]
    return Section(NAME, "What else is known?", found) if found else None


def cut(table: Table, most: int = MOST_ROWS) -> Table:
    """The first rows, saying where the others are."""
    left = len(table.rows) - most
    if left > 0:
        told = f"{left} more rows: rankscope report --table {table.name} --format csv has all."
        table = Table(table.name, table.title, table.columns, table.rows[:most], [*table.notes, told], table.warnings)
    return table
