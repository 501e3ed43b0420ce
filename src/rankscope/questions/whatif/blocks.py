"""Makes a program of operations that are added in the order of time, a block of several ranks at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.questions.whatif.common_steps import CommonSteps
from rankscope.questions.whatif.passes import Gaps, Passes, passes_before
from rankscope.questions.whatif.program import Durations, Join, Program

Array = Any  # of numpy
OUTSIDE = -(1 << 30)  # instead of a step


@dataclass(slots=True)
class _Block:
    rank: Array
    follows: Array  # members x P
    gap: Array
    own: Array
    join: int
    root: int
    part: int
    transfers: bool
    step: int
    peers: int
    place: int


class Blocks:
    """The blocks of some steps."""

    def __init__(self, ranks: Sequence[int], steps: CommonSteps, stages: Array, passes: Passes | None) -> None:
        self._ranks, self._steps, self._stages, self._passes = ranks, steps, stages, passes
        self._blocks: list[_Block] = []
        self._count = 0
        self._parts: dict[str, int] = {}
        self._codes: dict[Any, int] = {}
        self._gaps: list[tuple[Array, Array, Array, Array]] = []  # own time before operations, where passes are known

    def add(
        self,
        rank: Array,
        follows: Array,
        gap: Any,
        own_ns: Any,
        step: int,
        part: str,
        what: tuple[Any, ...],
        *,
        join: int = Join.NOBODY,
        root: int = 0,
        transfers: bool = False,
        inside: bool = True,
    ) -> Array:
        """One block, `what` being what it is in every step; the numbers of its operations."""
        count = len(rank)
        gap, own_ns = (np.broadcast_to(np.asarray(values, np.float32), count) for values in (gap, own_ns))
        code = self._parts.setdefault(part, len(self._parts))
        peers, place = (self._codes.setdefault(key, len(self._codes)) for key in ((step, what), what))
        of_step = step if inside else OUTSIDE
        self._blocks.append(
            _Block(
                *(rank, follows.astype(np.int32), gap, own_ns, int(join), root, code, transfers, of_step, peers, place)
            )
        )
        self._count += count
        return np.arange(self._count - count, self._count)

    def note_gap(self, operations: Array, places: Array, since: Array, until: Array) -> None:
        """The own time of ranks before these operations."""
        if self._passes is not None:
            self._gaps.append((operations, places, since.copy(), np.asarray(until, np.float64)))

    def program(self, begins: Array, ends: Array, first: int, last: int, base_ns: int) -> Program:
        """Of the steps from the first to the last, without it; begins and ends are those of each rank's steps."""
        sizes = np.array([len(block.rank) for block in self._blocks])
        rank, follows, time = self._arrays(sizes)

        def spread(name: str, kind: Any) -> Array:
            return np.repeat(np.array([getattr(block, name) for block in self._blocks], kind), sizes)

        peers, places = spread("peers", np.int32), spread("place", np.int32)
        stages = self._stages[rank]
        passes = None
        if self._passes is not None:  # what ranks of different stages do is not the same
            ways = int(self._stages.max()) + 2
            peers, places = (codes.astype(np.int64) * ways + stages + 1 for codes in (peers, places))
            gaps = Gaps(*(np.concatenate(column) for column in zip(*self._gaps, strict=True)))
            passes = passes_before(self._passes, gaps, self._count)
        steps = self._steps
        return Program(
            ranks=self._ranks,
            first=np.concatenate([[0], np.cumsum(sizes)]),
            join=np.array([block.join for block in self._blocks], np.int8),
            root=np.array([block.root for block in self._blocks], np.int32),
            rank=rank,
            follows=follows,
            time=time,
            part=spread("part", np.int8),
            parts=list(self._parts),
            transfers=spread("transfers", bool),
            peers=peers,
            peers_of_stages=peers,
            stage=stages if passes is not None else np.broadcast_to(np.int8(-1), self._count),
            numbers=steps.numbers[first:last],
            recorded_ns=(steps.end - steps.begin)[:, first:last].mean(axis=0),
            begins=begins,
            ends=ends,
            step=spread("step", np.int32) - np.int32(first),
            causes={name: values[first:last] for name, values in steps.causes.items()},
            places=places,
            passes=passes,
            own_parts={name: values[:, first:last].sum(axis=1) for name, values in steps.own_parts.items()},
            began_ns=steps.begin[:, first:last].min(axis=0) + base_ns,
        )

    def _arrays(self, sizes: Array) -> tuple[Array, Array, Durations]:
        """Of all operations: their ranks, what they follow, and how long they take."""
        width = max(block.follows.shape[1] for block in self._blocks)
        follows = np.empty((self._count, width), np.int32)
        rank = np.empty(self._count, np.int16 if len(self._ranks) < 2**15 else np.int32)
        gap, own_ns = np.empty((self._count, 1), np.float32), np.empty((self._count, 1), np.float32)
        low = 0
        for block, size in zip(self._blocks, sizes.tolist(), strict=True):
            high = low + size
            rank[low:high], gap[low:high, 0], own_ns[low:high, 0] = block.rank, block.gap, block.own
            have = block.follows.shape[1]
            follows[low:high, :have], follows[low:high, have:] = block.follows, block.follows[:, :1]
            low = high
        return rank, follows, Durations(gap, own_ns)
