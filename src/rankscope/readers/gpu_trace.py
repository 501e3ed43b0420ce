"""Many events of a trace in little memory, and their sums."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.formats.source import Source
from rankscope.model import Note, Severity, Tally, Words

MOST_EVENTS = 5_000_000  # kept one by one: 300 MB; all are in the sums
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
class Vocabulary:
    """Words by number."""

    codes: array[int] = field(default_factory=lambda: array("i"))
    numbers: dict[str, int] = field(default_factory=dict)

    def add(self, word: str) -> None:
        if word not in self.numbers and len(self.numbers) >= MOST_NAMES:
            word = OTHERS
        self.codes.append(self.numbers.setdefault(word, len(self.numbers)))

    def words(self) -> Words:
        return Words(np.array(self.codes, np.int32), list(self.numbers))


@dataclass(slots=True)
class Sum:
    """What one thing adds up to."""

    calls: int = 0
    total_ns: int = 0
    min_ns: int = 2**63
    max_ns: int = 0
    bytes: int | None = None


class Trace:
    """Events as columns."""

    def __init__(self) -> None:
        self._words = {name: Vocabulary() for name in ("layer", "name", "group")}
        self._numbers = {name: array("q") for name in ("start_ns", "end_ns", "bytes", "correlation")}
        self._sums: dict[tuple[str, str, str], Sum] = {}
        self._left_out = 0
        self._odd: list[tuple[int, str]] = []
        self._first_line = 0

    def __len__(self) -> int:
        return len(self._numbers["start_ns"])

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

    def columns(self) -> Mapping[str, Any]:
        """The events as the store takes them."""
        if not len(self):
            return {}
        numbers = {name: np.array(column, np.int64) for name, column in self._numbers.items()}
        for name in ("bytes", "correlation"):
            numbers[name] = np.ma.masked_array(numbers[name], numbers[name] == NONE)
        return {**{name: words.words() for name, words in self._words.items()}, **numbers}

    def notes(self, source: Source) -> list[Note]:
        """What is to be known about these events."""
        if not len(self):
            return []
        where = source.at(self._first_line)
        found = [Note("times of the trace count from the beginning of profiling, not from 1970", Severity.NOTE, where)]
        if self._left_out:
            told = f"{self._left_out} events after the first {MOST_EVENTS} are in the sums only"
            found.append(Note(told, Severity.WARNING, where))
        return found + [Note(text, Severity.WARNING, source.at(line)) for line, text in self._odd]
