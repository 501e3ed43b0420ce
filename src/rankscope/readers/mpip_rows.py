"""The rows of mpiP's report, as printed."""

from __future__ import annotations

from dataclasses import dataclass

NUMBER = r"(\d{1,18}(?:\.\d{1,12})?(?:e[+-]\d{1,2})?)"


@dataclass(frozen=True, slots=True)
class Site:
    """A callsite on one task."""

    call: str
    number: int
    rank: int


@dataclass(slots=True)
class TaskTime:
    """A line of the section MPI Time."""

    line: int
    app_s: str
    mpi_s: str
    percent: str


@dataclass(slots=True)
class Timed:
    """Calls and times of a callsite on one task."""

    line: int
    site: Site
    calls: int
    max_ms: str
    mean_ms: str
    min_ms: str


@dataclass(slots=True)
class Sent:
    """Messages of a callsite on one task."""

    line: int
    calls: int
    most: str
    mean: str
    least: str
    total: str


@dataclass(slots=True)
class Sum:
    """A callsite over all tasks: the mean in the statistics, the total in the section Aggregate Time."""

    line: int
    call: str
    number: int
    calls: int
    value: str
