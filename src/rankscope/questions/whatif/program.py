"""A job as operations that wait for each other, and how long its steps take when they are replayed.

An operation starts `gap_ns` after the last of those that it follows has ended, and then takes `own_ns`; one of a
collective takes that from the moment at which the last member it waits for has come. Operations are kept in blocks: all
of a block depend on earlier blocks only, so that a replay is a few array operations for each block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from rankscope.questions.collectives.operations import Waits

Array = Any  # of numpy
NOTHING = -1  # what an operation follows that begins with the step
BETWEEN = -1  # instead of a part: the rank's own time between operations


class Join(IntEnum):
    """Whom the operations of a block wait for, beside those that they follow."""

    NOBODY = 0
    ALL = 1
    ROOT = 2
    AT_ROOT = 3  # the root for all
    LOWER = 4
    BELOW = 5


JOINS = {
    Waits.ALL_FOR_ALL: Join.ALL,
    Waits.ALL_FOR_ROOT: Join.ROOT,
    Waits.ROOT_FOR_ALL: Join.AT_ROOT,
    Waits.FOR_LOWER: Join.LOWER,
    Waits.FOR_BELOW: Join.BELOW,
}


@dataclass(slots=True)
class Durations:
    """What a what-if changes: N operations, each in B steps (1 where steps follow each other in the operations)."""

    gap_ns: Array  # N x B: of the rank itself, before it starts
    own_ns: Array  # N x B


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the critical path, in ns since the replay began."""

    rank: int  # its place
    part: int  # BETWEEN: the rank's own time before the operation
    transfers: bool
    operation: int
    begin: float
    end: float


