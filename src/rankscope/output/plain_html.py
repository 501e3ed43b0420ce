"""Tables as one plain page: no scripts, nothing from elsewhere, for comparisons and lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from rankscope.model import Cell, Column, Table, Unit
from rankscope.output.cells import filled, heading, printable, shown
from rankscope.pictures import Graph
from rankscope.report.graph import to_figure
from rankscope.report.run_list import page


def to_plain_html(tables: Sequence[Table], graphs: Mapping[str, Sequence[Graph]] | None = None, title: str = "") -> str:
    """Each table under its title, warnings before and notes after it; graphs under the table of that name."""
    titles = [table.title for table in tables if table.name == "changes"] or [tables[0].title]
    drawn = graphs or {}
    shown_ones = [table for table in tables if table.rows or table.warnings or drawn.get(table.name)]
    return page(title or titles[0], "".join(section(table, drawn.get(table.name, ())) for table in shown_ones))


def section(table: Table, graphs: Sequence[Graph] = ()) -> str:
    warnings = "".join(f"<p><strong>warning:</strong> {_text(text)}</p>" for text in table.warnings)
    notes = "".join(f"<p><small>{_text(text)}</small></p>" for text in table.notes)
    figures = "".join(to_figure(graph) for graph in graphs)
    return f"<h2>{_text(table.title)}</h2>{warnings}{figures}{_grid(table) if table.rows else ''}{notes}"


def _grid(table: Table) -> str:
    if table.verbatim:
        return f"<pre>{chr(10).join(_text(str(row[0])) for row in table.rows)}</pre>"
    kept = filled(table.columns, table.rows)
    head = "".join(f"<th scope=col>{_text(heading(table.columns[at]))}</th>" for at in kept)
    body = "".join(f"<tr>{''.join(_cell(table.columns[at], row[at]) for at in kept)}</tr>" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(column: Column, cell: Cell) -> str:
    number = column.unit is not Unit.NAME
    return f"<td{' class=number' if number else ''}>{escape(shown(cell, column.unit))}</td>"


def _text(words: str) -> str:
    return escape(printable(words))
