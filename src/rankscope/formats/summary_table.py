"""Rows of a profiler's summary (share, time, calls, average, least, most, name), checked by their arithmetic."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from math import ceil, floor
from statistics import median
from typing import Any, Protocol

from rankscope.formats.printed import ZERO, Printed
from rankscope.formats.source import Source
from rankscope.model.records import Figure, Note, RangeTally, Severity, Tally

# ---------------------------------------------------------------- one line of comma-separated values
PLAIN_LENGTH = 128 << 10  # the csv module takes no longer cells


def cells_of(line: str) -> list[str]:
    """The cells of one line; none where it is no csv."""
    if "," not in line:
        return []
    if len(line) < PLAIN_LENGTH and '"' not in line and "\r" not in line:
        return line.split(",")  # the same, and faster
    try:
        return next(iter(csv.reader([line], strict=True)), [])
    except csv.Error:
        return []


# ---------------------------------------------------------------- summary table
WHOLE = Decimal(100)
LISTED = Decimal("0.5")  # percent points that rounded shares may miss the whole by, and more with many rows
TELLING = Decimal(1)  # percent: smaller shares tell too little of the whole
ODD = Decimal("0.05")  # of the whole: a row that says another whole by more has a wrong cell
WHOLE_NAME = "time of all rows"  # the figure that analyses take for the whole where rows are missing
MOST_NOTES = 20  # of one kind for one table


@dataclass(slots=True)
class Row:
    """One line of a summary as it was printed; None where a cell is missing or cannot be read."""

    name: str
    line: int
    share: Printed | None
    total: Printed | None
    calls: int | None
    mean: Printed | None
    least: Printed | None
    most: Printed | None

    def __reduce__(self) -> tuple[Any, ...]:
        """As a few words: a long table waits in a file (`block_file`), and decimals are slow to write there."""
        figures = (self.share, self.total, self.mean, self.least, self.most)
        words = [word for figure in figures for word in (map(str, figure) if figure else ("", ""))]
        return _row_of, (self.name, self.line, self.calls, *words)


def _row_of(name: str, line: int, calls: int | None, *words: str) -> Row:
    pairs = zip(words[::2], words[1::2], strict=True)
    share, total, mean, least, most = (
        Printed(Decimal(value), Decimal(step)) if value else None for value, step in pairs
    )
    return Row(name, line, share, total, calls, mean, least, most)


class Rows(Protocol):
    """Rows in the order of the table: a list, or more than fits in memory."""

    def append(self, row: Row, /) -> None: ...
    def __iter__(self) -> Iterator[Row]: ...
    def __len__(self) -> int: ...


@dataclass(slots=True)
class ProfileSection:
    """The rows of one kind in one table: GPU activities, API calls, or one range with what is attributed to it."""

    title: str
    layer: str
    group: str = ""
    within: str = ""
    thread: int = 0
    rows: Rows = field(default_factory=list[Row])
    complete: bool = True  # the tool lists every row: shares then add up to 100 %


def tallies(section: ProfileSection) -> list[Tally]:
    """The section as the model holds it."""
    return [_tally(section, row) for row in section.rows]


def each_tally(section: ProfileSection) -> Iterator[Tally | RangeTally]:
    """The same one by one, also of a section that lists what is attributed to a range."""
    for row in section.rows:
        tally = _tally(section, row)
        yield RangeTally(**asdict(tally), within=section.within) if section.within else tally


def _tally(section: ProfileSection, row: Row) -> Tally:
    total_ns = total_of(row)
    return Tally(
        section.layer,
        row.name,
        row.calls,
        None if total_ns is None else float(total_ns),
        section.group,
        thread=section.thread,
        min_ns=_float(row.least),
        max_ns=_float(row.most),
    )


def _float(figure: Printed | None) -> float | None:
    return None if figure is None else float(figure.value)


def total_of(row: Row) -> int | None:
    """The total in ns: as printed, but within its rounding moved so that calls × average fits too."""
    if row.total is None:
        return None
    printed = int(row.total.value.to_integral_value())
    if row.mean is None or not row.calls:
        return printed
    # tools cut the average to whole ns before they print it; a tie may have been rounded either way
    inside = (floor(row.mean.low) + 1, ceil(row.mean.high) - 1)
    if inside[0] <= printed // row.calls <= inside[1]:
        return printed
    for least, most in (inside, (ceil(row.mean.low), floor(row.mean.high))):
        low, high = max(row.calls * Decimal(least), row.total.low), min(row.calls * Decimal(most + 1), row.total.high)
        if low < high:
            return int((low + high) / 2)
    return printed


def check(section: ProfileSection, source: Source, shares: Shares | None = None) -> list[Note]:
    """What the arithmetic of a section says against it."""
    notes = _limited(note for row in section.rows for note in _check_row(row, source))
    return notes + _check_shares(section, source, shares or shares_of(section.rows))


def _limited(notes: Iterable[Note]) -> list[Note]:
    """The first of them, and how many more there are."""
    listed: list[Note] = []
    left, last = 0, ""
    for note in notes:
        if len(listed) < MOST_NOTES:
            listed.append(note)
        else:
            left, last = left + 1, note.where
    if left:
        listed.append(Note(f"{left} more rows of this table do not add up", Severity.WARNING, last))
    return listed


def _check_row(row: Row, source: Source) -> list[Note]:
    problems = []
    if row.total and row.mean and row.calls and not mean_fits(row):
        problems.append(f"{_ms(row.total)} in {row.calls} calls is not {_ms(row.mean)} on average")
    if row.least and row.mean and row.least.value - row.least.step > row.mean.value + row.mean.step:
        problems.append(f"the shortest time {_ms(row.least)} is above the average {_ms(row.mean)}")
    if row.most and row.mean and row.most.value + row.most.step + 1 < row.mean.value - row.mean.step:
        problems.append(f"the longest time {_ms(row.most)} is below the average {_ms(row.mean)}")
    if row.most and row.total and row.most.value - row.most.step > row.total.value + row.total.step:
        problems.append(f"the longest time {_ms(row.most)} is above the total {_ms(row.total)}")
    return [Note(f"{row.name[:60]}: {text}", Severity.WARNING, source.at(row.line)) for text in problems]


def mean_fits(row: Row) -> bool:
    """Whether total = calls × average within what printing hid."""
    assert row.total is not None and row.mean is not None and row.calls is not None
    spread = row.mean.step + 1
    low, high = row.calls * (row.mean.value - spread), row.calls * (row.mean.value + spread)
    return row.total.agrees(low, high)


@dataclass(slots=True)
class Shares:
    """What the shares of a table's rows add up to, how far rounding may have moved that, and what they are parts of."""

    first_line: int = 0
    added: Decimal = ZERO
    slack: Decimal = LISTED
    telling: list[Row] = field(default_factory=list)  # rows of which the whole can be told

    def add(self, row: Row) -> None:
        if row.share is None:
            return
        self.first_line = self.first_line or row.line
        self.added += row.share.value
        self.slack += row.share.step / 2
        if row.total and telling(row.share):
            self.telling.append(row)

    def whole_ns(self) -> tuple[Decimal, Decimal] | None:
        return whole_ns(self.telling)


