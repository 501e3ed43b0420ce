"""The steps of one rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.questions.disk_matrix import ITEM_BYTES, Scratch, read_at, write_at

# ---------------------------------------------------------------------------------------------------------------------
# The columns of one rank's steps: in memory, or of a large run in a file without a name, read when they are used.
Array = Any  # of numpy, each value of 8 bytes


@dataclass(slots=True)
class StepFile:
    """The steps of all ranks, one rank after the other, of each its columns one after the other."""

    scratch: Scratch = field(default_factory=Scratch)
    columns: dict[str, tuple[int, Any]] = field(default_factory=dict)  # by name: which it is, and of what kind

    def add(self, values: Mapping[str, Array]) -> Stored:
        """One more rank; all ranks have the same columns."""
        self.columns = self.columns or {name: (at, column.dtype) for at, (name, column) in enumerate(values.items())}
        count = len(next(iter(values.values())))
        place = self.scratch.room(len(values) * count * ITEM_BYTES)
        missing = np.zeros(count)
        columns = {name: np.asarray(values.get(name, missing), kind) for name, (_, kind) in self.columns.items()}
        packed = b"".join(column.tobytes() for column in columns.values())
        write_at(self.scratch.number, memoryview(packed), place)
        return Stored(self, place, count)


@dataclass(frozen=True, slots=True, eq=False)
class Stored(Mapping[str, Array]):
    """The columns of one rank in such a file."""

    file: StepFile
    place: int
    count: int

    def __getitem__(self, name: str) -> Array:
        return self.some(name, 0, self.count)

    def some(self, name: str, first: int, last: int) -> Array:
        """The values of a column from the first to the last, without it."""
        column, kind = self.file.columns[name]
        values = np.empty(last - first, kind)
        place = self.place + (column * self.count + first) * ITEM_BYTES
        read_at(self.file.scratch.number, values.view(np.uint8).data, place)
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self.file.columns)

    def __len__(self) -> int:
        return len(self.file.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.file.columns


@dataclass(frozen=True, slots=True, eq=False)
class Under(Mapping[str, Array]):
    """Of some columns those whose names begin alike, without that beginning."""

    whole: Mapping[str, Array]
    beginning: str

    def __getitem__(self, name: str) -> Array:
        return self.whole[self.beginning + name]

    def __iter__(self) -> Iterator[str]:
        return (name[len(self.beginning) :] for name in self.whole if name.startswith(self.beginning))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return f"{self.beginning}{name}" in self.whole


def some_of(values: Mapping[str, Array], name: str, first: int, last: int) -> Array:
    """Some values of a column, wherever it is."""
    return values.some(name, first, last) if isinstance(values, Stored) else values[name][first:last]


class Same:
    """Arrays that are equal become one: thousands of ranks number their steps alike."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], Array] = {}

    def __call__(self, values: Array) -> Array:
        return self._known.setdefault((values.dtype.str, values.tobytes()), values)


# ---------------------------------------------------------------- arrays
# of numpy


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
