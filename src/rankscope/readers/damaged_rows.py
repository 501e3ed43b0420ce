"""Lines of a damaged summary: rows with missing or misread cells, and times and shares that lost their row."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rankscope.formats.printed import Printed, count
from rankscope.formats.summary_table import Row
from rankscope.model import Severity
from rankscope.readers.misread import looks_like_time, name_cell, share_cell, time_cell, unit_by_neighbours

KIND = re.compile(r"\s*(?:GPU activities|API calls):\s*")
SHARE = re.compile(r"\d{1,3}[. ]\d{1,2}%", re.ASCII)
CELLS = 7  # share, time, calls, average, least, most, name
TIMES = ("average", "least time", "longest time")
MOST_CELLS = 400
MOST_ROWS = 200  # of one profile, rows and lone figures together: each is compared with each


@dataclass(slots=True)
class Block:
    """One profile of a damaged document."""

    heading: str
    line: int
    pid: int | None = None
    command: str = ""
    rows: list[Row] = field(default_factory=list)
    loose: list[tuple[int, Printed]] = field(default_factory=list)  # times that stand alone, with their line
    full: bool = False  # there were more rows than are looked at
    pairs: list[Row] = field(default_factory=list)  # share and time side by side, without a name
    told: list[tuple[int, str, Severity]] = field(default_factory=list)
    lines: dict[tuple[str, int | None, Printed | None, Printed | None], int] = field(default_factory=dict)

    def tell(self, line: int, text: str, severity: Severity = Severity.NOTE) -> None:
        self.told.append((line, text, severity))


def read_line(block: Block, number: int, line: str) -> None:
    """Take what the line holds of a table."""
    kind = KIND.match(line)
    text = line[kind.end() :] if kind else line
    if len(block.rows) + len(block.loose) >= MOST_ROWS:
        block.full = True
        return
    if "\t" in text.strip():
        _tabbed(block, number, text)
    else:
        _spaced(block, number, text.split(None, MOST_CELLS))


def _tabbed(block: Block, number: int, text: str) -> None:
    """A row of a converted table: empty cells are still there."""
    cells = [cell.strip() for cell in text.strip("\r\n").split("\t")]
    while cells and not cells[0]:
        del cells[0]
    while cells and not cells[-1]:
        del cells[-1]
    if len(cells) == CELLS and SHARE.fullmatch(cells[0]):
        _add(block, number, cells[0], cells[1], cells[2], cells[3:6], cells[6])


def _spaced(block: Block, number: int, words: list[str]) -> None:
    """A row of a scanned table: cells that are missing leave no trace but their kind."""
    share = words.pop(0) if words and SHARE.fullmatch(words[0]) else ""
    total = words.pop(0) if words and looks_like_time(words[0]) else ""
    calls = words.pop(0) if words and count(words[0]) is not None else ""
    times = []
    while words and looks_like_time(words[0]):
        times.append(words.pop(0))
    if calls and times and words:
        _add(block, number, share, total, calls, times, " ".join(words))
    elif not calls and not words:
        _alone(block, number, share, total)


def _alone(block: Block, number: int, share: str, total: str) -> None:
    percent, time = share_cell(share)[0], time_cell(total)[0]
    if time is not None:
        block.loose.append((number, time))
    if time is not None and percent is not None:
        block.pairs.append(Row("", number, percent, time, None, *_NO_TIMES))


def _add(block: Block, number: int, share: str, total: str, calls: str, times: list[str], name: str) -> None:
    title, lost = name_cell(name)
    row = Row(
        title, number, _share(block, number, share), _time(block, number, total, "time"), count(calls), *_NO_TIMES
    )
    if lost:
        block.tell(number, f"{title[:60]}: {lost}")
    if len(times) > len(TIMES):
        told = f"{title[:60]}: {len(times)} times where {len(TIMES)} belong: only the first, the average, is taken"
        block.tell(number, told, Severity.WARNING)
        times = times[:1]
    times += [""] * (len(TIMES) - len(times))
    row.mean, row.least = (_time(block, number, text, what) for text, what in zip(times[:2], TIMES, strict=False))
    row.most = _longest(block, row, times[2])
    _keep(block, row)


_NO_TIMES = (None, None, None)


def _keep(block: Block, row: Row) -> None:
    """A row that stands there twice is one row."""
    line = block.lines.setdefault((row.name, row.calls, row.mean, row.most), row.line) if row.mean else row.line
    if line != row.line:
        block.tell(row.line, f"{row.name[:60]}: the same row stands in line {line}: counted once")
    else:
        block.rows.append(row)


def _share(block: Block, number: int, text: str) -> Printed | None:
    found, how = share_cell(text)
    if how:
        block.tell(number, f"share {how}")
    return found


def _time(block: Block, number: int, text: str, what: str) -> Printed | None:
    found, how = time_cell(text)
    if how:
        block.tell(number, f"{what} {how}")
    elif found is None and text:
        block.tell(number, f"the {what} {text!r} cannot be read", Severity.WARNING)
    return found


def _longest(block: Block, row: Row, text: str) -> Printed | None:
    """A longest time in an impossible unit can often be told from its neighbours."""
    total = row.total
    if total is None and row.calls and row.mean:
        total = row.mean.times(row.calls)
    found, how = unit_by_neighbours(text, row.mean, total) if time_cell(text)[0] is None else (None, "")
    if found is None:
        return _time(block, row.line, text, TIMES[2])
    block.tell(row.line, f"{TIMES[2]} {how}")
    return found
