"""The lines of nvprof's text tables: summaries and what they say where there is nothing."""

from __future__ import annotations

import re

from rankscope.formats.nvprof_log import Log
from rankscope.formats.printed import count
from rankscope.formats.summary_table import Row
from rankscope.model import Severity
from rankscope.readers.units import percent, time_ns

SUMMARY_HEAD = re.compile(r"\s*(?:Type\s+)?Time\(%\)\s+Time\s+Calls\s+Avg\s+Min\s+Max\s+Name\s*$")
KIND = re.compile(r"\s*([A-Z][A-Za-z ()]{2,30}):\s+(?=\d)")
ROW_LIKE = re.compile(r"\s*\d{1,3}\.\d{1,6}%\s")
CELLS = 7


def read_summary_line(log: Log, number: int, line: str) -> bool:
    """Take the line if it is a row of the open summary."""
    kind = KIND.match(line)
    rest = line[kind.end() :] if kind else line
    if not ROW_LIKE.match(rest):
        return False
    if kind:
        log.kind = kind[1]
    row = parsed(rest, number)
    if row is None:
        told = f"a row of the table cannot be read: {line.strip()[:60]!r}"
        log.profile(number).note(told, Severity.WARNING, log.source.at(number))
    else:
        log.section(number).rows.append(row)
    return True


def parsed(text: str, number: int) -> Row | None:
    """The row, if every cell is what its column holds."""
    cells = text.split(None, CELLS - 1)
    if len(cells) != CELLS:
        return None
    share, total, calls = percent(cells[0]), time_ns(cells[1]), count(cells[2])
    mean, least, most = (time_ns(cell) for cell in cells[3:6])
    if None in (share, total, calls, mean, least, most):
        return None
    return Row(cells[6].rstrip(), number, share, total, calls, mean, least, most)
