"""Tables on a terminal or in a text file."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from rankscope.model import Cell, Table, Unit
from rankscope.output.cells import filled, heading, printable, shown

GAP = 2  # columns of the screen between two columns of a table
WIDEST_NAME = 44


def to_text(tables: Sequence[Table], width: int, colour: bool = False) -> str:
    """All tables, none of them wider than the given width."""
    buffer = io.StringIO()
    console = Console(
        file=buffer, width=width, force_terminal=colour, no_color=not colour, highlight=False, emoji=False
    )
    for at, table in enumerate(tables):
        if at:
            console.print()
        console.print(_block(table, width))
    return "".join(line.rstrip() + "\n" for line in buffer.getvalue().splitlines())


def _block(table: Table, width: int) -> Group:
    parts: list[RenderableType] = [Text(printable(table.title), style="bold")]
    parts += [_line(f"warning: {text}", "yellow") for text in table.warnings]
    if table.verbatim:
        parts += [Text(printable(str(row[0])), no_wrap=True, overflow="ignore") for row in table.rows]
    elif table.vertical:
        parts += _lists(table)
    elif table.rows:
        parts += _grids(table, width)
    return Group(*parts, *(_line(text, "dim") for text in table.notes))


def _line(text: str, style: str) -> Text:
    return Text(printable(text), style=style, overflow="fold")


def _lists(table: Table) -> list[RenderableType]:
    """Each row as a list of its columns, an empty line between two of them."""
    lists: list[RenderableType] = []
    for row in table.rows:
        lists += ([Text()] if lists else []) + [_list(table, row)]
    return lists


def _list(table: Table, row: tuple[Cell, ...]) -> Grid:
    grid = Grid.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column(overflow="fold")
    for at in filled(table.columns, [row]):
        column = table.columns[at]
        grid.add_row(Text(heading(column)), Text(shown(row[at], column.unit)))
    return grid


def _grids(table: Table, width: int) -> list[RenderableType]:
    """One grid, or several one below the other that each repeat the first column, where one would be too wide."""
    cells = {at: _column_cells(table, at) for at in filled(table.columns, table.rows)}
    pieces = _pieces({at: _width(texts) for at, texts in cells.items()}, width)
    grids: list[RenderableType] = []
    for piece in pieces:
        grids += ([Text()] if grids else []) + [_grid(table, {at: cells[at] for at in piece})]
    return grids


def _column_cells(table: Table, at: int) -> list[str]:
    column = table.columns[at]
    return [heading(column), *(shown(row[at], column.unit) for row in table.rows)]


def _width(texts: Sequence[str]) -> int:
    return min(WIDEST_NAME, max(Text(text).cell_len for text in texts)) + GAP


def _pieces(widths: dict[int, int], width: int) -> list[list[int]]:
    first, *others = widths
    pieces, left = [[first]], width - widths[first]
    for at in others:
        if widths[at] > left and len(pieces[-1]) > 1:
            pieces.append([first])
            left = width - widths[first]
        pieces[-1].append(at)
        left -= widths[at]
    return pieces


def _grid(table: Table, cells: dict[int, list[str]]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), show_edge=False, pad_edge=False, header_style="cyan")
    for at, texts in cells.items():
        name = table.columns[at].unit is Unit.NAME and any(isinstance(row[at], str) for row in table.rows)
        justify, overflow = ("left", "fold") if name else ("right", "ellipsis")
        grid.add_column(Text(texts[0]), justify=justify, overflow=overflow, no_wrap=not name, max_width=WIDEST_NAME)  # type: ignore[arg-type]
    for row in zip(*(texts[1:] for texts in cells.values()), strict=True):
        grid.add_row(*(Text(text) for text in row))
    return grid
