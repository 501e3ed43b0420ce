"""What pages are made of: questions with their tables, charts and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rankscope.model import Table, Unit

ChartKind = Literal["bars", "heat", "sizes", "top", "icicle"]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of a table: which of its columns are drawn, and how. What the kinds look like: docs/html.md."""

    kind: ChartKind
    table: str  # name of a table of the same section
    title: str  # a sentence with the number in it
    label: str  # the column that names a row
    parts: tuple[str, ...]  # the columns that are drawn: bars are stacked of them, in this order
    value_axis: str = ""  # what the values are, without the unit
    row_axis: str = ""  # what the rows are
    orders: tuple[str, ...] = ()  # columns by which the rows can be ordered; the first is the order they come in
    series: str = ""  # kind "sizes": the column that tells the colours apart


@dataclass(slots=True)
class Section:
    """One question about a run: what answers it in words, in pictures and in tables."""

    name: str
    question: str
    tables: list[Table]
    charts: list[Chart] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lead: str = ""  # the answer in a sentence, of a question with which the page begins


@dataclass(frozen=True, slots=True)
class Curve:
    """One series of a graph: what was measured, and the law through it with its interval, where there is one."""

    name: str
    points: Sequence[tuple[float, float]]  # all of them, repeats too
    fitted: Sequence[tuple[float, float, float, float]] = ()  # scale, value, low, high
    published: bool = False  # by somebody else


@dataclass(frozen=True, slots=True)
class Graph:
    """A quantity over a scale, both in logarithms."""

    title: str  # a sentence with the number in it
    scale_axis: str
    value_axis: str
    unit: Unit
    curves: Sequence[Curve]


@dataclass(slots=True)
class Page:
    """All that a page about one run shows: the top, then the questions."""

    title: str
    overview: Table
    coverage: Table
    findings: Table
    sections: list[Section]
    notes: list[str] = field(default_factory=list)
