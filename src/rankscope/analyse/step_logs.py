"""The log of one rank's collectives as numbers in which a pattern can be looked for."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np

from rankscope.model import Words

Array = Any  # of numpy
SMALL_BYTES = 64  # counters, flags, negotiations of Horovod: no steps of their own where larger ones come too
LAYERS = ("mpi", "gloo", "nccl")
MOST_KINDS = 16  # of logs that are remembered: nearly always all ranks do the same
LATER = 1 << 30


@dataclass(slots=True)
class Kind:
    """What collectives a log holds, in order: the same for all ranks that do the same."""

    name: Words
    group: Words
    bytes: Array
    tokens: Array  # a number for each name, group and size
    kept: Array  # places of those that may belong to a step
    cut: dict[Any, Any] = field(default_factory=dict)  # by pattern: its places in the log

    def is_of(self, name: Words, group: Words, size_bytes: Array) -> bool:
        return (
            len(size_bytes) == len(self.bytes)
            and np.array_equal(size_bytes, self.bytes)
            and np.array_equal(name.codes, self.name.codes)
            and np.array_equal(group.codes, self.group.codes)
            and name.values == self.name.values
            and group.values == self.group.values
        )


@dataclass(slots=True)
class RankLog:
    """The collectives of one rank in the order in which it entered them."""

    process: int
    kind: Kind
    sequence: Array
    start_ns: Array
    end_ns: Array  # when the rank went on: of nonblocking ones the end of the call

    @property
    def series(self) -> tuple[Array, Array]:
        """The kept tokens, and what the program did before each of them and after the kept one before; first 0."""
        kept = self.kind.kept
        idle = np.maximum(self.start_ns[kept][1:] - self.end_ns[kept][:-1], 0)
        return self.kind.tokens[kept], np.concatenate([[0], idle])


class Vocabulary:
    """Gives the same number to the same collective on every rank."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, int], int] = {}
        self._places: dict[str, int] = {}  # of names and groups in the order in which they came
        self._told: list[tuple[str, str, int]] = []
        self._kinds: list[Kind] = []
        self._lock = Lock()
        self.is_settled = False  # then words come from several threads, and their order means nothing

    def name(self, token: int) -> str:
        return self._told[token][0]

    def key(self, pattern: tuple[int, ...]) -> Any:
        """An order of patterns that does not depend on who came first where that is chance."""
        return [(self._key("n", name), self._key("g", group), size) for name, group, size in map(self._at, pattern)]

    def _at(self, token: int) -> tuple[str, str, int]:
        return self._told[token]

    def _key(self, kind: str, word: str) -> tuple[int, str]:
        place = self._places.get(kind + word, LATER)
        return place, word if place == LATER else ""

    def kind(self, name: Words, group: Words, size_bytes: Array) -> Kind:
        """What a log with these columns holds."""
        for one in list(self._kinds):
            if one.is_of(name, group, size_bytes):
                return one
        made = Kind(name, group, size_bytes, self._tokens(name, group, size_bytes), _kept(size_bytes))
        self._kinds = [made, *self._kinds[: MOST_KINDS - 1]]
        return made

    def _tokens(self, name: Words, group: Words, size_bytes: Array) -> Array:
        sizes, size = np.unique(size_bytes, return_inverse=True)
        codes = (name.codes.astype(np.int64) * len(group.values) + group.codes) * len(sizes) + size.reshape(-1)
        present, first, place = np.unique(codes, return_index=True, return_inverse=True)
        numbers = np.zeros(len(present), np.int64)
        with self._lock:
            for at in np.argsort(first).tolist():
                rest, of_size = divmod(int(present[at]), len(sizes))
                of_name, of_group = divmod(rest, len(group.values))
                numbers[at] = self._number(name.values[of_name], group.values[of_group], int(sizes[of_size]))
        return numbers[place.reshape(-1)]

    def _number(self, name: str, group: str, size_bytes: int) -> int:
        if not self.is_settled:
            for word in ("n" + name, "g" + group):
                self._places.setdefault(word, len(self._places))
        told = (name, group, size_bytes)
        if told not in self._numbers:
            self._told.append(told)
            self._numbers[told] = len(self._told) - 1
        return self._numbers[told]


def _kept(size_bytes: Array) -> Array:
    small = size_bytes <= SMALL_BYTES
    return np.arange(len(small)) if small.all() else np.flatnonzero(~small)


def rank_logs(columns: Mapping[str, Any], wanted: Container[int], words: Vocabulary) -> Iterator[RankLog]:
    """The logs in some records, which have each process's together."""
    process, layer = columns["process"], columns["layer"]
    known = np.isin(layer.codes, [at for at, name in enumerate(layer.values) if name in LAYERS])
    good = known & (columns["sequence"] > 0)
    edges = [0, *(np.flatnonzero(np.diff(process)) + 1).tolist(), len(process)]
    for first, last in pairwise(edges):
        if first < last and int(process[first]) in wanted and good[first:last].any():
            yield _rank_log(columns, first, last, good[first:last], words)


def _rank_log(columns: Mapping[str, Any], first: int, last: int, good: Array, words: Vocabulary) -> RankLog:
    start_ns = columns["start_ns"][first:last]
    rows: Any = slice(first, last)
    if not good.all() or bool((np.diff(start_ns) < 0).any()):
        chosen = np.flatnonzero(good)
        rows = first + chosen[np.argsort(start_ns[chosen], kind="stable")]

    def of(name: str) -> Words:
        return Words(columns[name].codes[rows], columns[name].values)

    kind = words.kind(of("name"), of("group"), columns["bytes"][rows])
    process = int(columns["process"][first])
    return RankLog(process, kind, columns["sequence"][rows], columns["start_ns"][rows], columns["end_ns"][rows])
