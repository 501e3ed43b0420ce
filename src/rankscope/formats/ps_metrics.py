"""Reads the metrics of PyTorch's parameter-server benchmark: csv files, and grid tables in its output."""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Iterator
from decimal import Decimal

from rankscope.formats.event_columns import OtherLines
from rankscope.formats.printed import FLOATING, ZERO, Printed, number
from rankscope.formats.source import Source
from rankscope.model.records import Figure, Note, RankFacts, Reading, Severity

COLUMNS = ("name", "min", "max", "mean", "variance", "stdev")
STATISTICS = COLUMNS[1:]
CSV_HEADER = ",".join(COLUMNS)
GRID_HEADER = re.compile(rb"(?m)^\| name +\| +min \| +max \| +mean \| +variance \| +stdev \|\s*$")
TITLE = re.compile(r"metrics for (?P<series>\S[^|]{0,200})")
GRID = ("|", "+-", "+=")
MAX_ROWS = 100_000
MS, S = Decimal(10**6), Decimal(10**9)  # in ns

Row = tuple[int, str, str, dict[str, Printed]]  # line, series, name, numbers

BESIDE = True  # the benchmark prints its tables among the output of profilers


def sniff(head: bytes) -> bool:
    """The csv header as first line, or the header of a grid table anywhere."""
    first = head.split(b"\n", 1)[0].strip()
    return first == CSV_HEADER.encode() or GRID_HEADER.search(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """All tables of a file; each of their numbers is a figure."""
    other = OtherLines(source)
    yield from other.told_with_last(_tables(source, other))


def own_lines(source: Source) -> frozenset[int]:
    """The lines of its tables."""
    own = (line for line, text in source.lines() if text.startswith(GRID) or TITLE.fullmatch(text.strip()))
    return frozenset(own)


def _tables(source: Source, other: OtherLines) -> Iterator[Reading]:
    reading = Reading(RankFacts(rank=source.hints.rank, source=str(source)))
    units: set[str] = set()
    for row in rows(source, other):
        line, series, name, cells = row
        units.add(_take(reading, series, name, cells))
        reading.notes += [Note(f"{name}: {text}", Severity.WARNING, source.at(line)) for text in _problems(cells)]
        if len(reading.figures) > MAX_ROWS * len(STATISTICS):
            raise source.bad(f"more than {MAX_ROWS} metrics", line)
    if not reading.figures:
        raise source.bad("no metrics in it")
    reading.notes += [Note(_told(unit), where=str(source)) for unit in sorted(units)]
    yield reading


def rows(source: Source, other: OtherLines) -> Iterator[Row]:
    """Every row of numbers, with the line and the series it stands under."""
    lines = source.lines()
    series, in_grid, in_csv = source.path.stem, False, False
    for line, text in lines:
        if title := TITLE.fullmatch(text.strip()):
            series, in_grid, in_csv = title["series"].strip(), False, False
        elif text.strip() == CSV_HEADER:
            in_csv = True
        elif text.startswith("|") and [cell.strip() for cell in text.strip("| \t").split("|")] == list(COLUMNS):
            in_grid, in_csv = True, False
        elif in_grid and text.startswith("|"):
            yield _row(source, line, series, [cell.strip() for cell in text.strip().strip("|").split("|")])
        elif in_csv and text.strip():
            yield _row(source, line, series, _cells(source, line, text))
        elif source.alone and not text.startswith(GRID[1:]):
            other.add(line, text)
        in_grid = in_grid and text[:1] in ("|", "+")


def _cells(source: Source, line: int, text: str) -> list[str]:
    try:
        return next(csv.reader([text]))
    except csv.Error as problem:
        raise source.bad(f"is not csv: {problem}", line) from None


def _row(source: Source, line: int, series: str, cells: list[str]) -> Row:
    if len(cells) != len(COLUMNS):
        raise source.bad(f"{len(cells)} cells where {len(COLUMNS)} belong: {', '.join(COLUMNS)}", line)
    values = {name: number(cell.strip()) for name, cell in zip(STATISTICS, cells[1:], strict=True)}
    numbers = {name: cell for name, cell in values.items() if cell is not None}
    if len(numbers) != len(STATISTICS):
        missing = next(name for name in STATISTICS if name not in numbers)
        raise source.bad(f"{cells[0][:80]}: {missing} is not a number", line)
    return line, series, cells[0], numbers


def _take(reading: Reading, series: str, name: str, cells: dict[str, Printed]) -> str:
    unit = _unit(cells)
    scale = S if unit == "s" else MS
    for statistic in STATISTICS:
        squared = statistic == "variance"
        value = cells[statistic].value * (scale * scale if squared else scale)
        reading.figures.append(Figure(series, name, float(value), "ns2" if squared else "ns", statistic=statistic))
    return unit


def _unit(cells: dict[str, Printed]) -> str:
    """CUDA events give single-precision milliseconds, the host clock double-precision seconds."""
    ends = (cells["min"].value, cells["max"].value)
    if any(len(end.as_tuple().digits) < 10 for end in ends):
        return "?"  # too few digits are printed to tell
    return "ms" if all(struct.unpack("f", struct.pack("f", float(end)))[0] == float(end) for end in ends) else "s"


def _told(unit: str) -> str:
    return {
        "ms": "the file names no unit: single-precision values, so milliseconds of CUDA events",
        "s": "the file names no unit: double-precision values, so seconds of the host's clock",
        "?": "the file names no unit: read as milliseconds, as CUDA events give",
    }[unit]


def _problems(cells: dict[str, Printed]) -> Iterator[str]:
    low, high, mean, variance, stdev = (cells[name] for name in STATISTICS)
    if low.high < 0:
        yield f"the minimum {low.value} is negative, which no duration can be"
    if low.low > mean.high or mean.low > high.high:
        yield f"the mean {mean.value} is not between the minimum {low.value} and the maximum {high.value}"
        return
    if variance.value < 0 or stdev.value < 0:
        yield f"variance {variance.value} or standard deviation {stdev.value} is less than 0"
        return
    if not variance.meets(max(ZERO, stdev.low) ** 2, stdev.high**2):
        yield f"the standard deviation {stdev.value} is not the root of the variance {variance.value}"
    # of two or more values, the variance of a sample is largest when half lie at either end
    spread = (high.high - mean.low) * (mean.high - low.low)
    if variance.low > 2 * spread * (1 + FLOATING):
        yield f"the variance {variance.value} is more than values from {low.value} to {high.value} can have"
