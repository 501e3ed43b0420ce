"""Tables on a terminal or in a text file."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.output.cells import filled, heading, printable, shown

GAP = 2  # columns of the screen between two columns of a table
WIDEST_NAME = 44
LEAST_TEXT = 24  # to which a column of text may shrink before others are dropped
# Columns that go first where a table is wider than the screen.
SELDOM_READ = {
    *("variance_ms2", "stdev_ns", "min_ns", "pid", "steps", "sum_share", "wait_error_ns", "caused_error_ns"),
    *("leaving_ns", "zero_grad_ns", "checkpoint_ns", "cpu_ns", "hidden_share", "compute_share", "longest_host"),
    *("least_rank", "most_rank", "collectives", "last_share", "late_ns"),
}
ANSWERS = ("verdict", "finding")  # and those go last


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
    """One grid of the columns that fit, and a line that names the others."""
    cells = {at: _column_cells(table, at) for at in filled(table.columns, table.rows)}
    widths = {at: _width(texts, LEAST_TEXT if _is_text(table, at) else WIDEST_NAME) for at, texts in cells.items()}
    zeros = {at for at in cells if all(row[at] in (0, None) for row in table.rows)}
    fitting_columns, dropped = fitting(table.columns, widths, width, zeros)
    return [
        _grid(table, {at: cells[at] for at in fitting_columns}, width),
        *([_dropped(table, dropped, width)] if dropped else []),
    ]


def _dropped(table: Table, dropped: Sequence[int], width: int) -> Text:
    """One line: how many, as many of their names as there is room for, and where they are."""
    count = "1 column" if len(dropped) == 1 else f"{len(dropped)} columns"
    names = ", ".join(heading(table.columns[at]) for at in dropped)
    room = max(0, width - len(f"{count} dropped: ; --format csv has all"))
    return _line(
        f"{count} dropped: {names if len(names) <= room else names[: room - 1] + '…'}; --format csv has all", "dim"
    )


def fitting(
    columns: Sequence[Column], widths: Mapping[int, int], width: int, zeros: Collection[int] = ()
) -> tuple[list[int], list[int]]:
    """The columns, by place, that a screen has room for, and those that it has not: those of zeros alone, those that
    matter least, from the right, then others from the right, then answers. The first stays: it names the row."""
    first, *others = widths

    def importance(at: int) -> tuple[bool, bool, bool, int]:
        return columns[at].name in ANSWERS, at not in zeros, columns[at].name not in SELDOM_READ, -at

    order = sorted(others, key=importance)
    chosen, left = set(widths), width - sum(widths.values())
    for at in order:
        if left >= 0:
            break
        chosen.discard(at)
        left += widths[at]
    for at in reversed(order):  # what is narrow may fit again beside what had to stay
        if at not in chosen and widths[at] <= left:
            chosen.add(at)
            left -= widths[at]
    return [at for at in widths if at in chosen or at == first], [at for at in widths if at not in chosen]


def _column_cells(table: Table, at: int) -> list[str]:
    column = table.columns[at]
    return [heading(column), *(shown(row[at], column.unit) for row in table.rows)]


def _width(texts: Sequence[str], most: int) -> int:
    return min(most, max(Text(text).cell_len for text in texts)) + GAP


def _is_text(table: Table, at: int) -> bool:
    """Whether its cells may be broken into lines where there is little room."""
    return table.columns[at].unit is Unit.NAME and any(isinstance(row[at], str) for row in table.rows)


def _grid(table: Table, cells: dict[int, list[str]], width: int) -> Grid:
    """Names are broken into lines at a width that is easy to read, unless there is room for more."""
    spare = width - sum(_width(texts, WIDEST_NAME) for texts in cells.values())
    widest = WIDEST_NAME + max(0, spare)
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), show_edge=False, pad_edge=False, header_style="cyan")
    for at, texts in cells.items():
        text = _is_text(table, at)
        justify, overflow = ("left", "fold") if text else ("right", "ellipsis")
        grid.add_column(Text(texts[0]), justify=justify, overflow=overflow, no_wrap=not text, max_width=widest)  # type: ignore[arg-type]
    for row in zip(*(texts[1:] for texts in cells.values()), strict=True):
        grid.add_row(*(Text(text) for text in row))
    return grid
