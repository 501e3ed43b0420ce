"""What of a job is watched from outside: metrics, and their values at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How values of one metric belong together."""

    GAUGE = "gauge"
    COUNTER = "counter"  # goes up until the job begins anew
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric by OpenTelemetry's conventions: dots in the name, the unit as UCUM writes it."""

    name: str
    unit: str  # s, By, 1 (a ratio), {rank} and the like (a count)
    kind: Kind
    about: str  # what it is and how it is worked out, in one sentence
    attributes: tuple[str, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The name that OpenTelemetry's rules give it in Prometheus."""
        ratio = "_ratio" if self.kind is Kind.GAUGE else ""
        unit = {"s": "_seconds", "By": "_bytes", "1": ratio}.get(self.unit, "")
        return self.name.replace(".", "_") + unit + ("_total" if self.kind is Kind.COUNTER else "")


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values lie up to each bound, and above the last one."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Point:
    """The value of a metric, with a word for each of its attributes."""

    metric: Metric
    value: float | Histogram
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job at one moment, as far as it is known."""

    run: str  # its name
    started_ns: int  # Unix time
    at_ns: int
    step: int | None  # the newest that all ranks have completed
    points: list[Point]


class Undelivered(Exception):
    """A destination did not take the values, and why, in a line."""


class Unusable(Exception):
    """A destination that cannot be used at all: a library that is missing, an address that is none."""
