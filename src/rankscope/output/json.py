"""Tables as JSON, described in docs/commands/report.md and stable within a format number."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from rankscope.model.tables import Cell, Table

FORMAT = 1


def to_json(tables: Sequence[Table]) -> str:
    """All tables with columns, units, rows, notes and warnings."""
    return json.dumps({"format": FORMAT, "tables": [_table(table) for table in tables]}, indent=1) + "\n"


def _table(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "columns": [
            {"name": column.name, "unit": column.unit.value, "formula": column.formula} for column in table.columns
        ],
        "rows": [[_number(cell) for cell in row] for row in table.rows],
        "notes": table.notes,
        "warnings": table.warnings,
    }


def _number(cell: Cell) -> Cell:
    """JSON has no infinity and no NaN."""
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
