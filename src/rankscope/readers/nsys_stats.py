"""Tables printed by `nsys stats --format csv`: sums by kernel, copy, call or range, any number of them in one file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from rankscope.model import Note, RankFacts, Reading, Severity, Tally
from rankscope.readers.source import Source

HEADING = re.compile(r'^"?(Time ?\(%\)|Total \((?:[KMG]i?)?B\))"?,"?(Total Time|Count)')
NAME_COLUMNS = ("Name", "Range", "Operation")
CALL_COLUMNS = ("Instances", "Num Calls", "Count", "Operations")
TIME_UNITS = {"ns": 1, "us": 1000, "μs": 1000, "ms": 10**6, "s": 10**9, "sec": 10**9}
SIZE_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
UNIT = re.compile(r"\((\w+)\)$")
API_VERSION = re.compile(r"_v\d+$")
CUDA_CALL = re.compile(r"cu(?:da)?[A-Z]\w+$")


def sniff(head: bytes) -> bool:
    """A line of nsys's column titles near the beginning."""
    return any(HEADING.match(line) for line in head.decode("utf-8", "replace").splitlines()[:200])


@dataclass(slots=True)
class Sums:
    """The table being read: where each value stands, and what its shares add up to."""

    titles: list[str]
    line: int
    share: Decimal = Decimal(0)
    rows: int = 0

    def at(self, *names: str) -> int | None:
        """The column with one of these titles, whatever unit it has."""
        bare = [UNIT.sub("", title).strip() for title in self.titles]
        return next((bare.index(name) for name in names if name in bare), None)

    def unit(self, column: int) -> str:
        found = UNIT.search(self.titles[column])
        return found[1] if found else "ns"

    @property
    def of_sizes(self) -> bool:
        return self.titles[0].startswith("Total")


@dataclass(slots=True)
class Document:
    """What came out of one file so far."""

    source: Source
    tallies: dict[tuple[str, str, str], Tally] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def warn(self, told: str, line: int) -> None:
        self.notes.append(Note(told, Severity.WARNING, self.source.at(line)))


def read(source: Source) -> Iterator[Reading]:
    """One process: nsys adds up all that it profiled."""
    document = Document(source)
    table: Sums | None = None
    for number, line in source.lines():
        if HEADING.match(line):
            _close(document, table)
            table = Sums(_cells(line), number)
        elif table is not None and line.strip():
            if not _take(document, table, _cells(line), number):
                _close(document, table)
                table = None
    _close(document, table)
    if not document.tallies:
        raise source.bad("has no rows under the column titles of nsys stats")
    facts = RankFacts(
        rank=source.hints.rank, rank_source="" if source.hints.rank is None else "--rank", source=str(source)
    )
    yield Reading(facts, tallies=list(document.tallies.values()), notes=document.notes)


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def _take(document: Document, table: Sums, cells: Sequence[str], line: int) -> bool:
    """Add a row; False where the line is none, as after the end of a table."""
    if len(cells) != len(table.titles) or _number(cells[0]) is None:
        return False
    values = {title: cells[at] for at, title in enumerate(table.titles)}
    return _take_sizes(document, table, cells) if table.of_sizes else _take_times(document, table, values, cells, line)


def _take_sizes(document: Document, table: Sums, cells: Sequence[str]) -> bool:
    """The bytes belong to the copies and sets whose times stand in another table."""
    name_at, total = table.at(*NAME_COLUMNS), _number(cells[0])
    factor = SIZE_UNITS.get(table.unit(0))
    if name_at is None or total is None or factor is None:
        return False
    found = document.tallies.get(("gpu", "", cells[name_at]))
    if found is not None and 0 <= total * factor < 2**63:
        found.bytes = round(total * factor)
    return True


