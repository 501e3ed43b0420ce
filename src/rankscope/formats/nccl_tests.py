"""Reads the output of nccl-tests and rccl-tests: time and bandwidth of one collective by message size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from rankscope.formats.bus_bandwidth import ALL_RANKS, ALL_REDUCE, FACTORS, ONCE, factor
from rankscope.formats.event_columns import UnreadLines
from rankscope.formats.printed import ZERO, Printed, number, ratio
from rankscope.formats.source import Source
from rankscope.model.records import Figure, Note, RankFacts, Reading, Severity

HEADER_WORDS = (b"size", b"count", b"type", b"algbw", b"busbw")
RANK = re.compile(
    r"#\s+Rank\s+(?P<rank>\d{1,7}) (?:Group\s+\d{1,7} )?Pid\s+(?P<pid>\d{1,9}) on\s+(?P<host>\S{1,255})"
    r" device\s+(?P<device>\d{1,6}) \[[^\]]{0,40}\] ?(?P<model>.{0,200})"
)
COLUMNS = re.compile(r"#\s+size\s+count\s+type\b(?P<rest>.{0,400})")
SETTINGS = re.compile(r"# (nThread \d{1,6} nGpus \d{1,6} minBytes \d{1,18} .{0,300})")
NAMED = re.compile(
    r"\b(?P<name>all_reduce|all_gather|reduce_scatter|alltoall|sendrecv|broadcast|reduce|gather|scatter)_perf\b"
)
ROW = re.compile(
    r"(?:\s*\d+:)?\s*(?P<size>\d{1,18})\s+(?P<count>\d{1,18})\s+(?P<type>[a-z]\w{1,20})\s+(?P<rest>\S.{0,400})"
)
OUT_OF_BOUNDS = re.compile(r"# Out of bounds values\s*:\s*(\d{1,18}) (OK|FAILED)")
AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*([\d.eE+-]{1,30})")
# Headings, and what is said beside the figures.
ABOUT = re.compile(
    r"#\s*$|#\s+\(B\)\s+\(elements\)|#\s+out-of-place\b|#\s*Using devices|# [nr]ccl-tests version"
    r"|# Collective test (?:starting|concluded)|#\s*Collective Test|# nccl-(?:headers|library)|# -{3,}"
)
ROW_LIKE = re.compile(r"(?:\s*\d+:)?\s*\d{1,18}\s+\d{1,18}\s")
NO_VALUE = ("N/A", "-")
PLACES = ("out-of-place", "in-place")
VALUES = ("time", "algbw", "busbw")
MAX_RANKS = 1_000_000
MAX_ROWS = 100_000


@dataclass(slots=True)
class MeasuredSize:
    """One size in one placement."""

    line: int
    place: str
    size: int
    time: Printed
    algbw: Printed
    busbw: Printed


@dataclass(slots=True)
class NcclTest:
    """One run of one test."""

    name: str = ""
    settings: str = ""
    ranks: dict[int, RankFacts] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    rows: list[MeasuredSize] = field(default_factory=list)
    redop: str = ""
    root: str = ""
    notes: list[tuple[int, str]] = field(default_factory=list)
    damaged: UnreadLines = field(default_factory=lambda: UnreadLines("cannot be read", Severity.WARNING))


def sniff(head: bytes) -> bool:
    """The header of the table."""
    lines = [line.partition(b"#")[2][:500].split() for line in head.split(b"\n") if b"algbw" in line]
    return any(words[:3] == [*HEADER_WORDS[:3]] and {*HEADER_WORDS} <= {*words} for words in lines)


def read(source: Source) -> Iterator[Reading]:
    """For each test in the file the figures with its first rank, and one more reading for every other rank."""
    unread = UnreadLines()
    yield from unread.told_with_last(_all_readings(source, unread), source)


def _all_readings(source: Source, unread: UnreadLines) -> Iterator[Reading]:
    test = NcclTest()
    tests = 0
    for line, text in source.lines():
        if not text:
            continue
        mark = text.find("#")
        comment = text[mark:] if 0 <= mark <= 20 else ""  # launchers set a rank before each line
        if SETTINGS.match(comment) and test.rows:
            yield from _readings(source, test)
            test = NcclTest()
        if not _look(source, test, line, comment, text):
            (test.damaged if ROW_LIKE.match(text) else unread).add(line)
        tests += 1 if test.columns else 0
        if AVERAGE.match(comment) and test.rows:
            yield from _readings(source, test)
            test = NcclTest()
    if test.rows:
        test.notes.append((test.rows[-1].line, "the output ends without its closing lines: the test did not finish"))
        yield from _readings(source, test)
    if not tests:
        raise source.bad("contains no table of nccl-tests")


def _look(source: Source, test: NcclTest, line: int, comment: str, text: str) -> bool:
    """Whether the line says something that is kept, or nothing that has to be."""
    is_named = (named := NAMED.search(text)) is not None and len(text) < 2000
    if is_named and named:
        test.name = named["name"]
    if settings := SETTINGS.match(comment):
        test.settings = settings[1].strip()
    elif rank := RANK.match(comment):
        _take_rank(source, test, line, rank)
    elif columns := COLUMNS.match(comment):
        test.columns = columns["rest"].split()
    elif wrong := OUT_OF_BOUNDS.match(comment):
        if int(wrong[1]) or wrong[2] == "FAILED":
            test.notes.append((line, f"{wrong[1]} values out of bounds: the results are wrong"))
    elif average := AVERAGE.match(comment):
        _check_average(test, line, number(average[1]))
    elif not comment and test.columns and (row := ROW.fullmatch(text)):
        return _take_row(source, test, line, row)
    else:
        return is_named or bool(ABOUT.match(comment)) or not text.strip()
    return True


def _take_rank(source: Source, test: NcclTest, line: int, match: re.Match[str]) -> None:
    rank = int(match["rank"])
    if len(test.ranks) >= MAX_RANKS:
        raise source.bad(f"more than {MAX_RANKS} ranks", line)
    if rank in test.ranks:
        test.notes.append((line, f"rank {rank} is listed twice"))
    device = f"{match['device']} {match['model'].strip()}".strip()
    test.ranks[rank] = RankFacts(match["host"], int(match["pid"]), rank=rank, devices=device, source=str(source))


def _take_row(source: Source, test: NcclTest, line: int, match: re.Match[str]) -> bool:
    """Whether all its cells could be read."""
    cells = match["rest"].split()
    if len(cells) < len(test.columns):
        return False  # output of something else, or a row cut off
    if len(test.rows) > MAX_ROWS:
        raise source.bad(f"more than {MAX_ROWS} sizes", line)
    size, places = int(match["size"]), iter(PLACES)
    current: dict[str, Printed] = {}
    place = ""
    for column, cell in zip(test.columns, cells, strict=False):
        if column in ("redop", "root"):
            setattr(test, column, cell)
        elif column in ("time", "cputime"):
            place, current = next(places, "again"), {}
        value = number(cell)
        if column in ("time", "cputime", "algbw", "busbw") and value is not None:
            current["time" if column == "cputime" else column] = value
        if column == "busbw" and current.keys() == set(VALUES):
            test.rows.append(MeasuredSize(line, place, size, *(current[name] for name in VALUES)))
        if column == "#wrong" and (wrong := number(cell)) is not None and wrong.value > 0:
            test.notes.append((line, f"{wrong.value} wrong values {place} at {size} bytes"))
    words = ("redop", "root", "type", "iters")
    return len(cells) == len(test.columns) and all(
        column in words or cell in NO_VALUE or number(cell) is not None
        for column, cell in zip(test.columns, cells, strict=True)
    )


def _readings(source: Source, test: NcclTest) -> Iterator[Reading]:
    _check_rows(test)
    facts = [test.ranks[rank] for rank in sorted(test.ranks)] or [RankFacts(rank=source.hints.rank, source=str(source))]
    hosts = list(dict.fromkeys(rank_facts.host for rank_facts in facts))
    for rank_facts in facts:
        rank_facts.world_size, rank_facts.command = len(test.ranks) or None, f"{_name(test)}_perf" if test.name else ""
    first = Reading(facts[0])
    for row in test.rows:
        first.figures += _figures(_name(test), row)
    first.notes = [Note(text, Severity.WARNING, source.at(line)) for line, text in test.notes]
    about = f"{_name(test)}: {len(test.ranks)} ranks on {len(hosts)} hosts; {test.settings}".rstrip("; ")
    first.notes += test.damaged.notes(source)
    first.notes.append(Note(about, where=str(source)))
    yield first
    yield from (Reading(rank_facts) for rank_facts in facts[1:])


def _figures(name: str, row: MeasuredSize) -> Iterator[Figure]:
    series = f"{name} {row.place}"
    yield Figure(series, "time", float(row.time.value * 1000), "ns", float(row.size), "bytes", "mean")
    yield Figure(series, "algbw", float(row.algbw.value * 10**9), "bytes/s", float(row.size), "bytes", "mean")
    yield Figure(series, "busbw", float(row.busbw.value * 10**9), "bytes/s", float(row.size), "bytes", "mean")


def _kinds(test: NcclTest) -> list[str]:
    """The ways in which the test's bus bandwidth can have been counted."""
    if test.name in FACTORS:
        return [FACTORS[test.name]]
    if test.root not in ("", "-1"):
        return [ONCE, ALL_RANKS]
    return [ALL_RANKS, ONCE] if test.redop in ("none", "") else [ALL_REDUCE, ALL_RANKS]


