"""What pages are made of: questions with their tables, charts and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rankscope.model.tables import Cell, Table, Unit, Words


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
ChartKind = Literal["bars", "heat", "sizes", "top", "icicle", "curve", "timeline", "intervals", "history"]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of a table: which columns are drawn, and how. What the kinds look like: docs/commands/html.md."""

    kind: ChartKind
    table: str  # name of a table of the same section
    title: str  # a sentence with the number in it
    label: str  # the column that names a row
    parts: tuple[str, ...]  # the columns that are drawn: bars are stacked of them, in this order
    value_axis: str = ""  # what the values are, without the unit
    row_axis: str = ""  # what the rows are
    orders: tuple[str, ...] = ()  # columns by which the rows can be ordered; the first is the order they come in
    series: str = ""  # kind "sizes": the column that tells the colours apart
    count: str = ""  # kind "sizes": the column that counts operations, whose sum the legend has for each of `series`
    lines: tuple[tuple[str, float], ...] = ()  # kind "curve": values of the whole run, by their names
    groups: str = ""  # kind "bars": of the section's groups the one that a selection of steps is summed up from


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a drawn timeline."""

    rank: str
    kind: str  # that of its Track, or "parts"
    name: str


@dataclass(slots=True)
class Blocks:
    """Events or, where they are too short for a level of detail, neighbours of them, by line and start."""

    line: Any
    start_ns: Any  # since the timeline's begin
    end_ns: Any
    name: (
        Any  # place in the timeline's names, of steps their number; of several events the one that takes the most time
    )
    count: Any  # of events in it
    busy_ns: Any  # sum of their lengths

    def __len__(self) -> int:
        return len(self.line)


@dataclass(frozen=True, slots=True)
class Level:
    """What is drawn of a stretch of time: events, and blocks of neighbours that are shorter than the resolution."""

    begin_ns: int
    end_ns: int
    resolution_ns: int  # 0: every event
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class DrawnTimeline:
    """Ranks × time in few enough blocks for a page: the whole run coarsely, some steps finely."""

    lines: Sequence[Line]
    names: Sequence[str]
    kinds: Sequence[str]  # of each name: "communication", "copy", of a part of the step its column, or ""
    levels: Sequence[Level]  # the coarsest first; a later one stands for its stretch
    end_ns: int  # since the begin


@dataclass(slots=True)
class Section:
    """One question about a run: what answers it in words, in pictures and in tables."""

    name: str
    question: str
    tables: list[Table]
    charts: list[Chart] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    group: str = ""  # of questions, as the navigation calls it
    lead: str = ""  # the answer in a sentence, of a question with which the page begins
    timeline: DrawnTimeline | None = None  # what its chart of kind "timeline" draws
    groups: list[Table] = field(default_factory=list)  # parts by group of steps: for selections, not to be looked at
    graphs: Sequence[Graph] = ()
    unfolded: bool = False  # its tables are what it has to show


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
    steps_share: float | None = None  # of the time of its steps


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
    imbalance: float | None = None  # largest ÷ mean of the ranks' own time; None: there is no more than one
    largest: Sequence[tuple[str, str, float]] = ()  # of a run with steps: what it is, its name, its share of such


# ---------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Figure:
    """One key figure."""

    label: str
    value: str
    meaning: str
    detail: str = ""  # in small letters below it


@dataclass(slots=True)
class Page:
    """All that a page about one run shows: the first screen, then the questions."""

    title: str
    screen: Screen
    figures: Sequence[Figure]
    overview: Table
    coverage: Table
    sections: list[Section]
    notes: list[str] = field(default_factory=list)
    first: str = ""  # the section whose picture is on the first screen


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run of a list."""

    name: str  # of its folder
    title: str  # the program, or the tools whose files were loaded
    state: str  # running, ended, loaded, or why it cannot be read
    when: str
    facts: Sequence[str] = ()  # how long, how many ranks, how they ended
    step_ns: float | None = None
    curve: Sequence[float] = ()  # step times from the first to the last
    finding: str = ""


@dataclass(frozen=True, slots=True)
class Points:
    """A ranked list on the first screen, each entry of which opens in place."""

    name: str
    question: str
    entries: Sequence[Advice]
    otherwise: str = ""  # where there is no entry


@dataclass(slots=True)
class AnswerPage:
    """A page about several runs: the answer in a sentence, key figures, what it consists of, then the questions."""

    title: str  # what kind of page it is
    name: str
    facts: Sequence[str]
    verdict: str
    figures: Sequence[Figure]
    points: Sequence[Points]
    sections: list[Section]
    problems: Sequence[str] = ()
    first: str = ""  # the section whose picture is on the first screen
