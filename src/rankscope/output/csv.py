"""Tables as comma-separated values, numbers in the unit that the column's name says."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rankscope.model.tables import Cell, Column, Table
from rankscope.output.cells import printable


def to_csv(tables: Sequence[Table]) -> str:
    """One table is plain CSV; several are parted by an empty line and named by a line `# name`."""
    return "\n".join(_part(table, named=len(tables) > 1) for table in tables)


def csv_pieces(columns: Sequence[Column], batches: Iterable[Sequence[tuple[Any, ...]]]) -> Iterator[str]:
    """The plain CSV of one table that is too long to be held at once."""
    yield _lines([[column.name for column in columns]])
    for rows in batches:
        yield _lines([_cell(cell) for cell in row] for row in rows)


def _lines(rows: Iterable[Sequence[Cell]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _part(table: Table, named: bool) -> str:
    buffer = io.StringIO()
    if named:
        buffer.write(f"# {table.name}\n")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    writer.writerows([_cell(cell) for cell in row] for row in table.rows)
    return buffer.getvalue()


def _cell(cell: Cell) -> Cell:
    return printable(cell) if isinstance(cell, str) else cell
