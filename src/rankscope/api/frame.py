"""One answer of a run: a table to look at, or to take to pandas, polars or Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.output.cells import heading, printable, shown
from rankscope.output.text import to_text

if TYPE_CHECKING:
    import pandas
    import polars

SHOWN_ROWS = 50  # in a notebook and by print; rows and the conversions always have all
WIDTH = 120


class Frame:
    """One table's rows, notes and warnings. What the columns mean: `formulas`, docs/reference/metrics.md."""

    def __init__(self, table: Table, arrow: Any = None) -> None:
        """A table of an analysis, or one without rows yet that are those of the Arrow table."""
        self._table = table
        self._arrow = arrow
        self._rows_wait = arrow is not None and arrow.num_rows > 0

    @property
    def name(self) -> str:
        return self._table.name

    @property
    def title(self) -> str:
        return self._table.title

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        if self._rows_wait:
            self._table.rows, self._rows_wait = _rows_of(self._arrow), False
        return self._table.rows

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self._table.columns]

    @property
    def units(self) -> dict[str, str]:
        """What each column holds: name, count, ns, bytes, share, number or bytes/s."""
        return {column.name: column.unit.value for column in self._table.columns}

    @property
    def formulas(self) -> dict[str, str]:
        """What each column is and how it is worked out; "" of plain names."""
        return {column.name: column.formula for column in self._table.columns}

    @property
    def notes(self) -> list[str]:
        return self._table.notes

    @property
    def warnings(self) -> list[str]:
        return self._table.warnings

    @property
    def table(self) -> Table:
        """The same as reports take it."""
        return Table(**{**_fields(self._table), "rows": self.rows})

    def __len__(self) -> int:
        return int(self._arrow.num_rows) if self._arrow is not None else len(self._table.rows)

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        """Each row with its columns' names."""
        for row in self.rows:
            yield dict(zip(self.columns, row, strict=True))

    def __getitem__(self, column: str) -> list[Cell]:
        """One column."""
        at = self.columns.index(column)
        return [row[at] for row in self.rows]

    def to_arrow(self) -> pa.Table:
        """As a pyarrow.Table; types as docs/reference/schema.md says."""
        if self._arrow is None:
            arrays = [_array(column, [row[at] for row in self.rows]) for at, column in enumerate(self._table.columns)]
            self._arrow = pa.table(arrays, names=self.columns)
        return self._arrow

    def to_pandas(self) -> pandas.DataFrame:
        """As a DataFrame of pandas, which has to be installed."""
        _need("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """As a DataFrame of polars, which has to be installed."""
        frame: polars.DataFrame = _need("polars").from_arrow(self.to_arrow())
        return frame

    def __repr__(self) -> str:
        return to_text([self._cut()], WIDTH).rstrip("\n")

    def _cut(self) -> Table:
        first = _rows_of(self._arrow.slice(0, SHOWN_ROWS)) if self._rows_wait else self._table.rows[:SHOWN_ROWS]
        left = len(self) - len(first)
        notes = [*self.notes, *([f"{left} more rows"] if left else [])]
        return Table(**{**_fields(self._table), "rows": first, "notes": notes})

    def _repr_html_(self) -> str:
        table = self._cut()
        head = "".join(f"<th>{escape(heading(column))}</th>" for column in table.columns)
        body = "".join(f"<tr>{_html_row(table.columns, row)}</tr>" for row in table.rows)
        lines = "".join(f"<p><b>warning:</b> {escape(printable(text))}</p>" for text in table.warnings)
        notes = "".join(f"<p>{escape(printable(text))}</p>" for text in table.notes)
        caption = f"<caption>{escape(printable(table.title))}</caption>"
        return f"{lines}<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _html_row(columns: Sequence[Column], row: tuple[Cell, ...]) -> str:
    return "".join(
        f'<td style="text-align:{"left" if column.unit is Unit.NAME else "right"}">'
        f"{escape(shown(cell, column.unit))}</td>"
        for column, cell in zip(columns, row, strict=True)
    )


def _array(column: Column, values: list[Cell]) -> Any:
    """Names are text unless every one of them is a whole number, as of ranks."""
    is_whole = all(value is None or type(value) is int for value in values)
    if column.unit is Unit.NAME:
        if is_whole and any(value is not None for value in values):
            return pa.array(values, pa.int64())
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    if column.unit is Unit.COUNT and is_whole:
        return pa.array(values, pa.int64())
    return pa.array([None if value is None else float(value) for value in values], pa.float64())


def _need(package: str) -> Any:
    try:
        return __import__(package)
    except ModuleNotFoundError as problem:
        if problem.name != package:
            raise
        raise ModuleNotFoundError(f"to_{package}() needs {package}: pip install {package}", name=package) from None


def arrow_frame(name: str, title: str, arrow: pa.Table) -> Frame:
    """The answer to a query, whose units can be told by the columns' names only."""
    return Frame(Table(name, title, [Column(field.name, _unit(field)) for field in arrow.schema], []), arrow)


def _rows_of(arrow: Any) -> list[tuple[Cell, ...]]:
    return list(zip(*(column.to_pylist() for column in arrow.columns), strict=True))


def _fields(table: Table) -> dict[str, Any]:
    return {field.name: getattr(table, field.name) for field in fields(table)}


def _unit(field: Any) -> Unit:
    if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)):
        return Unit.NAME
    if field.name.endswith("_ns") and not field.name.endswith(("started_ns", "ended_ns", "at_ns", "begin_ns")):
        return Unit.NS
    if field.name == "bytes" or field.name.endswith("_bytes"):
        return Unit.BYTES
    if field.name in ("rank", "process", "pid", "thread", "number", "sequence", "start_ns", "end_ns"):
        return Unit.NAME
    return Unit.COUNT if pa.types.is_integer(field.type) else Unit.NUMBER
