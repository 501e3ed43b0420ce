"""The tables of a page as JSON that no name in them can break out of."""

from __future__ import annotations

import json
import math
from typing import Any

from rankscope.model import Cell, Table
from rankscope.output.cells import filled, heading, printable
from rankscope.pictures import Chart, Section

FORMAT = 1


def page_data(sections: list[Section]) -> str:
    """All sections, in letters that end no script element and are the same in every encoding."""
    made = {"format": FORMAT, "sections": [_section(section) for section in sections]}
    text = json.dumps(made, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _section(section: Section) -> dict[str, Any]:
    return {
        "name": section.name,
        "tables": [_table(table) for table in section.tables],
        "charts": [_chart(chart) for chart in section.charts],
    }


def _chart(chart: Chart) -> dict[str, Any]:
    return {name: _plain(getattr(chart, name)) for name in Chart.__slots__}


def _plain(value: str | tuple[str, ...]) -> Any:
    return printable(value) if isinstance(value, str) else [printable(one) for one in value]


def _table(table: Table) -> dict[str, Any]:
    shown = set(filled(table.columns, table.rows))
    return {
        "name": table.name,
        "title": printable(table.title),
        "columns": [
            {"name": printable(one.name), "unit": one.unit.value, "title": heading(one), "shown": at in shown}
            for at, one in enumerate(table.columns)
        ],
        "rows": [[_cell(cell) for cell in row] for row in table.rows],
    }


def _cell(cell: Cell) -> Cell:
    if isinstance(cell, str):
        return printable(cell)
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
