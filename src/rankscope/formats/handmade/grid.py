"""The tables of a page: Markdown tables with the text around them, or a file of comma-separated values."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache

from rankscope.formats.source import Source

# ---------------------------------------------------------------------------------------------------------------------
# What a cell of a hand-made table holds: a number with its unit and a remark.
# Lower-case name, the unit it becomes, and how many of that.
UNITS: dict[str, tuple[str, float]] = {
    "ns": ("ns", 1.0),
    **dict.fromkeys(("us", "µs", "usec"), ("ns", 1e3)),
    **dict.fromkeys(("ms", "msec"), ("ns", 1e6)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), ("ns", 1e9)),
    **dict.fromkeys(("min", "mins", "minutes"), ("ns", 6e10)),
    **dict.fromkeys(("h", "hours"), ("ns", 3.6e12)),
    **dict.fromkeys(("b", "byte", "bytes"), ("bytes", 1.0)),
    **{f"{prefix}b": ("bytes", 1e3**power) for power, prefix in enumerate("kmgtp", 1)},
    **{f"{prefix}ib": ("bytes", 2.0 ** (10 * power)) for power, prefix in enumerate("kmgtp", 1)},
    "%": ("share", 0.01),
    **dict.fromkeys(("calls", "count", "counts", "ops"), ("count", 1.0)),
}
KINDS = {"ns": "a time", "bytes": "bytes", "share": "a share", "count": "a count", "": "a plain number"}
NUMBER = r"[-+]?\d[\d,]{0,24}(?:\.\d{0,18})?(?:[eE][-+]?\d{1,3})?"
CELL = re.compile(rf"\**({NUMBER})\**\s{{0,9}}([a-zA-Zµ%]{{1,8}})?\s{{0,9}}(?:\(([^()]{{0,80}})\))?$")
THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3}){1,8}(\.\d+)?$")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in our units (ns, bytes, 0..1) with the kind it states itself ("" where it states none)."""

    value: float
    kind: str
    text: str
    remark: str = ""


def number_of(text: str) -> float | None:
    """A plain number, with commas between thousands or without."""
    if "," in text and not THOUSANDS.match(text):
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@lru_cache(1 << 16)
def quantity_of(text: str) -> Quantity | None:
    """The number in a cell; None for words and empty cells."""
    match = CELL.match(text) if len(text) < 200 else None
    if match is None or number_of(match[1]) is None:
        return None
    if match[2] and match[2].lower() not in UNITS:
        return None
    kind, factor = UNITS[match[2].lower()] if match[2] else ("", 1.0)
    value = scaled(match[1], factor)
    return Quantity(value, kind, text, match[3] or "") if math.isfinite(value) else None


def scaled(number: str, factor: float) -> float:
    """A printed number in another unit, rounded once: 2.09 min is 125400000000 ns."""
    return float(Decimal(number.replace(",", "")) * Decimal(repr(factor)))


STATED = re.compile(r"[\[(]\s{0,3}([a-zA-Zµ%]{1,8})\s{0,3}[\])]")
WORDS = ((r"\bcalls?\b|\bcount\b|\bnumber of\b", "calls"), (r"\bbytes?\b", "bytes"), (r"\btime\b", "s"))


def stated_unit(text: str) -> str | None:
    """The unit that a heading states: in brackets, or by a word such as calls, bytes or time (seconds then)."""
    lowered = text.lower()
    for match in STATED.finditer(lowered[:400]):
        if match[1] in UNITS:
            return match[1]
    return next((unit for pattern, unit in WORDS if re.search(pattern, lowered[:400])), None)


# ---------------------------------------------------------------- grid
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
class Document:
    """All tables of a file, and all of its text outside tables and code."""

    grids: list[Grid] = field(default_factory=list)
    text: list[tuple[int, str]] = field(default_factory=list)


def page_of(source: Source) -> Document:
    """The tables of a Markdown page if there are any, else the file as comma-separated values."""
    page = markdown_page(source)
    if page.grids:
        return page
    rows = [row for row in _csv_rows(source) if row.filled]
    return Document([Grid(rows)] if rows else [], [])


def markdown_page(source: Source) -> Document:
    page, grid, since = Document(), Grid(), list[tuple[int, str]]()
    headings: list[tuple[int, str]] = []
    cells = letters = 0
    for number, text, in_table in _parts(source.lines()):
        if in_table:
            if not grid.rows:
                grid.headings, grid.text = [heading for _, heading in reversed(headings)], since
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
        letters += len(text)
        if letters > MOST_TEXT:
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
            row = [cell.strip() for cell in next(csv.reader([text]), [])] if len(text) < 100_000 else []
        except csv.Error as problem:
            raise source.bad(f"cannot be read as comma-separated values: {problem}", number) from None
        cells += len(row)
        if cells > MOST_CELLS:
            raise source.bad(f"more than {MOST_CELLS} cells", number)
        yield Row(number, row)
