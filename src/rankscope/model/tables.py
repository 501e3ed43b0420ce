"""What questions ask, and the tables they answer with: all that a report sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Protocol

Cell = str | int | float | bool | None


class Wrong(ValueError):
    """What was asked for cannot be done, in one line."""


class Unit(Enum):
    """What a column holds: decides how a report prints it, never what it means."""

    NAME = "name"
    COUNT = "count"
    NS = "ns"
    BYTES = "bytes"
    SHARE = "share"  # 0..1
    NUMBER = "number"
    RATE = "bytes/s"


@dataclass(frozen=True, slots=True)
class Column:
    name: str  # with the unit, as in total_ns
    unit: Unit
    title: str = ""  # what a reader of the report sees
    formula: str = ""  # what it is and how it is worked out, in one sentence of Markdown; "" of plain names only


@dataclass(slots=True)
class Table:
    """What an analysis returns and all that a report sees."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: list[tuple[Cell, ...]]
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    vertical: bool = False  # few rows, each better read as a list of its columns
    verbatim: bool = False  # one column of lines that are shown as they are: another tool's layout


@dataclass(slots=True)
class Words:
    """A column of few different words: the value of row i is values[codes[i]]."""

    codes: Any  # array of int
    values: Sequence[str]


# ---------------------------------------------------------------------------------------------------------------------
# What is kept of the events of one process so that questions over all ranks need not look at them again.
@dataclass(frozen=True, slots=True)
class ActivitySum:
    """The GPU activities of one name."""

    name: str
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
    deviations_ns2: float  # sum of squared differences from the mean


@dataclass(frozen=True, slots=True)
class DeviceSum:
    """How long one GPU was busy, with what: lengths of unions of intervals."""

    device: str
    span_ns: int
    busy_ns: int
    compute_ns: int
    comm_ns: int
    copy_ns: int  # copies and memsets
    compute_or_comm_ns: int


@dataclass(frozen=True, slots=True)
class GapSum:
    """The pauses of one stream that have one cause."""

    place: int  # streams in the order in which they are first seen
    stream: str
    cause: str
    gaps: int
    idle_ns: int
    median_ns: float
    max_ns: int


@dataclass(frozen=True, slots=True)
class RangeSum:
    """The ranges of one name on all threads (or streams) of a process."""

    layer: str
    domain: str
    name: str
    calls: int
    total_ns: int
    own_ns: int  # while it is the one begun last of those that go on
    min_ns: int
    max_ns: int
    activities: int | None  # launched inside; None where launches are not known
    own_activities: int | None
    gpu_ns: int | None
    own_gpu_ns: int | None


TRACE_TABLES: dict[str, type] = {
    "activity_sums": ActivitySum,
    "device_sums": DeviceSum,
    "gap_sums": GapSum,
    "range_sums": RangeSum,
}


Summarise = Callable[[Iterable[Mapping[str, Any]]], Mapping[str, Mapping[str, Any]]]


class Tables(Protocol):
    """What an analysis is given: the tables ranks, tallies, events, steps, marks, … of store/columns.py, behind SQL."""

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def columns(self, sql: str, parameters: Sequence[Any] = ()) -> Mapping[str, Any]:
        """The same for many rows: arrays, and Words where they are text."""
        ...

    def derive(self, summarise: Summarise) -> None:
        """Make the tables of TRACE_TABLES by giving the events of each process to a function; once for each run."""
        ...


def names_of(record: type) -> tuple[str, ...]:
    """The column names a record type has in the tables."""
    return tuple(f.name for f in fields(record))


def sql_list(words: Iterable[str]) -> str:
    """The words as SQL wants them behind IN."""
    return "(" + ", ".join(f"'{word}'" for word in words) + ")"
