"""What pages are made of: questions with their tables, charts and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rankscope.model import Cell, Table, Unit, Words


# ---------------------------------------------------------------------------------------------------------------------
# What timelines are made of: processes, tracks and slices.
@dataclass(frozen=True, slots=True)
class Track:
    """One line of a timeline."""

    number: int  # from 1, over all processes
    process: int
    kind: str  # "thread", "ranges", "stream", "communicator", "steps" or "phases"
    name: str
    lane: int = 0  # of those that overlap without lying within each other


@dataclass(frozen=True, slots=True)
class Actor:
    """One process of a timeline."""

    process: int
    name: str
    host: str
    pid: int


@dataclass(slots=True)
class Slices:
    """Some slices of one process, as columns in the order in which a timeline opens them."""

    process: int
    track: Any  # numbers of tracks
    name: Words
    start_ns: Any  # Unix time on the run's common clock
    end_ns: Any  # less than start_ns where it has not ended
    flow: Any  # the same number for what belongs together on several processes, 0: none
    bytes: Any  # 0: none, or not known
    new_tracks: list[Track] = field(default_factory=list)  # that no slices before had


# ---------------------------------------------------------------- pictures
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


# ---------------------------------------------------------------------------------------------------------------------
# What the first screen about a run is made of: the answer before any table.
@dataclass(frozen=True, slots=True)
class Bar:
    """One part of a whole."""

    label: str
    ns: float
    share: float  # of the whole
    depth: int = 0  # 1: a part of the last bar of depth 0


@dataclass(frozen=True, slots=True)
class Bars:
    """Where a time goes: its parts add up to it."""

    title: str
    figures: Sequence[tuple[str, Cell, Unit]]  # beside the title
    bars: Sequence[Bar]
    table: str  # that has the numbers
    note: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding: what to do, what it saves, and what proves it."""

    level: str  # one of LEVELS in questions/run/screen.py
    title: str
    action: str
    proofs: Sequence[tuple[str, str]]  # a table, and what its rows say
    rule: str
    saved_ns: float | None = None
    share: float | None = None  # of the run


@dataclass(frozen=True, slots=True)
class Screen:
    """What ran and whether all of it was seen, where its time goes, what to do, and how its ranks compare."""

    name: str
    facts: Sequence[str]  # how long, how many ranks, how they ended
    problems: Sequence[str]  # what is missing or went wrong; it comes before all else
    completeness: str
    bars: Bars | None
    run: Bars | None
    advice: Sequence[Advice]
    verdict: str  # in place of advice
    ranks: Table | None  # few rows: each rank, or those that matter
    ranks_note: str
    not_checked: Sequence[str]
    tables: Sequence[str]  # to go on with
    rank_count: int
    step_ns: float | None  # mean steady step; None: the run has none
    running: bool
