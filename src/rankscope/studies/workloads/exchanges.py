"""What each rank gives to a collective and what it must get: values that tell by rank and place who is wrong.

All values are whole numbers so small that sums of float32 are exact in whatever order a library adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OPERATIONS = (
    "allreduce",
    "broadcast",
    "reduce",
    "allgather",
    "reduce_scatter",
    "alltoall",
    "gather",
    "scatter",
    "barrier",
)
PARTED = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter")  # the size is that of a part for each rank
PERIOD = 7  # values repeat after so many places
MARKS = 61  # and marks of ranks after so many ranks
ROOT = 0
ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Piece:
    """`count` values: (place % 7) × times + plus, the first place being `start`."""

    start: int
    count: int
    times: int
    plus: int

    def values(self) -> list[float]:
        """One period of them."""
        return [float((self.start + place) % PERIOD * self.times + self.plus) for place in range(PERIOD)]


@dataclass(frozen=True)
class Shape:
    """One collective as one rank sees it; the size is what nccl-tests call so."""

    operation: str
    rank: int
    world: int
    size_bytes: int  # as asked for

    @property
    def elements(self) -> int:
        """Of the whole: at least one, and of parted operations as many for each rank."""
        wanted = max(1, self.size_bytes // ELEMENT_BYTES)
        return self.part * self.world if self.operation in PARTED else wanted

    @property
    def part(self) -> int:
        return max(1, self.size_bytes // ELEMENT_BYTES // self.world)

    @property
    def moved_bytes(self) -> int:
        """The size that is really used."""
        return 0 if self.operation == "barrier" else self.elements * ELEMENT_BYTES

    def given(self) -> list[Piece]:
        """What this rank gives."""
        if self.operation == "barrier" or (self.operation == "scatter" and self.rank != ROOT):
            return []
        count = self.part if self.operation in ("allgather", "gather") else self.elements
        return [Piece(0, count, 1, mark(self.rank))]

    def expected(self) -> list[Piece]:
        """What this rank must get; nothing where the operation gives it nothing."""
        total, part, mine = self.elements, self.part, self.rank * self.part
        if self.operation == "barrier" or (self.operation in ("reduce", "gather") and self.rank != ROOT):
            return []
        if self.operation in ("allreduce", "reduce"):
            return [Piece(0, total, self.world, all_marks(self.world))]
        if self.operation == "reduce_scatter":
            return [Piece(mine, part, self.world, all_marks(self.world))]
        if self.operation == "broadcast":
            return [Piece(0, total, 1, mark(ROOT))]
        if self.operation == "scatter":
            return [Piece(mine, part, 1, mark(ROOT))]
        start = mine if self.operation == "alltoall" else 0
        return [Piece(start, part, 1, mark(rank)) for rank in range(self.world)]


def mark(rank: int) -> int:
    return rank % MARKS + 1


def all_marks(world: int) -> int:
    return sum(mark(rank) for rank in range(world))


class Exchange:
    """One collective that is done again and again: reset, go, and look whether the result is right."""

    def __init__(self, backend: Any, shape: Shape) -> None:
        self.backend, self.shape, self.arrays = backend, shape, backend.arrays
        self.in_place = shape.operation in backend.IN_PLACE
        self.expected = self.filled(shape.expected())
        self.send = self.filled(shape.given())
        self.source = self.filled(shape.given()) if self.in_place else None
        self.receive = self.send if self.in_place else self.filled(shape.expected())
        self.result = self.receive

    def filled(self, pieces: Sequence[Piece]) -> Any:
        return self.arrays.filled([(piece.values(), piece.count) for piece in pieces])

    def reset(self) -> None:
        """So that what an earlier round has left cannot pass for the result of the next."""
        if self.in_place:
            self.arrays.copy(self.send, self.source)
        else:
            self.arrays.spoil(self.receive)

    def go(self) -> None:
        self.result = self.backend.carry_out(self.shape.operation, self.send, self.receive)

    def wrong(self) -> str:
        """The first value that is not what it must be; "" where all are right."""
        if not self.shape.expected():
            return ""
        at = self.arrays.unequal(self.result, self.expected)
        if at is None:
            return ""
        got, wanted = self.arrays.value(self.result, at), self.arrays.value(self.expected, at)
        sentence = (
            f"{self.shape.operation} of {self.shape.moved_bytes} bytes on rank {self.shape.rank} of {self.shape.world}"
        )
        return f"{sentence}: element {at} is {got:g}, not {wanted:g}"