def shares_of(rows: Iterable[Row]) -> Shares:
    shares = Shares()
    for row in rows:
        shares.add(row)
    return shares


def whole_ns(rows: Sequence[Row]) -> tuple[Decimal, Decimal] | None:
    """The time that the shares are shares of, by time ÷ share, and how far off that may be.

    The largest share tells it best, unless it is at odds with the middle of what all rows say.
    """
    shares = [(row.share.value, row) for row in rows if row.share and row.total and telling(row.share)]
    if not shares:
        return None
    middle = Decimal(median(row.total.value * WHOLE / share for share, row in shares if row.total))
    for share, row in sorted(shares, key=lambda item: -item[0]):
        assert row.total is not None and row.share is not None
        total = row.total.value * WHOLE / share
        if abs(total - middle) <= ODD * middle:
            return total, total * row.share.step / share + row.total.step * WHOLE / share
    return middle, ODD * middle


def telling(share: Printed | None) -> bool:
    return share is not None and share.value >= TELLING


def share_fits(row: Row, total: Decimal, doubt: Decimal) -> bool:
    """Whether share × whole = time within what printing hid."""
    assert row.total is not None and row.share is not None
    low = (row.share.value - row.share.step) * (total - doubt) / WHOLE
    high = (row.share.value + row.share.step) * (total + doubt) / WHOLE
    return row.total.agrees(low, high)


def _check_shares(section: ProfileSection, source: Source, shares: Shares) -> list[Note]:
    total = shares.whole_ns()
    if total is None:
        return []
    total_ns, doubt = total
    odd = (row for row in section.rows if row.total and row.share and not share_fits(row, total_ns, doubt))
    of_whole = f"of the {_milli(total_ns)} ms of {section.title}"
    return _limited(_share_note(row, of_whole, source) for row in odd) + _check_sum(section, shares, source)


def _share_note(row: Row, of_whole: str, source: Source) -> Note:
    assert row.total is not None and row.share is not None
    text = f"{row.name[:60]}: {_ms(row.total)} is not {row.share.value} % {of_whole}"
    return Note(text, Severity.WARNING, source.at(row.line))


def _check_sum(section: ProfileSection, shares: Shares, source: Source) -> list[Note]:
    added, where = shares.added, source.at(shares.first_line)
    if added > WHOLE + shares.slack:
        return [Note(f"{section.title}: the shares add up to {added} %", Severity.WARNING, where)]
    if section.complete and added < WHOLE - shares.slack:
        text = f"{section.title}: the shares add up to {added} %: rows with {WHOLE - added} % are missing"
        return [Note(text, Severity.WARNING, where)]
    return []


def unlisted(section: ProfileSection, shares: Shares | None = None) -> list[Figure]:
    """The whole of a section of which rows are missing, so that its shares can still be told."""
    shares = shares or shares_of(section.rows)
    total = None if section.within or shares.added >= WHOLE - shares.slack else shares.whole_ns()
    return [] if total is None else [Figure(section.layer, WHOLE_NAME, float(round(total[0])), "ns", statistic="total")]


def _ms(figure: Printed) -> str:
    return f"{_milli(figure.value)} ms"


def _milli(value: Decimal) -> str:
    return f"{float(value) / 1e6:.6g}"
