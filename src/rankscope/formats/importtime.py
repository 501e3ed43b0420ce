"""Reads what `python -X importtime` writes: how long each module took to import, with and without what it imports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rankscope.formats.event_columns import OtherLines
from rankscope.formats.source import Source
from rankscope.model.records import Layer, Note, RangeTally, RankFacts, Reading, Severity, Tally

LINE = re.compile(r"import time: +(?P<own>\d{1,15}) \| +(?P<all>\d{1,15}) \| (?P<depth> *)(?P<name>\S[^\n]{0,500})")
HEADER = re.compile(r"import time: self \[us\] \| cumulative \| imported package")
SNIFFED = re.compile(rb"(?m)^import time: (?: *\d+ \| +\d+ \| +\S|self \[us\] \| cumulative \| imported package)")
MAX_DEPTH = 1_000  # Python itself gives up there
MAX_MODULES = 200_000
US = 1000


@dataclass(slots=True)
class Imports:
    """The modules of one process; a module's own imports are written before it, one step deeper."""

    line: int
    modules: list[tuple[str, int, int, int]] = field(default_factory=list)  # name, own µs, cumulative µs, parent
    open: list[tuple[int, int]] = field(default_factory=list)  # depth and place of modules whose parent is to come
    problems: list[tuple[int, str]] = field(default_factory=list)


def sniff(head: bytes) -> bool:
    """A line of Python's import timer."""
    return SNIFFED.search(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """One reading for each process: every header begins another one."""
    other = OtherLines(source)
    yield from other.told_with_last(_processes(source, other))


def _processes(source: Source, other: OtherLines) -> Iterator[Reading]:
    current: Imports | None = None
    for line, text in source.lines():
        if HEADER.fullmatch(text):
            if current is not None and current.modules:
                yield _reading(source, current)
            current = Imports(line)
        elif match := LINE.fullmatch(text):
            current = current or Imports(line)
            _take(source, current, line, match)
        else:
            other.add(line, text)
    if current is None or not current.modules:
        raise source.bad("contains no import times")
    yield _reading(source, current)


def _take(source: Source, imports: Imports, line: int, match: re.Match[str]) -> None:
    depth, own_us, cumulative = len(match["depth"]) // 2, int(match["own"]), int(match["all"])
    if depth > MAX_DEPTH or len(imports.modules) >= MAX_MODULES:
        raise source.bad("more or deeper imports than Python allows", line)
    place, inside_us, children = len(imports.modules), 0, 0
    while imports.open and imports.open[-1][0] > depth:
        _, child = imports.open.pop()
        name, child_own, child_all, _ = imports.modules[child]
        imports.modules[child] = (name, child_own, child_all, place)
        inside_us, children = inside_us + child_all, children + 1
    imports.modules.append((match["name"].rstrip(), own_us, cumulative, -1))
    imports.open.append((depth, place))
    _check(imports, line, match["name"], (own_us, cumulative, inside_us, children))


def _check(imports: Imports, line: int, name: str, times: tuple[int, int, int, int]) -> None:
    own_us, cumulative, inside_us, children = times
    if cumulative < own_us:
        imports.problems.append((line, f"{name}: {own_us} us self time is more than {cumulative} us cumulative"))
    elif abs(own_us + inside_us - cumulative) > 1 + children:  # each figure is rounded to the microsecond
        text = f"{name}: {own_us} us self time plus {inside_us} us in what it imports is not {cumulative} us"
        imports.problems.append((line, text))


def _reading(source: Source, imports: Imports) -> Reading:
    facts = RankFacts(rank=source.hints.rank, source=str(source))
    reading = Reading(facts)
    for name, own_us, cumulative, parent in imports.modules:
        within = imports.modules[parent][0] if parent >= 0 else ""
        reading.tallies.append(Tally(Layer.IMPORT, name, 1, float(own_us * US), phase="imports"))
        reading.range_tallies.append(
            RangeTally(Layer.IMPORT, name, 1, float(cumulative * US), phase="imports", kind="whole", within=within)
        )
    reading.notes = [Note(text, Severity.WARNING, source.at(line)) for line, text in imports.problems]
    return reading
