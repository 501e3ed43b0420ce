"""Many single occurrences become tallies while a file streams by."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.formats.block_file import BlockFile
from rankscope.formats.source import Source
from rankscope.model.records import Note, RangeTally, Severity, Tally
from rankscope.model.tables import Words

# ---------------------------------------------------------------------------------------------------------------------
# Many events of a trace in little memory, and their sums.
MOST_EVENTS = 5_000_000  # kept one by one; all are in the sums
BLOCK_EVENTS = 100_000
MOST_NAMES = 200_000
OTHERS = "(names beyond the first 200,000)"
MOST_ODD = 20
NONE = -1


@dataclass(slots=True)
class Activity:
    """One line of a trace."""

    layer: str
    name: str
    group: str
    start_ns: int
    duration_ns: int
    bytes: int | None = None
    correlation: int | None = None


@dataclass(slots=True)
class WordColumn:
    """Words by number."""

    codes: array[int] = field(default_factory=lambda: array("i"))
    numbers: dict[str, int] = field(default_factory=dict)

    def add(self, word: str) -> None:
        if word not in self.numbers and len(self.numbers) >= MOST_NAMES:
            word = OTHERS
        self.codes.append(self.numbers.setdefault(word, len(self.numbers)))

    def words(self, codes: Any) -> Words:
        return Words(codes, list(self.numbers))


@dataclass(slots=True)
class Sum:
    """What one thing adds up to."""

    calls: int = 0
    total_ns: int = 0
    min_ns: int = 2**63
    max_ns: int = 0
    bytes: int | None = None


class TraceColumns:
    """Events as columns, of which whole blocks wait in a file."""

    def __init__(self, file: BlockFile) -> None:
        self._file, self._places, self._count = file, list[int](), 0
        self._words = {name: WordColumn() for name in ("layer", "name", "group")}
        self._numbers = {name: array("q") for name in ("start_ns", "end_ns", "bytes", "correlation")}
        self._sums: dict[tuple[str, str, str], Sum] = {}
        self._left_out = 0
        self._odd: list[tuple[int, str]] = []
        self._first_line = 0

    def __len__(self) -> int:
        return self._count

    def layers(self) -> set[str]:
        return {layer for layer, _, _ in self._sums}

    def add(self, activity: Activity, line: int) -> None:
        """Count it, and keep it while there is room."""
        self._first_line = self._first_line or line
        self._sum(activity)
        if len(self) >= MOST_EVENTS:
            self._left_out += 1
            return
        for name, vocabulary in self._words.items():
            vocabulary.add(getattr(activity, name))
        end_ns = activity.start_ns + activity.duration_ns
        values = (activity.start_ns, end_ns, activity.bytes, activity.correlation)
        for column, value in zip(self._numbers.values(), values, strict=True):
            column.append(NONE if value is None else value)
        self._count += 1
        if len(self._numbers["start_ns"]) >= BLOCK_EVENTS:
            self._places.append(self._file.put(self._taken()))

    def _taken(self) -> dict[str, Any]:
        """The columns of what is in memory, which then is not any more."""
        block: dict[str, Any] = {name: np.array(words.codes, np.int32) for name, words in self._words.items()}
        block |= {name: np.array(column, np.int64) for name, column in self._numbers.items()}
        for column in (*(words.codes for words in self._words.values()), *self._numbers.values()):
            del column[:]
        return block

    def _sum(self, activity: Activity) -> None:
        key = (activity.layer, activity.name, activity.group)
        if key not in self._sums and len(self._sums) >= MOST_NAMES:
            key = (activity.layer, OTHERS, activity.group)
        held = self._sums.setdefault(key, Sum())
        held.calls += 1
        held.total_ns += activity.duration_ns
        held.min_ns, held.max_ns = min(held.min_ns, activity.duration_ns), max(held.max_ns, activity.duration_ns)
        if activity.bytes is not None:
            held.bytes = (held.bytes or 0) + activity.bytes

    def odd(self, line: int, text: str) -> None:
        """Something that does not add up in that line."""
        if len(self._odd) < MOST_ODD:
            self._odd.append((line, text))

    def tallies(self) -> list[Tally]:
        """The sums, so that a trace answers what a summary answers."""
        return [
            Tally(layer, name, s.calls, float(s.total_ns), group, min_ns=s.min_ns, max_ns=s.max_ns, bytes=s.bytes)
            for (layer, name, group), s in self._sums.items()
        ]

    def blocks(self) -> Iterator[Mapping[str, Any]]:
        """The events as the store takes them, so many at once that its own forms of them stay small."""
        for place in self._places:
            yield self._with_words(self._file.get(place))
        if self._numbers["start_ns"]:
            yield self._with_words(self._taken())

    def _with_words(self, block: dict[str, Any]) -> Mapping[str, Any]:
        words = {name: column.words(block[name]) for name, column in self._words.items()}
        for name in ("bytes", "correlation"):
            block[name] = np.ma.masked_array(block[name], block[name] == NONE)
        return {**block, **words}

    def notes(self, source: Source) -> list[Note]:
        """What is to be known about these events."""
        if not len(self):
            return []
        where = source.at(self._first_line)
        remarks = [Note("the trace's times count from the start of profiling, not from 1970", Severity.NOTE, where)]
        if self._left_out:
            sentence = f"{self._left_out} events after the first {MOST_EVENTS} are in the sums only"
            remarks.append(Note(sentence, Severity.WARNING, where))
        return remarks + [Note(text, Severity.WARNING, source.at(line)) for line, text in self._odd]


# ---------------------------------------------------------------- sums
MAX_BYTES = 2**63 - 1
MAX_TALLIES = 200_000  # more different names than any true file has: bounds what a hostile one can make us keep

Key = tuple[str, str, str, int | None, int, str, str]


@dataclass(slots=True)
class Sums:
    """Tallies by layer, name, group, size class, thread, kind and what they are part of."""

    source: Source
    by_key: dict[Key, Tally] = field(default_factory=dict)

    def add(
        self,
        layer: str,
        name: str,
        ns: float | None,
        group: str = "",
        size_class: int | None = None,
        thread: int = 0,
        kind: str = "call",
        size_bytes: int | None = None,
        errors: int = 0,
        within: str = "",
    ) -> None:
        """Count one occurrence; None for a time that the file does not tell."""
        key = (layer, name, group, size_class, thread, kind, within)
        tally = self.by_key.get(key)
        if tally is None:
            if len(self.by_key) >= MAX_TALLIES:
                raise self.source.bad(f"more than {MAX_TALLIES} different names: not a file of this format")
            shared = (layer, name, 0, 0.0, group, size_class, "", kind, thread)
            tally = self.by_key[key] = RangeTally(*shared, within=within) if within else Tally(*shared)
        tally.calls = (tally.calls or 0) + 1
        tally.errors += errors
        if size_bytes is not None:
            tally.bytes = min((tally.bytes or 0) + size_bytes, MAX_BYTES)
        if ns is not None:
            _add_time(tally, float(ns))

    def tallies(self) -> list[Tally]:
        """What was counted in nothing else, in the order first met."""
        return [tally for tally in self.by_key.values() if not isinstance(tally, RangeTally)]

    def range_tallies(self) -> list[RangeTally]:
        """What was counted as part of something else."""
        return [tally for tally in self.by_key.values() if isinstance(tally, RangeTally)]


def _add_time(tally: Tally, ns: float) -> None:
    tally.total_ns = (tally.total_ns or 0.0) + ns
    tally.min_ns = ns if tally.min_ns is None else min(tally.min_ns, ns)
    tally.max_ns = ns if tally.max_ns is None else max(tally.max_ns, ns)
    tally.sum_squares_ns2 = (tally.sum_squares_ns2 or 0.0) + ns * ns
