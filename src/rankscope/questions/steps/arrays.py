"""The steps of one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rankscope.analyse.step_values import Under

Array = Any  # of numpy


@dataclass(slots=True)
class RankSteps:
    """One rank's steps. `own` parts and `exposed_ns` add up to `length_ns`."""

    rank: int
    host: str
    number: Array
    flagged: Array  # the recorder's own warm-up flag
    values: Mapping[str, Array]  # begin_ns, length_ns, exposed_ns, and those of the properties below
    slots: list[str] = field(default_factory=list)  # steps of a pattern: which collective each gap comes before

    @property
    def begin_ns(self) -> Array:
        return self.values["begin_ns"]

    @property
    def length_ns(self) -> Array:
        return self.values["length_ns"]

    @property
    def exposed_ns(self) -> Array:
        return self.values["exposed_ns"]

    @property
    def own_ns(self) -> Array:
        return self.length_ns - self.exposed_ns

    @property
    def own(self) -> Mapping[str, Array]:
        """By part, without what was blocked in collectives."""
        return Under(self.values, "own ")

    @property
    def of_which(self) -> Mapping[str, Array]:
        """Times within the parts, or beside them."""
        return Under(self.values, "of which ")

    @property
    def counts(self) -> Mapping[str, Array]:
        return Under(self.values, "count ")

    @property
    def gaps(self) -> Mapping[str, Array]:
        """Steps of a pattern: the time before each of its collectives, by their places in `slots`."""
        return Under(self.values, "gap ")
