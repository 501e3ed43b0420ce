"""One group of a large run: which collectives its members have, and what they agree on, member by member."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.model import Words
from rankscope.questions.collectives.matching import DISAGREE, NOT_ALL, ROOTED, TWICE, UNENDED, Array, Group
from rankscope.questions.disk_matrix import Tiles

LARGE = 2**62


@dataclass(slots=True)
class Segment:
    """The records of one member in one group, by sequence."""

    slot: int
    rows: Any  # places in the part: a slice where they follow each other
    sequence: Array
    layer: str


@dataclass(slots=True)
class Agreed:
    """Of each collective of a group, over some of its members: K values."""

    count: Array  # records
    twice: Array  # a member has it twice
    ended: Array  # by all of them
    progress: Array  # of any of them
    lowest: dict[str, Array]  # operation, root, bytes
    highest: dict[str, Array]
    first: dict[str, Words] | None = None  # name and phase as the first member has them
    layer: str = ""

    @classmethod
    def nothing(cls, collectives: int) -> Agreed:
        def of(value: int) -> dict[str, Array]:
            return {name: np.full(collectives, value, np.int64) for name in ("operation", "root", "bytes")}

        no, yes = np.zeros(collectives, bool), np.ones(collectives, bool)
        return cls(np.zeros(collectives, np.int32), no, yes, no.copy(), of(LARGE), of(-LARGE))

    def add(self, other: Agreed) -> None:
        """Those of more members."""
        self.count += other.count
        self.twice |= other.twice
        self.ended &= other.ended
        self.progress |= other.progress
        for name, values in other.lowest.items():
            np.minimum(self.lowest[name], values, out=self.lowest[name])
            np.maximum(self.highest[name], other.highest[name], out=self.highest[name])
        if other.first is not None:
            self.first, self.layer = other.first, other.layer

    def take(self, at: Any, rows: Any, columns: Mapping[str, Array]) -> None:
        """The records of one member, at their places."""
        self.count[at] += 1
        self.ended[at] &= columns["ended"][rows]
        self.progress[at] |= columns["progress"][rows]
        for name, values in self.lowest.items():
            told = columns[name][rows]
            values[at] = np.minimum(values[at], told)
            self.highest[name][at] = np.maximum(self.highest[name][at], told)

    def same(self, name: str) -> Array:
        return self.lowest[name] == self.highest[name]


@dataclass(slots=True)
class Plan:
    """One group: the numbers of its collectives, and where their times are."""

    group: Group
    number: int
    spans: set[tuple[int, int]] = field(default_factory=set)  # first and last of members without a gap
    others: list[Array] = field(default_factory=list)
    sequences: Array = None
    agreed: Agreed | None = None
    tiles: dict[str, Tiles] = field(default_factory=dict)  # start_ns, end_ns; bytes only where members differ
    good: Array = None  # which collectives are matched

    def note(self, sequence: Array) -> None:
        """One more member's numbers."""
        first, last = int(sequence[0]), int(sequence[-1])
        if last - first + 1 == len(sequence) and bool((np.diff(sequence) == 1).all()):
            self.spans.add((first, last))
        else:
            self.others.append(np.unique(sequence))

    def settle(self) -> None:
        """All members have told theirs."""
        spans = [np.arange(first, last + 1) for first, last in _joined(self.spans)]
        self.sequences = np.unique(np.concatenate([*spans, *self.others]))

    def places(self, sequence: Array) -> Any:
        """The place of each collective among all of the group: as a slice where they follow each other."""
        first, last = int(self.sequences[0]), int(self.sequences[-1])
        if last - first + 1 != len(self.sequences):
            return np.searchsorted(self.sequences, sequence)
        if len(sequence) and int(sequence[-1]) - int(sequence[0]) + 1 == len(sequence):
            if bool((np.diff(sequence) == 1).all()):
                return slice(int(sequence[0]) - first, int(sequence[-1]) - first + 1)
        return sequence - first

    def agree(self, segments: Iterable[Segment], columns: Mapping[str, Any]) -> Agreed:
        """What these members have in common."""
        made = Agreed.nothing(len(self.sequences))
        for one in segments:
            again = np.flatnonzero(np.diff(one.sequence) == 0)
            made.take(self.places(one.sequence), one.rows, columns)
            if len(again):
                made.twice[self.places(one.sequence[again])] = True
            if one.slot == 0:
                made.first = {name: self._first(one, columns[name]) for name in ("name", "phase")}
                made.layer = one.layer
        return made

    def _first(self, one: Segment, words: Words) -> Words:
        codes = np.zeros(len(self.sequences), np.int64)
        codes[self.places(one.sequence)] = words.codes[one.rows]
        return Words(codes, words.values)

    def put(self, name: str, segments: Iterable[Segment], values: Array) -> None:
        """Members that follow each other are written together."""
        ordered = sorted(segments, key=lambda one: one.slot)
        edges = [at for at in range(1, len(ordered)) if ordered[at].slot != ordered[at - 1].slot + 1]
        for first, last in zip([0, *edges], [*edges, len(ordered)], strict=True):
            rows = np.zeros((last - first, len(self.sequences)), np.int64)
            for row, one in zip(rows, ordered[first:last], strict=True):
                row[self.places(one.sequence)] = values[one.rows]
            self.tiles[name].write(ordered[first].slot, rows)

    def judge(self, left_out: Counter[str]) -> None:
        """Which collectives every member has, ended and agrees on; the others are counted by the reason."""
        assert self.agreed is not None
        found, members = self.agreed, len(self.group.places)
        whole = (found.count == members) & ~found.twice
        same = found.same("operation") & found.same("root")
        left_out[TWICE] += int(np.count_nonzero(found.twice))
        left_out[NOT_ALL] += int(np.count_nonzero(~whole & ~found.twice))
        left_out[DISAGREE] += int(np.count_nonzero(whole & ~same))
        left_out[UNENDED] += int(np.count_nonzero(whole & same & ~found.ended))
        root, operation = found.lowest["root"], np.where(whole, found.lowest["operation"], 0)
        self.good = whole & same & found.ended & (root < members) & (~ROOTED[operation] | (root >= 0))


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same without what lies in another: of thousands of members each may begin one record later."""
    made: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if made and first <= made[-1][1] + 1:
            made[-1] = (made[-1][0], max(made[-1][1], last))
        else:
            made.append((first, last))
    return made