def _fits(row: MeasuredSize, kind: str, ranks: int) -> bool:
    return row.busbw.meets(*row.algbw.times(Decimal(factor(kind, ranks))).ends)


def _name(test: NcclTest) -> str:
    """The test's name as printed or, from old versions that do not print it, as its numbers tell."""
    if test.name:
        return test.name
    ranks, reduces = len(test.ranks), test.redop not in ("none", "")
    kinds = [kind for kind in _kinds(test) if ranks and all(_fits(row, kind, ranks) for row in test.rows)]
    if len(kinds) == 1 and reduces and test.root in ("", "-1"):
        return {ALL_REDUCE: "all_reduce", ALL_RANKS: "reduce_scatter"}[kinds[0]]
    return "collective with root" if test.root not in ("", "-1") else "collective"


def _check_rows(test: NcclTest) -> None:
    ranks = len(test.ranks)
    for row in test.rows:
        low, high = (end / 1000 for end in ratio(Printed(Decimal(row.size), ZERO), row.time))
        if not row.algbw.meets(low, high):
            text = f"{row.size} bytes in {row.time.value} us is not {row.algbw.value} GB/s ({row.place})"
            test.notes.append((row.line, text))
        if ranks and not any(_fits(row, kind, ranks) for kind in _kinds(test)):
            both = f"a bus bandwidth of {row.busbw.value} GB/s does not fit {row.algbw.value} GB/s"
            text = f"{both} on {ranks} ranks ({row.place})"
            test.notes.append((row.line, text))


def _check_average(test: NcclTest, line: int, average: Printed | None) -> None:
    if average is None or not test.rows:
        return
    low, high = (sum(ends, ZERO) / len(test.rows) for ends in zip(*(row.busbw.ends for row in test.rows), strict=True))
    if not average.meets(low, high):
        middle = (low + high) / 2
        test.notes.append((line, f"the bus bandwidths average {middle:.4g} GB/s, but {average.value} GB/s is printed"))
