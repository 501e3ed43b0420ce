"""Tables as Prometheus' text format: one metric for each, its last column the value, all others labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rankscope.model.tables import Cell, Table
from rankscope.output.cells import printable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def to_prometheus(tables: Sequence[Table]) -> str:
    """A file for the text collector of a node exporter, or the body of a scrape."""
    return "".join(_metric(table) for table in tables if table.rows)


def _metric(table: Table) -> str:
    kind = "counter" if table.name.endswith("_total") else "gauge"
    lines = [f"# HELP {table.name} {text(table.title)}", f"# TYPE {table.name} {kind}"]
    labels = [column.name for column in table.columns[:-1]]
    for *cells, value in table.rows:
        named = zip(labels, cells, strict=True)
        label_text = ",".join(f'{name}="{label(cell)}"' for name, cell in named if cell is not None)
        if value is not None:
            lines.append(
                f"{table.name}{{{label_text}}} {number(value)}" if label_text else f"{table.name} {number(value)}"
            )
    return "\n".join(lines) + "\n"


def text(words: str) -> str:
    """As it may stand behind HELP."""
    return printable(words).replace("\\", "\\\\")


def label(cell: Cell) -> str:
    """As it may stand between quotation marks."""
    return text(str(cell)).replace('"', '\\"')


def number(cell: Cell) -> str:
    """As Prometheus reads it."""
    if isinstance(cell, float):
        return repr(cell) if math.isfinite(cell) else "NaN" if math.isnan(cell) else f"{'+' if cell > 0 else '-'}Inf"
    return str(int(cell)) if cell is not None and not isinstance(cell, str) else "NaN"
