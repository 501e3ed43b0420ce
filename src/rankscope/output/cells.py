"""Cells as people read them: units that fit the number, and nothing that a terminal would obey."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from rankscope.model.tables import Cell, Column, Unit

TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
SIZES = tuple((1024.0**power, f"{letter}iB") for power, letter in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K")))
# control, format (bidirectional overrides, zero width), surrogate, private and unassigned characters, line breaks
UNPRINTABLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def printable(text: str) -> str:
    """The text with everything shown as an escape that could move a cursor or deceive the eye."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(letter) if unicodedata.category(letter) in UNPRINTABLE else letter for letter in text)


def _escaped(letter: str) -> str:
    number = ord(letter)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def shown(cell: Cell, unit: Unit) -> str:
    """One cell for a person."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return printable(cell)
    if unit is Unit.NAME:
        return str(cell)  # a rank or a pid is no quantity
    if unit is Unit.NS:
        return time_text(float(cell))
    if unit in (Unit.BYTES, Unit.RATE):
        return size_text(float(cell)) + ("/s" if unit is Unit.RATE else "")
    if unit is Unit.SHARE:
        if -0.0005 < cell <= 0:
            return "0.0 %"  # not -0.0
        return "<0.1 %" if 0 < cell < 0.0005 else f"{100 * float(cell):.1f} %"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.2g}" if 0 < abs(cell) < 0.01 else f"{cell:.2f}"


def time_text(nanoseconds: float) -> str:
    """Three or four digits and a unit: 1.234 s, 12.3 ms."""
    for scale, unit in TIMES:
        if abs(nanoseconds) >= scale or unit == "ns":
            return f"{_digits(nanoseconds / scale)} {unit}" if nanoseconds else "0 s"
    return ""


def size_text(size_bytes: float) -> str:
    """Three or four digits and a binary unit: 4.50 MiB; below 1 KiB plain bytes."""
    for scale, unit in SIZES:
        if abs(size_bytes) >= scale:
            return f"{_digits(size_bytes / scale)} {unit}"
    return f"{size_bytes:.0f} B" if float(size_bytes).is_integer() else f"{size_bytes:.1f} B"


def _digits(number: float) -> str:
    if abs(number) >= 9999.5:
        return f"{number:,.0f}"
    return f"{number:.0f}" if abs(number) >= 999.5 else f"{number:.3g}" if abs(number) >= 99.95 else _three(number)


def _three(number: float) -> str:
    return f"{number:.1f}" if abs(number) >= 9.995 else f"{number:.2f}"


UNITS = re.compile(r"(\d) (%|[mµn]?s\b|[KMGT]?i?B\b)")


def unbroken(sentence: str) -> str:
    """No line ends between a number and its unit."""
    return UNITS.sub("\\1\u00a0\\2", sentence)


def heading(column: Column) -> str:
    return printable(column.title or column.name)


def filled(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """The columns that hold anything at all, by place: an empty or all-zero error column only takes room."""
    return [at for at, column in enumerate(columns) if any(_says_something(row[at], column) for row in rows)]


def _says_something(cell: Cell, column: Column) -> bool:
    return bool(cell) if column.name == "errors" else cell is not None and cell != ""
