"""Reads the output of the OSU micro-benchmarks: latency or bandwidth by message size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from rankscope.formats.event_columns import UnreadLines
from rankscope.formats.printed import Printed, number
from rankscope.formats.source import Source
from rankscope.model.records import Figure, Note, RankFacts, Reading, Severity

TITLE = re.compile(r"# OSU (?P<name>\S.{0,120}?) (?:Test )?v(?P<version>\d[\w.]{0,20})\s*")
SNIFFED = re.compile(rb"(?m)^# OSU (?:MPI|NCCL|XCCL|RCCL|OpenSHMEM|UPC|UPC\+\+|\S+?)\b[^\n]{1,120} v\d")
INIT = re.compile(r"nprocs: (?P<ranks>\d{1,7}), min: (\d+) ms, max: (\d+) ms, avg: (\d+) ms")
COLUMN = re.compile(
    r"(?P<name>Size|Count|Avg Latency|Min Latency|Max Latency|P\d{1,3} Tail Lat|Latency|Iterations|Bandwidth|MB/s|GB/s"
    r"|Messages/s|Validation|Overall|Compute|Coll\. Init|MPI_\w{1,30}|Pure Comm\.|Overlap)\s*"
    r"(?:\((?P<unit>us|MB/s|GB/s|%)\))?"
)
ROW = re.compile(r"\s*\d")  # what begins like one
ABOUT = re.compile(r"# (?:Datatype|\[|Overall|Size|Count)|#\s*$")  # headings, and what was measured with
UNITS = {"us": ("ns", Decimal(1000)), "MB/s": ("bytes/s", Decimal(10**6)), "GB/s": ("bytes/s", Decimal(10**9)),
         "%": ("share", Decimal("0.01")), "": ("count", Decimal(1))}  # fmt: skip
STATISTICS = {"Avg Latency": "mean", "Min Latency": "min", "Max Latency": "max"}
MAX_ROWS = 100_000


@dataclass(slots=True)
class OsuTest:
    """One benchmark's output: its name and the columns announced."""

    name: str
    version: str
    columns: list[tuple[str, str]] = field(default_factory=list)  # name and unit
    sizes: set[float | None] = field(default_factory=set)


def sniff(head: bytes) -> bool:
    """The line with the benchmark's name and version."""
    return SNIFFED.search(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """All benchmarks of a file."""
    reading = Reading(RankFacts(rank=source.hints.rank, source=str(source)))
    test: OsuTest | None = None
    unread, damaged = UnreadLines(), UnreadLines("cannot be read", Severity.WARNING)
    for line, text in source.lines():
        if not text.strip():
            continue
        if title := TITLE.fullmatch(text):
            test = OsuTest(title["name"].strip(), title["version"])
            reading.facts.versions = f"OSU micro-benchmarks {test.version}"
        elif test is None or text.startswith(
            "# OSU"
        ):  # a name that cannot be read: what comes is of no test that is known
            unread.add(line)
            test = None
        elif text.startswith("#"):
            columns = _columns(text)
            test.columns = columns or test.columns
            if not columns and not ABOUT.match(text):
                unread.add(line)
        elif init := INIT.match(text.strip()):
            _take_init(reading, test, init, source.at(line))
        elif not _take(source, reading, test, line, text):
            (damaged if ROW.match(text) else unread).add(line)
        if len(reading.figures) > MAX_ROWS * 10:
            raise source.bad("more figures than a benchmark has", line)
    if not reading.figures:
        raise source.bad("contains no figures of an OSU benchmark")
    reading.notes += [*damaged.notes(source), *unread.notes(source)]
    yield reading


def _columns(text: str) -> list[tuple[str, str]]:
    columns = [(column["name"], column["unit"] or "") for column in COLUMN.finditer(text[:500])]
    values = [name for name, _ in columns if name not in ("Size", "Count")]
    return columns if values and not text.startswith(("# Datatype", "# [")) else []


def _take(source: Source, reading: Reading, test: OsuTest, line: int, text: str) -> bool:
    """Whether it is a row, and all its cells could be read."""
    cells = text.split()
    if not test.columns or len(cells) != len(test.columns) or not cells[0][0].isdigit():
        return False  # other output in between, or a row cut off
    numbers = {column: value for (column, _), cell in zip(test.columns, cells, strict=True) if (value := number(cell))}
    size = numbers.get("Size")
    scale = float(size.value) if size else None
    for column, unit in test.columns:
        value = numbers.get(column)
        if column in ("Size", "Validation") or value is None:
            continue
        reading.figures.append(_figure(test, column, unit, value, scale))
    where = source.at(line)
    _note_again(reading, test, scale, where)
    reading.notes += [Note(f"{test.name}: {problem}", Severity.WARNING, where) for problem in _problems(numbers)]
    if cells[-1] == "Fail":
        reading.notes.append(Note(f"{test.name}: the data received were wrong", Severity.WARNING, where))
    words = ("Pass", "Fail", "-", "N/A")
    return all(column in numbers or cell in words for (column, _), cell in zip(test.columns, cells, strict=True))


def _figure(test: OsuTest, column: str, unit: str, value: Printed, scale: float | None) -> Figure:
    known, factor = UNITS[unit if unit else column if column in UNITS else ""]
    tail = column.endswith("Tail Lat")
    name = "latency" if tail or "Latency" in column else "bandwidth" if known == "bytes/s" else column.lower()
    name = "message rate" if name == "messages/s" else name
    statistic = column.split()[0].lower() if tail else STATISTICS.get(column, "")
    return Figure(
        test.name, name, float(value.value * factor), known, scale, "bytes" if scale is not None else "", statistic
    )


def _note_again(reading: Reading, test: OsuTest, scale: float | None, where: str) -> None:
    if scale in test.sizes:
        again = "its figure" if scale is None else f"{scale:.0f}"
        reading.notes.append(Note(f"{test.name}: {again} appears twice", Severity.WARNING, where))
    test.sizes.add(scale)


def _take_init(reading: Reading, test: OsuTest, match: re.Match[str], where: str) -> None:
    _note_again(reading, test, float(match["ranks"]), where)
    reading.facts.world_size = int(match["ranks"])
    for statistic, ms in zip(("min", "max", "mean"), match.groups()[1:], strict=True):
        value = number(ms)
        if value is not None:
            figure = Figure(
                test.name, "latency", float(value.value * 10**6), "ns", float(match["ranks"]), "ranks", statistic
            )
            reading.figures.append(figure)


def _problems(numbers: dict[str, Printed]) -> Iterator[str]:
    low, mean, high = (numbers.get(name) for name in ("Min Latency", "Avg Latency", "Max Latency"))
    if low and mean and high and (low.low > mean.high or mean.low > high.high):
        yield f"the mean latency {mean.value} us is not between {low.value} and {high.value} us"
    rate, size = numbers.get("Messages/s"), numbers.get("Size")
    megabytes = numbers.get("MB/s")
    if rate and size and megabytes:
        if not megabytes.meets(*rate.times(size.value / 10**6).ends):
            yield f"{rate.value} messages/s of {size.value} bytes are not {megabytes.value} MB/s"