@dataclass(slots=True)
class Program:
    """N operations in blocks, in an order in which they can be worked out."""

    ranks: Sequence[int]
    first: Array  # of each block its first operation, and N
    join: Array  # of each block
    root: Array  # of each block: place of the root in it
    rank: Array  # N: place among the ranks
    follows: Array  # N x P: operations, or NOTHING
    time: Durations  # as recorded
    part: Array  # N: place in parts
    parts: Sequence[str]
    transfers: Array  # N: its own time is transfer, not work of the rank
    peers: Array  # N: equal for operations that do the same work on different ranks
    peers_of_stages: Array  # N: the same, whatever their stage
    stage: Array  # N: -1 where there are none
    numbers: Array  # S: of the steps
    recorded_ns: Array  # S: step times
    begins: Array | None = None  # S x ranks: the operations with whose end a step begins; None: B steps, from 0
    ends: Array | None = None  # S x ranks: and ends
    step: Array | None = None  # N: place among the steps, where they follow each other
    places: Array | None = None  # N: equal for operations that are the same in different steps, likewise
    passes: Array | None = None  # N x 2: forward and backward passes of a pipeline in `gap_ns`, likewise
    causes: Mapping[str, Array] = field(default_factory=dict)  # S x ranks: what each takes of a rank's own time
    own_parts: Mapping[str, Array] = field(default_factory=dict)  # ranks: what its own time is made of
    began_ns: Array | None = None  # S: when each step began on the first rank, on the run's common clock
    uneven: bool = False  # micro-batches differ in what they cost

    def replay(self, time: Durations | None = None) -> Array:
        """When each operation ends: N + 1 x B, the last row being the beginning."""
        time = time or self.time
        ends = np.zeros((len(self.rank) + 1, time.gap_ns.shape[1]))
        simple = self.follows.shape[1] == 1
        edges = self.first.tolist()
        for at, (low, high, join) in enumerate(zip(edges, edges[1:], self.join.tolist(), strict=False)):
            follows = self.follows[low:high]
            start = ends[follows[:, 0]] if simple else ends[follows].max(axis=1)
            start += time.gap_ns[low:high]
            if join:
                start = self.joined(start, join, int(self.root[at]))
            ends[low:high] = start + time.own_ns[low:high]
        return ends

    @staticmethod
    def joined(start: Array, join: int, root: int) -> Array:
        """From when on each member is not held up any more."""
        if join == Join.ALL:
            return start.max(axis=0, keepdims=True)
        if join == Join.ROOT:
            return np.maximum(start, start[root])
        if join == Join.AT_ROOT:
            joined_ns = start.copy()
            joined_ns[root] = start.max(axis=0)
            return joined_ns
        highest = np.maximum.accumulate(start, axis=0)
        if join == Join.BELOW:
            joined_ns = start.copy()
            joined_ns[1:] = np.maximum(start[1:], highest[:-1])
            return joined_ns
        return highest

    def begun_as_ended(self, time: Durations, ends: Array) -> Durations:
        """The same with the ranks as far apart in the first step as a replay has them in the last: had it always been
        so, they would not have begun as they did."""
        assert self.begins is not None
        gap, last = time.gap_ns.copy(), ends[self.begins[-1], 0]
        gap[self.begins[0], 0] = last - last.min()
        return Durations(gap, time.own_ns)

    def step_times(self, ends: Array) -> Array:
        """S: how long each step takes; where ranks have steps of their own, their mean."""
        if self.begins is None or self.ends is None:
            return ends[:-1].max(axis=0)
        return (ends[self.ends, 0] - ends[self.begins, 0]).mean(axis=1)

    @property
    def error(self) -> Array:
        """S: by which share the replay of what was recorded misses each step."""
        return np.abs(self.step_times(self.replay()) - self.recorded_ns) / np.maximum(self.recorded_ns, 1.0)

    @property
    def shared(self) -> Array:
        """N: part of a collective, whose transfer is no rank's own."""
        return np.repeat(self.join != Join.NOBODY, np.diff(self.first))

    def critical_path(self, ends: Array) -> dict[tuple[int, int, bool], float]:
        """Time on the longest chain by place of the rank, place of the part, and whether it is transfer, in ns."""
        path_ns: dict[tuple[int, int, bool], float] = {}
        for column in range(ends.shape[1]):
            for piece in self.path(ends, column):
                key = (piece.rank, piece.part, piece.transfers)
                path_ns[key] = path_ns.get(key, 0.0) + piece.end - piece.begin
        return path_ns

    def path(self, ends: Array, column: int = 0) -> Iterator[Piece]:
        """From the operation that ends last back to the beginning."""
        gap, own_ns, ends = self.time.gap_ns, self.time.own_ns, ends[:, column]
        at = int(np.argmax(ends[:-1])) if self.ends is None else int(self.ends[-1][np.argmax(ends[self.ends[-1]])])
        while at != NOTHING:
            end = float(ends[at])
            begin = end - float(own_ns[at, column])
            yield Piece(int(self.rank[at]), int(self.part[at]), bool(self.transfers[at]), at, begin, end)
            at = self._held_up_by(at, ends, column)
            end, begin = begin, begin - float(gap[at, column])
            yield Piece(int(self.rank[at]), BETWEEN, False, at, begin, end)
            before = self.follows[at]
            at = int(before[np.argmax(ends[before])])

    def _held_up_by(self, at: int, ends: Array, column: int) -> int:
        """The member of its collective that an operation waited for, else itself."""
        block = int(np.searchsorted(self.first, at, "right")) - 1
        join, low, high = int(self.join[block]), int(self.first[block]), int(self.first[block + 1])
        if not join:
            return at
        start = ends[self.follows[low:high]].max(axis=1) + self.time.gap_ns[low:high, column]
        root = low + int(self.root[block])
        if join == Join.ROOT:
            return root if start[root - low] > start[at - low] else at
        if join == Join.AT_ROOT:
            return low + int(np.argmax(start)) if at == root else at
        if join == Join.ALL:
            return low + int(np.argmax(start))
        return low + int(np.argmax(start[: at - low + 1]))


