"""The tables of a page: Markdown tables with the text around them, or a file of comma-separated values."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rankscope.formats.source import Source

MOST_CELLS = 500_000
MOST_TEXT = 16 << 20  # characters outside tables
LONGEST_ROW = 6  # lines that one row may be broken into
RULE = re.compile(r"\|?\s{0,20}:?-{1,200}:?\s{0,20}(\||$)")


@dataclass(slots=True)
class Row:
    """One row and the line where its last cell stands."""

    line: int
    cells: list[str]

    @property
    def filled(self) -> list[str]:
        return [cell for cell in self.cells if cell]


@dataclass(slots=True)
class Grid:
    """One table with the heading above it and the text since the table before."""

    rows: list[Row] = field(default_factory=list)
    heading: str = ""
    headings: list[str] = field(default_factory=list)  # all above it, nearest first
    text: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class Page:
    """All tables of a file, and all of its text outside tables and code."""

    grids: list[Grid] = field(default_factory=list)
    text: list[tuple[int, str]] = field(default_factory=list)


def page_of(source: Source) -> Page:
    """The tables of a Markdown page if there are any, else the file as comma-separated values."""
    page = markdown_page(source)
    if page.grids:
        return page
    rows = [row for row in _csv_rows(source) if row.filled]
    return Page([Grid(rows)] if rows else [], [])


def markdown_page(source: Source) -> Page:
    page, grid, since = Page(), Grid(), list[tuple[int, str]]()
    headings: list[tuple[int, str]] = []
    cells = kept = 0
    for number, text, in_table in _parts(source.lines()):
        if in_table:
            if not grid.rows:
                grid.headings, grid.text = [told for _, told in reversed(headings)], since
                grid.heading = grid.headings[0] if grid.headings else ""
                page.grids.append(grid)
            if not RULE.match(text):
                grid.rows.append(Row(number, [cell.strip() for cell in text.strip().strip("|").split("|")]))
                cells += len(grid.rows[-1].cells)
            if cells > MOST_CELLS:
                raise source.bad(f"more than {MOST_CELLS} cells", number)
            continue
        if grid.rows:
            grid, since = Grid(), []
        if text.startswith("#"):
            depth = len(text) - len(text.lstrip("#"))
            headings = [above for above in headings if above[0] < depth] + [(depth, text.lstrip("#").strip())]
        kept += len(text)
        if kept > MOST_TEXT:
            raise source.bad(f"more than {MOST_TEXT >> 20} MiB of text around the tables", number)
        since.append((number, text))
        page.text.append((number, text))
    return page


def _parts(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, bool]]:
    """Lines outside code, rows of tables in one piece however many lines they were broken into."""
    fenced, pending, pieces = False, "", 0
    for number, text in lines:
        if text.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            continue
        if pending:
            pending, pieces = f"{pending} {text.strip()}", pieces + 1
            if text.rstrip().endswith("|") or pieces >= LONGEST_ROW:
                yield number, pending, True
                pending = ""
        elif text.lstrip().startswith("|"):
            if text.rstrip().endswith("|") and text.strip() != "|":
                yield number, text, True
            else:
                pending, pieces = text, 1
        else:
            yield number, text, False


def _csv_rows(source: Source) -> Iterator[Row]:
    cells = 0
    for number, text in source.lines():
        try:
            found = [cell.strip() for cell in next(csv.reader([text]), [])] if len(text) < 100_000 else []
        except csv.Error as problem:
            raise source.bad(f"cannot be read as comma-separated values: {problem}", number) from None
        cells += len(found)
        if cells > MOST_CELLS:
            raise source.bad(f"more than {MOST_CELLS} cells", number)
        yield Row(number, found)
