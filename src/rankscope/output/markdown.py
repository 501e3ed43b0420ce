"""Tables as Markdown, for issues and pages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankscope.model.tables import Cell, Table, Unit
from rankscope.output.cells import filled, heading, printable, shown

SPECIAL = re.compile(r"([\\`*{}\[\]<>|#~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")  # an underscore within a word is safe


def to_markdown(tables: Sequence[Table]) -> str:
    """Each table under its title, warnings before and notes after it."""
    return "\n".join(_section(table) for table in tables)


def _section(table: Table) -> str:
    lines = [f"## {_plain(table.title)}", ""]
    lines += [f"- **warning:** {_plain(text)}" for text in table.warnings] + [""] * bool(table.warnings)
    if table.verbatim:
        lines += _block([printable(str(row[0])) for row in table.rows])
    elif table.vertical:
        lines += [line for row in table.rows for line in _list(table, row)]
    elif table.rows:
        lines += _grid(table)
    lines += [_plain(text) + "\n" for text in table.notes]
    return "\n".join(lines)


def _block(lines: Sequence[str]) -> list[str]:
    fence = "```"
    while any(fence in line for line in lines):
        fence += "`"
    return [f"{fence}text", *lines, fence, ""]


def _grid(table: Table) -> list[str]:
    shown_columns = filled(table.columns, table.rows)
    columns = [table.columns[at] for at in shown_columns]
    head = [_plain(heading(column)) for column in columns]
    rule = ["---" if column.unit is Unit.NAME else "---:" for column in columns]
    body = [[_plain(shown(row[at], table.columns[at].unit)) for at in shown_columns] for row in table.rows]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *body)] + [""]


def _list(table: Table, row: tuple[Cell, ...]) -> list[str]:
    cells = [(table.columns[at], row[at]) for at in filled(table.columns, [row])]
    return (
        ["| | |", "|---|---|"]
        + [f"| {_plain(heading(c))} | {_plain(shown(cell, c.unit))} |" for c, cell in cells]
        + [""]
    )


def _plain(text: str) -> str:
    """The text as itself: neither markup nor HTML."""
    return SPECIAL.sub(r"\\\1", printable(text))
