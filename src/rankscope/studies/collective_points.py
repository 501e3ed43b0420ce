"""Times of a collective at one size, as its ranks left them, and what nccl-tests would say of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankscope.analyse.bandwidth import rate
from rankscope.questions.collectives.operations import OPERATIONS, operation_of
from rankscope.studies.outcome import Outcome
from rankscope.studies.rows import by_place


@dataclass(frozen=True)
class Point:
    """One operation by one backend on so many ranks at one size; over all repeats."""

    operation: str
    backend: str
    ranks: int
    asked_bytes: int
    size_bytes: int
    calls: int
    first_ns: float  # by the slowest rank
    min_ns: float  # of calls by their slowest rank
    median_ns: float
    max_ns: float
    mean_ns: float  # over the calls and over the ranks, as nccl-tests have it

    @property
    def algorithm_rate(self) -> float | None:
        return rate(self.size_bytes, self.mean_ns)

    @property
    def bus_rate(self) -> float | None:
        """Nothing where no data goes anywhere: on one rank, and of operations without data."""
        return rate(self.size_bytes * bus_factor(self.operation, self.ranks), self.mean_ns)

    @property
    def first_ratio(self) -> float | None:
        return self.first_ns / self.median_ns if self.median_ns else None


def bus_factor(operation: str, ranks: int) -> float:
    """What bus bandwidth is of algorithm bandwidth, as nccl-tests define it."""
    return OPERATIONS[operation_of("", operation)].bus_factor(ranks)


def points(outcomes: Sequence[Outcome], operation: str) -> list[Point]:
    """Of all cells that are done, in their order, by size."""
    found = []
    for (backend, ranks), repeats in by_place(outcomes, "backend").items():
        for place in range(len(repeats[0].results[0]["sizes"])):
            found.append(point(operation, str(backend), int(ranks), repeats, place))
    return found


def point(operation: str, backend: str, ranks: int, repeats: Sequence[Outcome], place: int) -> Point:
    """The size at that place, over all repeats."""
    ours = [[rank["sizes"][place] for rank in outcome.results] for outcome in repeats]
    slowest = [float(max(times)) for one in ours for times in by_call(one)]
    means = [statistics.fmean(rank["times_ns"]) for one in ours for rank in one]
    first = [max(rank["first_ns"] for rank in one) for one in ours]
    some = ours[0][0]
    return Point(
        operation, backend, ranks, some["asked_bytes"], some["size_bytes"], len(slowest), statistics.median(first),
        min(slowest), statistics.median(slowest), max(slowest), statistics.fmean(means),
    )  # fmt: skip


def by_call(ranks: Sequence[dict[str, list[int]]]) -> Iterator[tuple[int, ...]]:
    """Of each timed call, how long each rank was in it."""
    return zip(*(rank["times_ns"] for rank in ranks), strict=True)