# ---------------------------------------------------------------------------------------------------------------------
class Builder:
    """Takes operations in any order and puts them into blocks."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.rank: list[int] = []
        self.part: list[int] = []
        self.stage: list[int] = []
        self.transfers: list[bool] = []
        self.peers: list[int] = []
        self.peers_of_stages: list[int] = []
        self.follows: list[list[int]] = []
        self.gap_ns: list[Array] = []
        self.own_ns: list[Array] = []
        self._joined: list[list[int]] = []
        self._codes: dict[Any, int] = {}
        self._parts: dict[str, int] = {}

    def code(self, key: Any) -> int:
        return self._codes.setdefault(key, len(self._codes))

    def add(
        self,
        rank: int,
        part: str,
        follows: Sequence[int],
        gap_ns: Array,
        own_ns: Array,
        *,
        stage: int = -1,
        transfers: bool = False,
        peers: Any = None,
        peers_of_stages: Any = None,
    ) -> int:
        """One operation; its number."""
        self.rank.append(rank)
        self.part.append(self._parts.setdefault(part, len(self._parts)))
        self.stage.append(stage)
        self.transfers.append(transfers)
        self.peers.append(self.code(("peers", peers)))
        self.peers_of_stages.append(self.code(("stages", peers_of_stages)))
        self.follows.append(list(dict.fromkeys(follows)) or [NOTHING])
        self.gap_ns.append(gap_ns)
        self.own_ns.append(own_ns)
        return len(self.rank) - 1

    def join(self, operations: Sequence[int]) -> None:
        """These are one collective in which all wait for all."""
        self._joined.append(list(operations))

    def program(self, ranks: Sequence[int], numbers: Array, recorded_ns: Array) -> Program | None:
        """All of it in blocks; None where operations wait for each other in a circle."""
        count = len(self.rank)
        unit = np.arange(count)
        members = {at: [at] for at in range(count)}
        for joined in self._joined:
            for at in joined:
                unit[at] = joined[0]
            members[joined[0]] = joined
        level = self._levels(unit, members)
        if level is None:
            return None
        is_joined = np.zeros(count, bool)
        for joined in self._joined:
            is_joined[joined] = True
        order = np.lexsort((unit * is_joined, is_joined, level[unit]))
        new = np.empty(count + 1, np.int64)
        new[order], new[-1] = np.arange(count), NOTHING
        keys = np.stack([level[unit][order], np.where(is_joined, unit, -1)[order]])
        first = np.flatnonzero(np.concatenate([[True], (np.diff(keys) != 0).any(axis=0)]))
        width = max(map(len, self.follows))
        follows = np.array([[*before, *[before[0]] * (width - len(before))] for before in self.follows], np.int64)

        def picked(values: Sequence[Any]) -> Array:
            return np.array(values)[order]

        return Program(
            ranks=ranks,
            first=np.append(first, count),
            join=np.where(is_joined[order][first], int(Join.ALL), int(Join.NOBODY)),
            root=np.zeros(len(first), np.int64),
            rank=picked(self.rank),
            follows=new[follows[order]],
            time=Durations(picked(self.gap_ns), picked(self.own_ns)),
            part=picked(self.part),
            parts=list(self._parts),
            transfers=picked(self.transfers),
            peers=picked(self.peers),
            peers_of_stages=picked(self.peers_of_stages),
            stage=picked(self.stage),
            numbers=numbers,
            recorded_ns=recorded_ns,
        )

    def _levels(self, unit: Array, members: Mapping[int, Sequence[int]]) -> Array | None:
        """Of each unit (an operation, or a collective by its first) the longest chain before it."""
        units = unit.tolist()
        after: dict[int, list[int]] = {}
        waits = dict.fromkeys(units, 0)
        for at, predecessors in enumerate(self.follows):
            for before in predecessors:
                if before != NOTHING:
                    after.setdefault(units[before], []).append(units[at])
                    waits[units[at]] += 1
        level = np.zeros(len(units), np.int64)
        ready = [unit_of for unit_of, count in waits.items() if not count]
        done = 0
        while ready:
            predecessors = ready.pop()
            done += 1
            for later in after.get(predecessors, ()):
                level[later] = max(level[later], level[predecessors] + 1)
                waits[later] -= 1
                if not waits[later]:
                    ready.append(later)
        return level if done == len(waits) else None
