"""How long things take, added up so that blocks, ranks and kinds can be joined."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rankscope.model import Column, Unit

STATISTICS = (
    Column("calls", Unit.COUNT, "Calls"),
    Column("total_ns", Unit.NS, "Time"),
    Column("share", Unit.SHARE, "Share"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("min_ns", Unit.NS, "Min"),
    Column("max_ns", Unit.NS, "Max"),
    Column("stdev_ns", Unit.NS, "Std dev"),
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """What is kept of many lengths so that it can be joined with others."""

    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
    deviations_ns2: float  # sum of squared differences from the mean

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.calls

    @property
    def stdev_ns(self) -> float:
        return math.sqrt(self.deviations_ns2 / self.calls)

    def joined(self, other: Lengths) -> Lengths:
        """Both together; squared deviations add up, and so does what the means differ by."""
        calls = self.calls + other.calls
        apart = (self.mean_ns - other.mean_ns) ** 2 * self.calls * other.calls / calls
        return Lengths(
            calls,
            self.total_ns + other.total_ns,
            min(self.min_ns, other.min_ns),
            max(self.max_ns, other.max_ns),
            self.deviations_ns2 + other.deviations_ns2 + apart,
        )


def join(into: dict[str, Lengths], more: Iterable[tuple[str, Lengths]]) -> dict[str, Lengths]:
    """Add lengths under their keys."""
    for key, lengths in more:
        into[key] = into[key].joined(lengths) if key in into else lengths
    return into


def statistics(found: Mapping[str, Lengths]) -> list[tuple[str, tuple[int | float, ...]]]:
    """The cells of the columns STATISTICS, the most time first."""
    total_ns = sum(one.total_ns for one in found.values())
    ordered = sorted(found.items(), key=lambda pair: (-pair[1].total_ns, pair[0]))
    return [(key, _cells(lengths, total_ns)) for key, lengths in ordered]


def _cells(one: Lengths, all_ns: int) -> tuple[int | float, ...]:
    share = one.total_ns / all_ns if all_ns else 0.0
    return one.calls, one.total_ns, share, one.mean_ns, one.min_ns, one.max_ns, one.stdev_ns