def _take_times(document: Document, table: Sums, values: Mapping[str, str], cells: Sequence[str], line: int) -> bool:
    name_at, calls_at, total_at = table.at(*NAME_COLUMNS), table.at(*CALL_COLUMNS), table.at("Total Time")
    if name_at is None or calls_at is None or total_at is None:
        return False
    calls, total_ns = _number(cells[calls_at]), _ns(table, cells, total_at)
    if calls is None or total_ns is None or calls != int(calls):
        document.warn(f"not a number of calls or a time: {cells[calls_at]}, {cells[total_at]}", line)
        return True
    layer, group, name = _identity(table, values, cells[name_at])
    least_ns, largest_ns = (_ns(table, cells, table.at(*names)) for names in (("Min", "Minimum"), ("Max", "Maximum")))
    _check(document, table, cells, int(calls), total_ns, line)
    tally = Tally(layer, name, int(calls), float(total_ns), group)
    tally.min_ns = None if least_ns is None else float(least_ns)
    tally.max_ns = None if largest_ns is None else float(largest_ns)
    tally.sum_squares_ns2 = _squares(table, cells, int(calls), total_ns)
    _add(document, tally, line)
    table.share += _number(cells[0]) or Decimal(0)
    table.rows += 1
    return True


def _add(document: Document, tally: Tally, line: int) -> None:
    key = tally.layer, tally.group, tally.name
    if key in document.tallies and document.tallies[key].total_ns != tally.total_ns:
        document.warn(f"{tally.name} comes twice in one layer: the first is kept", line)
    document.tallies.setdefault(key, tally)


def _identity(table: Sums, values: Mapping[str, str], name: str) -> tuple[str, str, str]:
    """Layer, group and name: the titles tell, and where they are the same the names do."""
    if "Range" in values:
        domain, colon, rest = name.partition(":")
        return ("nvtx", domain, rest) if colon and " " not in domain and rest else ("nvtx", "", name)
    if name.startswith("MPI_") or "Source" in values:
        return "mpi", "", name
    if "Num Calls" in values:
        bare = API_VERSION.sub("", name)
        return ("cuda_api", "", bare) if CUDA_CALL.match(bare) else ("os", "", name)
    return "gpu", "", name


def _check(document: Document, table: Sums, cells: Sequence[str], calls: int, total_ns: Decimal, line: int) -> None:
    """Total = calls × average within what was rounded off; least ≤ average ≤ largest."""
    average_at = table.at("Avg", "Average")
    average_ns = _ns(table, cells, average_at)
    if average_at is None or average_ns is None:
        return
    shown = len(cells[average_at].partition(".")[2])
    step_ns = Decimal(TIME_UNITS[table.unit(average_at)]).scaleb(-shown)
    if abs(average_ns * calls - total_ns) > step_ns * calls / 2 + 1:
        document.warn(f"{calls} calls × {cells[average_at]} on average is not the total of {total_ns} ns", line)
    least_ns, largest_ns = (_ns(table, cells, table.at(*names)) for names in (("Min", "Minimum"), ("Max", "Maximum")))
    if least_ns is not None and largest_ns is not None and not least_ns - step_ns <= average_ns <= largest_ns + step_ns:
        document.warn(f"the average {average_ns} ns is not between {least_ns} and {largest_ns} ns", line)


def _squares(table: Sums, cells: Sequence[str], calls: int, total_ns: Decimal) -> float | None:
    """From the standard deviation, which nsys takes over calls − 1."""
    deviation_ns = _ns(table, cells, table.at("StdDev"))
    if deviation_ns is None or not calls:
        return None
    return float(deviation_ns * deviation_ns * (calls - 1) + total_ns * total_ns / calls)


def _close(document: Document, table: Sums | None) -> None:
    """Shares are rounded to a tenth each."""
    if table is None or table.of_sizes or not table.rows:
        return
    allowed = Decimal("0.05") * table.rows + Decimal("0.1")
    if abs(table.share - 100) > allowed:
        document.warn(f"the shares of this table add up to {table.share} %", table.line)


def _ns(table: Sums, cells: Sequence[str], column: int | None) -> Decimal | None:
    number = None if column is None else _number(cells[column])
    factor = None if column is None else TIME_UNITS.get(table.unit(column))
    return number * factor if number is not None and factor is not None else None


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text.replace(",", "").removesuffix("%"))
    except InvalidOperation:
        return None
    return number if number.is_finite() and 0 <= number < 2**62 and -20 < number.adjusted() < 20 else None
