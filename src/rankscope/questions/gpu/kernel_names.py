"""What are the kernels of a run called in its report?"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.analyse.short_names import full_names, short_names
from rankscope.model import Cell, Table, Tables, Unit
from rankscope.questions.gpu.activities import COPY, SET, kind_of
from rankscope.questions.gpu.demangling import demangled

FORMS = ("short", "full", "mangled")
LAYERS = ("gpu", "in_range_gpu")
SQL = f"""
    SELECT DISTINCT name FROM {{table}} WHERE layer IN {LAYERS}
    AND ({{loaded}} OR process IN (SELECT process FROM ranks WHERE coalesce(tool, '') = ''))"""


def kernel_names(tables: Tables, form: str = "short", loaded: bool = True) -> dict[str, str]:
    """Recorded name to shown name: the same in all tables of a report, and no two the same.

    Without `loaded`, names that come from files of other tools only are left as those tools wrote them.
    """
    if form == "mangled":
        return {}
    found = [
        tables.query(SQL.format(table=table, loaded=str(loaded).lower())) for table in ("tallies", "untraced_events")
    ]
    recorded = sorted({str(name) for rows in found for (name,) in rows})
    meanings = demangled(recorded)
    everyone = {name: meanings.get(name, name) for name in recorded}
    if form == "full":
        return full_names(everyone)
    return short_names(everyone, whole={name for name in recorded if kind_of(name) in (COPY, SET)})


def renamed(table: Table, names: Mapping[str, str]) -> Table:
    """The table with its kernels called so."""
    at = next((at for at, one in enumerate(table.columns) if one.name == "name" and one.unit is Unit.NAME), None)
    if at is None or not names:
        return table
    layer = next((at for at, one in enumerate(table.columns) if one.name == "layer"), None)
    table.rows = [_renamed(row, at, layer, names) for row in table.rows]
    table.warnings = [_begun_anew(text, names) for text in table.warnings]
    return table


def _renamed(row: tuple[Cell, ...], at: int, layer: int | None, names: Mapping[str, str]) -> tuple[Cell, ...]:
    name = row[at]
    if not isinstance(name, str) or name not in names or (layer is not None and row[layer] not in LAYERS):
        return row
    return (*row[:at], names[name], *row[at + 1 :])


def _begun_anew(text: str, names: Mapping[str, str]) -> str:
    """A warning about a kernel begins with its name."""
    name, colon, rest = text.partition(": ")
    return f"{names.get(name, name)}{colon}{rest}"
