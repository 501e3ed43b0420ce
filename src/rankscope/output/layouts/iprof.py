"""The layout of THAPI's iprof tally, column by column."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.model.tables import Cell, Table, Unit
from rankscope.output.cells import printable

TIMES = ((3.6e12, "h"), (6e10, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "us"))
SIZES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
WHOLE = 1  # the column of totals
HIDDEN_IN_TOTAL = (4, 5, 6)  # mean, smallest, largest


def to_iprof(parts: Sequence[Table]) -> str:
    """Each part: its header line, its rows, longest first, and their sum."""
    return "".join(f"{printable(part.title)}\n\n{_table(part)}\n" for part in parts)


def _table(part: Table) -> str:
    is_bytes = part.columns[WHOLE].unit is Unit.BYTES
    what = "Byte" if is_bytes else "Time"
    head = ["Name", what, f"{what}(%)", "Calls", "Average", "Min", "Max", "Error"]
    lines = [_cells(row, is_bytes) for row in part.rows]
    widths = [max(len(line[at]) for line in [head, *lines]) for at in range(len(head))]
    has_errors = any(row[-1] for row in part.rows)
    hidden = set() if has_errors else {len(head) - 1}
    shown = [_line(line, widths, hidden) for line in [head, *lines[:-1]]]
    return "\n".join([*shown, _line(lines[-1], widths, hidden | set(HIDDEN_IN_TOTAL))]) + "\n"


def _line(cells: list[str], widths: list[int], hidden: set[int]) -> str:
    return "".join(
        " " * width + "   " if at in hidden else f"{cell:>{width}} | "
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )


def _cells(row: tuple[Cell, ...], is_bytes: bool) -> list[str]:
    name, total, share, calls, mean, least, most, errors = row
    failed = not is_bytes and calls == errors and bool(calls)
    values = ["" if failed else _value(value, is_bytes, is_total) for value, is_total in ((total, True), (mean, False))]
    bounds = ["" if failed else _value(value, is_bytes, True) for value in (least, most)]
    percent = "" if failed or share is None else f"{100 * float(share):.2f}%"
    return [printable(str(name)), values[0], percent, str(calls), values[1], *bounds, str(errors)]


def _value(value: Cell, is_bytes: bool, is_total: bool) -> str:
    """Two decimals and the largest unit that fits; whole numbers of the smallest unit have none."""
    if value is None:
        return ""
    number = float(value)
    for size, unit in SIZES if is_bytes else TIMES:
        if number >= size:
            return f"{number / size:.2f}{unit}"
    return f"{number:.{0 if is_total else 2}f}{'B' if is_bytes else 'ns'}"
