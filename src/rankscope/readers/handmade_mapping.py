"""What the user declares about hand-made tables: which column is what, in a small TOML file."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope.model import BadFile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(slots=True)
class ColumnRule:
    """How to take the columns whose header (as it stands, or as a pattern) is this."""

    series: str = ""
    name: str = ""
    unit: str = ""
    skip: bool = False
    cells: list[str] = field(default_factory=list)  # several numbers in a cell, as "time:s" and "calls:calls"
    separator: str = "/"


@dataclass(slots=True)
class TableRule:
    """How to take the tables whose heading contains this text."""

    heading: str = ""
    name: str = ""
    scale: str = ""  # the header of the scale's column
    scale_name: str = ""
    unit: str = ""
    columns: dict[str, ColumnRule] = field(default_factory=dict)

    def column(self, header: str) -> ColumnRule | None:
        """The rule of a column: by its header, else by a pattern such as soft-*."""
        for text, rule in self.columns.items():
            pattern = ".*".join(re.escape(part) for part in text.split("*"))
            if re.fullmatch(pattern, header[:400], re.I):
                return rule
        return None


NO_RULE = TableRule()


@dataclass(slots=True)
class Mapping:
    """All rules; the first whose heading fits a table is used."""

    tables: list[TableRule] = field(default_factory=list)

    def table(self, heading: str) -> TableRule:
        return next((rule for rule in self.tables if rule.heading.lower() in heading.lower()), NO_RULE)


def read_mapping(path: Path | None) -> Mapping:
    """The mapping in that file; an empty one where none was given."""
    if path is None:
        return Mapping()
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        return Mapping([_table(path, table) for table in _list(path, told.get("table", []))])
    except (OSError, ValueError, RecursionError) as problem:
        raise BadFile(f"{path}: cannot be used as a mapping: {problem}") from None


def _list(path: Path, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadFile(f"{path}: write tables as [[table]]")
    return value


def _table(path: Path, told: Any) -> TableRule:
    rest = dict(told) if isinstance(told, dict) else {}
    columns = rest.pop("columns", {})
    rules = {str(name): _made(path, ColumnRule, rule) for name, rule in dict(columns).items()}
    made: TableRule = _made(path, TableRule, rest)
    made.columns = rules
    return made


def _made(path: Path, kind: type, told: Any) -> Any:
    """A rule from what was written, every key known and of the right type."""
    blank = kind()
    for key, value in dict(told).items():
        if not hasattr(blank, key) or type(value) is not type(getattr(blank, key)):
            raise BadFile(f"{path}: {key} = {value!r} is not understood")
        setattr(blank, key, value)
    return blank
