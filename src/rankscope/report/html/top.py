"""The top of a page: findings with links to their evidence, what ran, and what was seen of it."""

from __future__ import annotations

import re
from html import escape

from rankscope.model import Cell, Column, Table, Unit
from rankscope.output.cells import filled, heading, printable, shown
from rankscope.pictures import Page

EVIDENCE = re.compile(r"(?:^|(?<=; ))([a-z_]+)(?=: )")


def top(page: Page) -> str:
    known = {table.name for section in page.sections for table in section.tables}
    return "\n".join((_findings(page.findings, known), _overview(page), _coverage(page.coverage)))


def _text(words: str) -> str:
    return escape(printable(words))


def _findings(table: Table, known: set[str]) -> str:
    names = [column.name for column in table.columns]
    entries = "".join(_finding(dict(zip(names, row, strict=True)), known) for row in table.rows)
    body = f'<ol class="findings">{entries}</ol>' if entries else "<p>No rule found anything worth changing.</p>"
    return _part("findings", "What matters most?", _said(table) + body + _notes(table))


def _finding(cells: dict[str, Cell], known: set[str]) -> str:
    told = f"<strong>{_text(str(cells['finding']))}</strong>"
    saved = cells["saved_ns"]
    if saved is not None:
        share = shown(cells["share"], Unit.SHARE)
        told += (
            f' <span class="saved">could save {shown(saved, Unit.NS)}{f" ({share} of the run)" if share else ""}</span>'
        )
    evidence = EVIDENCE.sub(lambda found: _link(found[1], known), _text(str(cells["evidence"] or "")))
    action = str(cells["action"])
    return f"<li>{told}<p>{_text(action[:1].upper() + action[1:])}.</p>" + (
        f'<p class="evidence">Evidence: {evidence}</p></li>' if evidence else "</li>"
    )


def _link(name: str, known: set[str]) -> str:
    target = name if name == "coverage" else f"table-{name}"
    return f'<a href="#{target}">{name}</a>' if name in known or name == "coverage" else name


def _overview(page: Page) -> str:
    table = page.overview
    pairs = [(table.columns[at], row[at]) for row in table.rows[:1] for at in filled(table.columns, table.rows)]
    facts = "".join(f"<dt>{escape(heading(column))}</dt><dd>{_value(cell, column)}</dd>" for column, cell in pairs)
    notes = "".join(f'<p class="note">{_text(note)}</p>' for note in page.notes)
    return _part("overview", "What ran?", _said(table) + f"<dl>{facts}</dl>" + notes)


def _coverage(table: Table) -> str:
    kept = filled(table.columns, table.rows)
    head = "".join(
        f'<th scope="col"{_side(table.columns[at])}>{escape(heading(table.columns[at]))}</th>' for at in kept
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td{_side(table.columns[at])}>{_value(row[at], table.columns[at])}</td>" for at in kept)
        + "</tr>"
        for row in table.rows
    )
    grid = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    return _part("coverage", "What was seen of it?", _said(table) + grid + _notes(table))


def _side(column: Column) -> str:
    return "" if column.unit is Unit.NAME else ' class="number"'


def _value(cell: Cell, column: Column) -> str:
    return escape(shown(cell, column.unit))


def _said(table: Table) -> str:
    return "".join(f'<p class="warning">Warning: {_text(told)}</p>' for told in table.warnings)


def _notes(table: Table) -> str:
    return "".join(f'<p class="note">{_text(told)}</p>' for told in table.notes)


def _part(name: str, question: str, body: str) -> str:
    heading_of = f"{name}-question"
    return f'<section id="{name}" aria-labelledby="{heading_of}"><h2 id="{heading_of}">{question}</h2>{body}</section>'
