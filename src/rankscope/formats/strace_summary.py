"""Reads the tables of `strace -c`: system calls, their errors and times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from rankscope.formats.event_columns import OtherLines
from rankscope.formats.printed import ZERO, Printed, count, number
from rankscope.formats.source import Source
from rankscope.model.records import Layer, Note, RankFacts, Reading, Severity, Tally

HEADER = re.compile(rb"^(?:% time|syscall|calls|seconds)\b[^\n]*\n-{4,}[- ]*\n", re.MULTILINE)
COLUMNS = {"%time", "seconds", "usecs/call", "calls", "errors", "syscall", "shortest", "longest"}
RULE = re.compile(r"-{4,}(?: +-{4,})+")
MAX_ROWS = 5_000  # there are a few hundred system calls
SECOND_NS = Decimal(10**9)
SHORTEST_S = 1 / SECOND_NS
HALF = Decimal("0.5")


@dataclass(slots=True)
class Row:
    """One line of the table: its cells by column."""

    line: int
    name: str
    cells: dict[str, Printed]

    def value(self, column: str) -> float:
        return float(self.cells[column].value) if column in self.cells else 0.0

    def whole(self, column: str) -> int:
        return int(self.cells[column].value) if column in self.cells else 0


@dataclass(slots=True)
class StraceSummary:
    """One table, and its total row once that has been met."""

    source: Source
    line: int
    columns: list[str]
    rows: list[Row] = field(default_factory=list)
    total: Row | None = None

    def reading(self) -> Reading:
        """The table as tallies, with what is off."""
        facts = RankFacts(rank=self.source.hints.rank, source=str(self.source))
        reading = Reading(facts, tallies=[_tally(row) for row in self.rows])
        reading.notes = [Note(text, Severity.WARNING, self.source.at(line)) for line, text in checked(self)]
        return reading


def sniff(head: bytes) -> bool:
    """A header line over a rule, with strace's column names."""
    match = HEADER.search(head)
    return match is not None and _columns(match[0].split(b"\n")[0].decode("ascii", "replace")) is not None


def read(source: Source) -> Iterator[Reading]:
    """One reading for each table."""
    other = OtherLines(source)
    yield from other.told_with_last(_tables(source, other))


def _tables(source: Source, other: OtherLines) -> Iterator[Reading]:
    tables = 0
    for summary in summaries(source, source.lines(), other):
        tables += 1
        yield summary.reading()
    if not tables:
        raise source.bad("no table of strace -c in it")


def summaries(source: Source, lines: Iterator[tuple[int, str]], other: OtherLines) -> Iterator[StraceSummary]:
    """The tables among the lines; other lines may stand between them."""
    current: StraceSummary | None = None
    for line, text in lines:
        columns = _columns(text)
        if columns:
            if current is not None:
                yield current
            current = StraceSummary(source, line, columns)
        elif RULE.fullmatch(text):
            continue
        elif current is None or not _take(current, line, text):
            other.add(line, text)
        else:
            if current.total is not None:
                yield current
                current = None
    if current is not None:
        yield current


def _columns(text: str) -> list[str] | None:
    names = text.replace("% time", "%time").split() if len(text) < 200 else []
    known = len(names) >= 3 and set(names) <= COLUMNS and {"calls", "syscall"} <= set(names)
    return names if known else None


def _take(summary: StraceSummary, line: int, text: str) -> bool:
    """Whether the line is a row of the table, and not the program's own output in between."""
    cells = text.split()
    missing = len(summary.columns) - len(cells)
    if missing == 1 and "errors" in summary.columns:
        cells.insert(summary.columns.index("errors"), "")
    elif missing:
        return False
    numbers = {name: number(cell) for name, cell in zip(summary.columns, cells, strict=True) if cell}
    name = cells[summary.columns.index("syscall")]
    numbers.pop("syscall")
    row = Row(line, name, {column: value for column, value in numbers.items() if value is not None})
    if len(row.cells) != len(numbers):
        return False
    if any(cell and count(cell) is None for cell in _counts(summary.columns, cells)):
        raise summary.source.bad(f"{name}: calls and errors must be counts", line)
    if name == "total":
        summary.total = row
    elif len(summary.rows) >= MAX_ROWS:
        raise summary.source.bad(f"more than {MAX_ROWS} system calls in one table", line)
    else:
        summary.rows.append(row)
    return True


def _counts(columns: Sequence[str], cells: Sequence[str]) -> list[str]:
    return [cell for name, cell in zip(columns, cells, strict=True) if name in ("calls", "errors")]


def _tally(row: Row) -> Tally:
    tally = Tally(Layer.CALLS, row.name, row.whole("calls"), _ns(row, "seconds") or 0.0)
    tally.errors = row.whole("errors")
    tally.min_ns, tally.max_ns = _ns(row, "shortest"), _ns(row, "longest")
    return tally


def _ns(row: Row, column: str) -> float | None:
    return float(row.cells[column].value * SECOND_NS) if column in row.cells else None


def checked(summary: StraceSummary) -> Iterator[tuple[int, str]]:
    """What does not add up, each with its line."""
    for row in summary.rows:
        yield from ((row.line, f"{row.name}: {text}") for text in _row_problems(row))
    if summary.total is None:
        yield summary.line, "the table has no total row: it was cut short"
        return
    yield from ((summary.total.line, text) for text in _total_problems(summary.rows, summary.total))
    for row in summary.rows:
        yield from ((row.line, f"{row.name}: {text}") for text in _share_problems(row, summary.total))


def _row_problems(row: Row) -> Iterator[str]:
    if row.whole("errors") > row.whole("calls"):
        yield f"{row.whole('errors')} errors in {row.whole('calls')} calls"
    if row.value("seconds") < 0:
        yield f"{row.value('seconds')} seconds is negative"
    if {"seconds", "usecs/call"} <= row.cells.keys():
        calls, each = row.whole("calls"), row.cells["usecs/call"].value
        # strace cuts the mean off after the microsecond
        if not row.cells["seconds"].times(10**6).meets(each * calls - HALF, (each + 1) * calls + HALF):
            yield f"{calls} calls of {each:g} us are not {row.value('seconds'):g} s"
    if {"shortest", "longest"} <= row.cells.keys() and row.value("shortest") > row.value("longest"):
        yield f"the shortest call ({row.value('shortest'):g} s) is longer than the longest"


def _total_problems(rows: Sequence[Row], total: Row) -> Iterator[str]:
    for column in ("calls", "errors"):
        added = sum(row.whole(column) for row in rows)
        if column in total.cells and added != total.whole(column):
            yield f"the {column} add up to {added}, but the total row says {total.whole(column)}"
    if "seconds" in total.cells:
        low, high = (sum((getattr(row.cells["seconds"], end) for row in rows), ZERO) for end in ("low", "high"))
        if not total.cells["seconds"].meets(low, high):
            yield f"the seconds add up to {(low + high) / 2:.6f}, but the total row says {total.value('seconds'):.6f}"


def _share_problems(row: Row, total: Row) -> Iterator[str]:
    all_seconds = total.cells.get("seconds")
    if all_seconds is None or all_seconds.value <= 0 or not {"%time", "seconds"} <= row.cells.keys():
        return
    part = row.cells["seconds"]
    if not row.cells["%time"].meets(
        100 * part.low / all_seconds.high, 100 * part.high / max(all_seconds.low, SHORTEST_S)
    ):
        expected = 100 * row.value("seconds") / float(all_seconds.value)
        yield f"{row.value('%time'):g} % of the time, but its seconds are {expected:.2f} % of the total"
