"""The columns of hand-made tables: which is the scale, which name a series, and what the others hold."""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from rankscope.formats.handmade.grid import UNITS, Document, Grid, Quantity, Row, quantity_of, scaled, stated_unit
from rankscope.model.records import BadFile

# ---------------------------------------------------------------------------------------------------------------------
# What the user declares about hand-made tables: which column is what, in a small TOML file.
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
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return Mapping([_table(path, table) for table in _list(path, document.get("table", []))])
    except (OSError, ValueError, RecursionError) as problem:
        raise BadFile(f"{path}: cannot be used as a mapping: {problem}") from None


def _list(path: Path, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadFile(f"{path}: write tables as [[table]]")
    return value


def _table(path: Path, fields: Any) -> TableRule:
    rest = dict(fields) if isinstance(fields, dict) else {}
    columns = rest.pop("columns", {})
    rules = {str(name): _made(path, ColumnRule, rule) for name, rule in dict(columns).items()}
    table_rule: TableRule = _made(path, TableRule, rest)
    table_rule.columns = rules
    return table_rule


def _made(path: Path, kind: type, values: Any) -> Any:
    """A rule from what was written, every key known and of the right type."""
    blank = kind()
    for key, value in dict(values).items():
        if not hasattr(blank, key) or type(value) is not type(getattr(blank, key)):
            raise BadFile(f"{path}: {key} = {value!r} is not understood")
        setattr(blank, key, value)
    return blank


# ---------------------------------------------------------------- columns
SCALES = {
    "nodes": ("node", "nodes", "hosts", "#nodes", "num nodes", "number of nodes"),
    "ranks": ("rank", "ranks", "processes", "procs", "np", "world size", "tasks"),
    "gpus": ("gpu", "gpus", "devices", "#gpus"),
    "batch": ("batch", "batch size"),
    "bytes": ("message size", "msg size"),
}
NUMBERED = {"ranks": "rank", "nodes": "node", "gpus": "gpu"}  # scales, and what a column of their numbers is about
TIME = re.compile(r"\btimes?\b", re.I)
AT_OTHER_SCALE = re.compile(r"\s*(\d{1,9})\s*([a-z]{1,20})\s*$", re.I)


@dataclass(frozen=True, slots=True)
class Point:
    """One cell: at which scale, in which line, and what it holds."""

    scale: float
    line: int
    quantity: Quantity


@dataclass(slots=True)
class Measured:
    """One column of numbers along a scale."""

    table: int  # which grid of the page
    block: int  # which part of the grid: from a header to the next
    header: str
    series: str
    name: str
    kind: str  # "ns", "bytes", "count", "share" or ""
    scale_name: str
    line: int  # of its header
    group: int  # columns side by side, parted from others by an empty column or a series
    points: list[Point] = field(default_factory=list)

    @property
    def said(self) -> str:
        return (
            f"{self.series}, {self.name}"
            if self.series and self.name and self.name != self.series
            else (self.series or self.name)
        )


@dataclass(frozen=True, slots=True)
class Labelled:
    """A number with its label beside it."""

    line: int
    label: str
    quantity: Quantity


@dataclass(slots=True)
class TableColumns:
    measured: list[Measured] = field(default_factory=list)
    labelled: list[Labelled] = field(default_factory=list)


def columns_of(page: Document, mapping: Mapping) -> TableColumns:
    """All columns of all tables of a page."""
    table_columns = TableColumns()
    for at, grid in enumerate(page.grids):
        rule = mapping.table(grid.heading)
        for block, (headers, rows) in enumerate(_blocks(grid)):
            if headers is None:
                table_columns.labelled += [label for row in rows for label in _labels(row)]
            else:
                table_columns.measured += _Block(grid, headers, rows, rule, at, block).measured()
    return table_columns


def _blocks(grid: Grid) -> Iterator[tuple[Row | None, list[Row]]]:
    """Header and rows of each part: rows without any number are headers, one under the other are one header."""
    header: Row | None = None
    rows: list[Row] = []
    for row in grid.rows:
        numbers = [cell for cell in row.filled if quantity_of(cell)]
        if numbers:
            rows.append(row)
        elif len(set(row.filled)) > 1:
            if rows:
                yield header, rows
                header, rows = None, []
            header = row if header is None else _below(header, row)
    if rows:
        yield header, rows


def _below(upper: Row, lower: Row) -> Row:
    width = max(len(upper.cells), len(lower.cells))
    cells = [[*row.cells, *[""] * (width - len(row.cells))] for row in (upper, lower)]
    joined = [" ".join(part for part in pair if part) for pair in zip(*cells, strict=True)]
    return Row(lower.line, joined)


def _labels(row: Row) -> Iterator[Labelled]:
    """Cells that alternate between words and a number."""
    for label, cell in zip(row.cells[::2], row.cells[1::2], strict=False):
        quantity = quantity_of(cell)
        if label and quantity and not quantity_of(label):
            yield Labelled(row.line, label, quantity)


@dataclass(slots=True)
class _Block:
    """One header with the rows below it."""

    grid: Grid
    header: Row
    rows: list[Row]
    rule: TableRule
    table: int
    block: int

    def measured(self) -> list[Measured]:
        measured: list[Measured] = []
        scale, series, group = self._first_scale(), "", 0
        if scale is None:
            return []
        for at in range(max(len(row.cells) for row in self.rows)):
            cells = [cell for row in self.rows if (cell := _cell(row, at))]
            if self._is_scale(at):
                scale = at
            elif not any(quantity_of(cell) for cell in cells) and not self._has_pairs(at):
                series, group = self._series(cells), group + 1
            else:
                measured += self._column(at, scale, series, group)
        return measured

    def _has_pairs(self, at: int) -> bool:
        rule = self.rule.column(_cell(self.header, at))
        return rule is not None and bool(rule.cells)

    def _first_scale(self) -> int | None:
        places = [at for at in range(len(self.header.cells)) if self._is_scale(at)]
        if places:
            return places[0]
        return 0 if not _cell(self.header, 0) and _rises(self.rows) and not self.rule.scale else None

    def _is_scale(self, at: int) -> bool:
        header = _cell(self.header, at).lower()
        if self.rule.scale:
            return header == self.rule.scale.lower()
        return any(header in names for names in SCALES.values())

    def _scale_name(self, at: int) -> str:
        header = _cell(self.header, at).lower()
        name = next((name for name, words in SCALES.items() if header in words), "")
        return self.rule.scale_name or (NUMBERED[name] if name in NUMBERED and self._numbers(at) else name)

    def _numbers(self, at: int) -> bool:
        """Whether a column says which rank (or node) instead of how many: no job has 0 of them."""
        quantities = [quantity_of(_cell(row, at)) for row in self.rows]
        return any(quantity is not None and quantity.value == 0 for quantity in quantities)

    def _series(self, cells: list[str]) -> str:
        """The word that stands in every cell of a column, as a series' name beside its numbers."""
        return cells[0] if len(set(cells)) == 1 and len(cells) > 1 else ""

    def _column(self, at: int, scale: int, series: str, group: int) -> Iterator[Measured]:
        header = _cell(self.header, at)
        rule = self.rule.column(header)
        if (rule and rule.skip) or at == scale:
            return
        names = [part.partition(":") for part in rule.cells] if rule and rule.cells else [("", "", "")]
        for place, (name, _, unit) in enumerate(names):
            texts = [
                (row, _piece(_cell(row, at), place, rule.separator if rule and rule.cells else "")) for row in self.rows
            ]
            unit = unit or (rule.unit if rule else "") or self.rule.unit
            column = Measured(
                self.table,
                self.block,
                header,
                (rule.series if rule else "") or series or header,
                name or (rule.name if rule else "") or self.rule.name or (header if series else self.grid.heading),
                self._kind(header, unit, [text for _, text in texts]),
                self._scale_name(scale),
                self.header.line,
                group,
            )
            column.points = self._points(texts, scale, column, unit)
            if column.points:
                yield column

    def _kind(self, header: str, unit: str, texts: list[str]) -> str:
        """What the column was declared to hold, what most cells say, what the header says, or what the text says."""
        if unit.lower() in UNITS:
            return UNITS[unit.lower()][0]
        if _most_say(texts):
            said = Counter(quantity.kind for text in texts if (quantity := quantity_of(text)) and quantity.kind)
            return said.most_common(1)[0][0]
        guessed = self._unit(header, texts)
        return UNITS[guessed][0] if guessed else ""

    def _unit(self, header: str, texts: list[str]) -> str:
        """The unit by the header, a heading above, or the text before the table; what is counted is whole."""
        are_whole = all(quantity.value.is_integer() for text in texts if (quantity := quantity_of(text)))
        units = [stated_unit(text) for text in (header, *self.grid.headings[:6])]
        units.append("s" if self._speaks_of_time() else None)
        return next((unit for unit in units if unit and (are_whole or UNITS[unit][0] != "count")), "")

    def _speaks_of_time(self) -> bool:
        return any(TIME.search(text[:400]) for _, text in self.grid.text[-60:])

    def _points(self, texts: Sequence[tuple[Row, str]], scale: int, column: Measured, unit: str) -> list[Point]:
        name = unit.lower() or self._unit(column.header, [text for _, text in texts])
        factor = UNITS[name][1] if name in UNITS else 1.0
        points, stated = [], _most_say([text for _, text in texts])
        for row, text in texts:
            place, quantity = quantity_of(_cell(row, scale)), quantity_of(text)
            if place is None or quantity is None or not isfinite(quantity.value * factor):
                continue
            if not quantity.kind and not stated:
                quantity = Quantity(scaled(repr(quantity.value), factor), "", quantity.text, quantity.remark)
            points.append(Point(_scale_of(place.value, quantity.remark, column.scale_name), row.line, quantity))
        return points


def _most_say(texts: Sequence[str]) -> bool:
    """Whether most cells state their unit themselves."""
    quantities = [quantity for text in texts if (quantity := quantity_of(text))]
    return 2 * sum(1 for quantity in quantities if quantity.kind) > len(quantities)


def _scale_of(scale: float, remark: str, name: str) -> float:
    """The scale of the row, unless the cell remarks that it was measured at another."""
    match = AT_OTHER_SCALE.match(remark)
    return float(match[1]) if match and match[2].lower() == name else scale


def _cell(row: Row, at: int) -> str:
    return row.cells[at] if at < len(row.cells) else ""


def _piece(text: str, place: int, separator: str) -> str:
    parts = text.split(separator) if separator else [text]
    return parts[place].strip() if place < len(parts) else ""


def _rises(rows: list[Row]) -> bool:
    """Whether the first column counts upwards, as a scale does."""
    values = [quantity.value for row in rows if (quantity := quantity_of(_cell(row, 0)))]
    return len(values) >= 3 and all(low < high for low, high in itertools.pairwise(values))
