"""Csv tables of `nsys stats`: kernels, CUDA calls, copies by time and by size, NVTX ranges; old and new titles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from rankscope.formats.event_columns import UnreadLines
from rankscope.formats.printed import LARGEST_FIGURE as LARGEST
from rankscope.formats.printed import TIME_NS, Printed, exactly
from rankscope.formats.source import Source
from rankscope.formats.summary_table import ProfileSection, Row, cells_of, check, tallies, unlisted
from rankscope.model.records import Layer, Note, RankFacts, Reading, Severity

UNIT = re.compile(r"\(([^()]{1,12})\)$")
NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,12})?", re.ASCII)
TIME_UNITS = {**TIME_NS, "nsec": 1, "usec": 10**3, "msec": 10**6, "sec": 10**9, "nanoseconds": 1, "": 1}
SIZE_UNITS = {"B": 1, "bytes": 1, "KB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}
COUNTS = ("Num Calls", "Instances", "Count", "Operations", "Calls", "Total Count")
TITLES = {
    "Avg": "mean",
    "Average": "mean",
    "Min": "least",
    "Minimum": "least",
    "Max": "most",
    "Maximum": "most",
    "Total Time": "total",
    "Total": "total",
}
NAMES = ("Name", "Operation", "Range", "Kernel Name")
NOWHERE = (0, 0)
HEAD = re.compile(
    rb'^"?Time ?\(%\)"?,"?Total Time(?: \([a-z]{1,11}\))?"?,'
    rb'|^"?Total(?: \((?:MB|MiB|KB|KiB|B)\))?"?,"?(?:Count|Operations)"?,',
    re.M,
)
HEADING = re.compile(r"\s*(?:Processing \[|Generating |Exporting |\*\* |SKIPPED: |\[\d+/\d+\])")  # what it says itself
COPY = re.compile(r"\[?CUDA (memcpy|memset)(?: ([A-Za-z]+(?:-to-[A-Za-z]+)?))?\]?", re.I)
DIRECTIONS = {"host-to-device": "HtoD", "device-to-host": "DtoH", "device-to-device": "DtoD", "host-to-host": "HtoH"}
DIRECTIONS |= {"peer-to-peer": "PtoP", "p2p": "PtoP"}


def sniff(head: bytes) -> bool:
    """Whether a line of titles of `nsys stats` stands there."""
    return HEAD.search(head) is not None


@dataclass(slots=True)
class Open:
    """The table being read: where its columns are, and how much one of their units is."""

    width: int
    name_at: int
    columns: dict[str, tuple[int, int]]
    section: ProfileSection
    sizes: bool

    def figure(self, cells: list[str], column: str) -> Printed | None:
        """The number under a title; None where there is none, or its unit is not known."""
        at, factor = self.columns.get(column, NOWHERE)
        return figure(cells[at].strip(), factor) if factor else None


@dataclass(slots=True)
class StatsTables:
    """What the file has told so far."""

    sections: list[ProfileSection] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    bad: UnreadLines = field(default_factory=lambda: UnreadLines("of tables cannot be read", Severity.WARNING))


def read(source: Source) -> Iterator[Reading]:
    """One reading: `nsys stats` adds up all processes of its report."""
    stats_tables, table, unread = StatsTables(), None, UnreadLines()
    for number, line in source.lines():
        cells = cells_of(line)
        opened = head_of(cells) if "Total" in line else None
        if opened is not None:
            table = opened
            stats_tables.sections.append(table.section)
        elif table is not None and len(cells) == table.width:
            take(table, cells, number, stats_tables)
        elif line.strip():
            table = None
            if not HEADING.match(line):
                unread.add(number)
    if not any(section.rows for section in stats_tables.sections) and not stats_tables.sizes:
        raise source.bad("has no readable table of nsys stats")
    stats_tables.notes += [*stats_tables.bad.notes(source), *unread.notes(source)]
    yield reading(stats_tables, source)


def head_of(cells: list[str]) -> Open | None:
    """The table that begins with these titles."""
    titles = [title_of(cell) for cell in cells]
    plain = {title for title, _ in titles}
    names = [title for title in NAMES if title in plain]
    counts = [title for title in COUNTS if title in plain]
    if not names or not counts or not plain & {"Total Time", "Total"}:
        return None
    sizes = "Total Time" not in plain
    if sizes and names[0] != "Operation":
        return None
    layer = layer_of(names[0], counts[0])
    name_at = [title for title, _ in titles].index(names[0])
    return Open(len(cells), name_at, columns_of(titles, counts[0], sizes), ProfileSection(TABLES[layer], layer), sizes)


def title_of(cell: str) -> tuple[str, str]:
    """A title and the unit that stands behind it."""
    cell = cell.strip()
    match = UNIT.search(cell)
    return (cell[: match.start()].rstrip(), match[1]) if match else (cell, "")


def columns_of(titles: list[tuple[str, str]], count: str, sizes: bool) -> dict[str, tuple[int, int]]:
    """Where the columns of numbers stand and their units; of several with one meaning the first counts."""
    units = SIZE_UNITS if sizes else TIME_UNITS
    columns: dict[str, tuple[int, int]] = {}
    for at, (title, unit) in enumerate(titles):
        if title in TITLES:
            columns.setdefault(TITLES[title], (at, units.get(unit, 0)))
        elif title in (count, "Time"):
            columns.setdefault(title, (at, 1))
    return columns | {"calls": columns[count]}


TABLES = {
    Layer.CUDA_API: "CUDA API calls",
    Layer.GPU: "GPU activities",
    Layer.NVTX: "NVTX ranges",
    Layer.MPI: "MPI calls",
    Layer.OS: "operating system calls",
}


def layer_of(name: str, count: str) -> Layer:
    """Which layer a table is of: its own titles tell."""
    if name == "Range":
        return Layer.NVTX
    return Layer.GPU if name == "Operation" or count in ("Instances", "Count", "Operations") else Layer.CUDA_API


def layer_of_rows(layer: Layer, name: str) -> Layer:
    """Tables of MPI and of the operating system have the titles of kernels and CUDA calls: the first name tells."""
    if layer == Layer.GPU and name.startswith("MPI_"):
        return Layer.MPI
    return Layer.OS if layer == Layer.CUDA_API and not name.startswith("cu") else layer


def take(table: Open, cells: list[str], number: int, stats_tables: StatsTables) -> None:
    """One row, or counted as none."""
    name = cells[table.name_at].strip()
    calls = table.figure(cells, "calls")
    total = table.figure(cells, "total")
    if calls is None or total is None or not name:
        stats_tables.bad.add(number)
    elif table.sizes:
        stats_tables.sizes[copy_name(name)] = int(total.value)
    else:
        if not table.section.rows:
            table.section.layer = layer_of_rows(Layer(table.section.layer), name)
            table.section.title = TABLES[Layer(table.section.layer)]
        others = (table.figure(cells, column) for column in ("mean", "least", "most"))
        row = Row(copy_name(name), number, table.figure(cells, "Time"), total, int(calls.value), *others)
        table.section.rows.append(row)


@lru_cache(maxsize=4096)  # most counts and shares stand in many rows
def figure(text: str, factor: int) -> Printed | None:
    """A number times its unit."""
    match = NUMBER.fullmatch(text.replace(",", ""))
    if match is None:
        return None
    printed = exactly(match[0]).times(factor)
    return printed if printed.value <= LARGEST else None


def copy_name(name: str) -> str:
    """Copies and memsets by the names nvprof gave them, so that profiles of both can be compared."""
    match = COPY.fullmatch(name)
    if match is None:
        return name
    direction = match[2] or ""
    short = DIRECTIONS.get(direction.lower(), direction)
    return f"[CUDA {match[1].lower()}{' ' + short if short else ''}]"


def reading(stats_tables: StatsTables, source: Source) -> Reading:
    """Everything as one process."""
    parsed = Reading(RankFacts(rank=source.hints.rank, source=str(source.path)), notes=stats_tables.notes)
    for section in stats_tables.sections:
        section_tallies = tallies(section)
        for tally in section_tallies:
            tally.bytes = stats_tables.sizes.get(tally.name)
            if tally.layer == Layer.NVTX and ":" in tally.name:  # domain:range, or :range in the default domain
                tally.group, _, tally.name = tally.name.partition(":")
        parsed.tallies += section_tallies
        parsed.notes += check(section, source)
        parsed.figures += unlisted(section)
    return parsed
