"""All other tables of the run."""

from __future__ import annotations

from rankscope.model import Section, Table

MOST_ROWS = 500
NAME = "tables"


def more_section(tables: list[Table]) -> Section | None:
    """Those that belong to no question of the page, cut where they are long."""
    found = [_cut(table) for table in tables if table.rows or table.warnings]
    return Section(NAME, "What else is known?", found) if found else None


def _cut(table: Table) -> Table:
    left = len(table.rows) - MOST_ROWS
    if left > 0:
        told = f"{left} more rows: rankscope report --table {table.name} --format csv has all."
        table = Table(
            table.name, table.title, table.columns, table.rows[:MOST_ROWS], [*table.notes, told], table.warnings
        )
    return table
