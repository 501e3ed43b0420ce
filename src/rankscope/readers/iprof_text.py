"""The tally tables of THAPI's iprof as they are printed: sections of a header line and a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rankscope.formats.printed import count
from rankscope.readers.spans import Span, printed

TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
TITLE = re.compile(r"(BACKEND_[A-Z_,]{1,200}|Device profiling|Explicit memory traffic \([A-Z_,]{1,200}\)) \| (.*)$")
COUNT = re.compile(r"(\d{1,12}) (Hostnames|Processes|Threads|Devices|Subdevices)$")
PLACE = re.compile(r"(Hostname|Process|Thread|Device pointer|Subdevice pointer): (\S{1,255})$")
HEAD = re.compile(r"\s*Name \|\s+(Time|Byte) \|\s+(?:Time|Byte)\(%\) \|\s+Calls \|\s+Average \|\s+Min \|\s+Max \|")
TOTAL = re.compile(r"\s*Total \|\s*(\S*) \|\s*(\S*) \|\s*(\d{1,18}) \|\s*(?:(\d{1,18}) \|\s*)?$")
QUANTITY = re.compile(r"(\d{1,15}(?:\.\d\d)?)([a-zA-Z]{1,3})$")


@dataclass(slots=True)
class Row:
    """One line of a table: total, share, calls, average, smallest and largest, as printed."""

    line: int
    name: str
    total: str
    share: str
    calls: int
    average: str = ""
    least: str = ""
    most: str = ""
    errors: int = 0


@dataclass(slots=True)
class Section:
    """One table with its header line."""

    line: int
    title: str
    counts: dict[str, int] = field(default_factory=dict)
    place: dict[str, str] = field(default_factory=dict)
    is_bytes: bool = False
    has_errors: bool = False
    rows: list[Row] = field(default_factory=list)
    total: Row | None = None
    damaged: list[int] = field(default_factory=list)

    @property
    def units(self) -> dict[str, int]:
        return SIZES if self.is_bytes else TIMES


def quantity(text: str, units: dict[str, int], times: int = 1) -> Span | None:
    """What a number with a unit can have been, or so many times it: at least one of its unit, less than the next."""
    found = QUANTITY.match(text)
    if found is None or found[2] not in units:
        return None
    unit = units[found[2]]
    span = printed(found[1], unit, times)
    larger = min((other for other in units.values() if other > unit), default=10**30)
    least = 0 if unit == 1 else unit * times
    return span.narrowed(Span(min(least, span.at), span.at, max(larger * times - 1, span.at)))


def sections(lines: Iterable[tuple[int, str]]) -> Iterator[Section]:
    """Every section that has a table, whatever else stands between them."""
    now: Section | None = None
    reading = False
    for number, text in lines:
        if found := TITLE.match(text):
            if now and reading:
                yield now
            now, reading = _begun(number, found), False
        elif now and (head := HEAD.match(text)):
            now.is_bytes, now.has_errors, reading = head[1] == "Byte", "Error" in text, True
        elif now and reading and not _taken(now, number, text):
            yield now
            now, reading = None, False
    if now and reading:
        yield now


def _begun(number: int, found: re.Match[str]) -> Section:
    section = Section(number, found[1])
    for part in found[2].split("|")[:16]:
        if counted := COUNT.match(part.strip()):
            section.counts[counted[2].lower()] = int(counted[1])
        elif placed := PLACE.match(part.strip()):
            section.place[placed[1]] = placed[2]
    return section


def _taken(section: Section, number: int, text: str) -> bool:
    """Whether the table goes on with this line: it ends with an empty one, or after its total."""
    if not text.strip():
        return False
    if found := TOTAL.match(text):
        section.total = Row(number, "Total", found[1], found[2], int(found[3]), errors=int(found[4] or 0))
        return False
    row = _row(section, number, text)
    if row is None:
        section.damaged.append(number)
    else:
        section.rows.append(row)
    return True


def _row(section: Section, number: int, text: str) -> Row | None:
    """Names may hold bars, so the columns are counted from the right."""
    columns = 8 if section.has_errors else 7
    cells = [cell.strip() for cell in text.rsplit("|", columns)]
    if len(cells) != columns + 1:
        return None
    calls, errors = count(cells[3]), count(cells[7]) if section.has_errors else 0
    if calls is None or errors is None:
        return None
    values = [cells[at] for at in (1, 4, 5, 6)]
    failed = errors == calls and not any(values)
    if not failed and not all(quantity(value, section.units) for value in values):
        return None
    return Row(number, cells[0], cells[1], cells[2], calls, cells[4], cells[5], cells[6], errors)
