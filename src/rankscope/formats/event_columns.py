"""Single events of a trace as the store takes them: column by column, in blocks, of which the last is in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.formats.block_file import BlockFile
from rankscope.formats.nccl_kernels import nccl_operation
from rankscope.formats.source import Source
from rankscope.model.records import Layer, Note, Reading, Severity
from rankscope.model.tables import Words

BLOCK_EVENTS = 100_000
MOST_NAMES = 500_000  # different ones in one process: more is no trace of a program
LARGEST_NS = 2**61
NONE = -1
COUNT_LIMIT = 2**63 - 1


@dataclass(slots=True)
class _Words:
    codes: array[int] = field(default_factory=lambda: array("i"))
    numbers: dict[str, int] = field(default_factory=dict)

    def add(self, word: str) -> None:
        if len(self.numbers) >= MOST_NAMES and word not in self.numbers:
            word = "(other names)"
        self.codes.append(self.numbers.setdefault(word, len(self.numbers)))

    def words(self, codes: Any) -> Words:
        return Words(codes, list(self.numbers))


class EventColumns:
    """The events of one process, added one by one."""

    def __init__(self) -> None:
        self._words = {name: _Words() for name in ("layer", "name", "group")}
        self._numbers = {
            name: array("q") for name in ("start_ns", "end_ns", "bytes", "correlation", "sequence", "thread")
        }
        self._flags = {name: array("b") for name in ("failed", "user_range")}
        self._file: BlockFile | None = None  # from the first whole block on
        self._places: list[int] = []
        self._count = 0
        self.refused = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self,
        layer: str,
        name: str,
        start_ns: int,
        end_ns: int,
        group: str = "",
        thread: int = 0,
        size_bytes: int | None = None,
        correlation: int | None = None,
        sequence: int | None = None,
        failed: bool = False,
        user_range: bool = False,
    ) -> bool:
        """Keep one; one that ends before it starts, or lies outside of any clock, is counted as refused."""
        if not -LARGEST_NS < start_ns <= end_ns < LARGEST_NS:
            self.refused += 1
            return False
        for words, word in zip(self._words.values(), (layer, name, group), strict=True):
            words.add(word)
        details = (_known(size_bytes), _known(correlation), _known(sequence), max(_known(thread), 0))
        values = (start_ns, end_ns, *details)
        for column, value in zip(self._numbers.values(), values, strict=True):
            column.append(value)
        self._flags["failed"].append(failed)
        self._flags["user_range"].append(user_range)
        self._count += 1
        if self._count % BLOCK_EVENTS == 0:
            self._file = self._file or BlockFile()
            self._places.append(self._file.put(self._taken()))
        return True

    def blocks(self) -> Iterator[Mapping[str, Any]]:
        """The events in the order in which they came, so many at once."""
        for place in self._places:
            assert self._file is not None
            yield self._block(self._file.get(place))
        if self._flags["failed"]:
            yield self._block(self._taken())

    def _taken(self) -> dict[str, Any]:
        """The columns of what is in memory, which then is not any more."""
        parts = (
            ({name: words.codes for name, words in self._words.items()}, np.int32),
            (self._numbers, np.int64),
            (self._flags, bool),
        )
        block = {name: np.array(column, kind) for columns, kind in parts for name, column in columns.items()}
        for columns, _ in parts:
            for column in columns.values():
                del column[:]
        return block

    def _block(self, block: dict[str, Any]) -> Mapping[str, Any]:
        words = {name: column.words(block[name]) for name, column in self._words.items()}
        for name in ("bytes", "correlation", "sequence"):
            block[name] = np.ma.masked_array(block[name], block[name] == NONE)
        operations = [" ".join(nccl_operation(name)).strip() for name in words["name"].values]
        if any(operations):
            on_device = np.array([layer == Layer.GPU for layer in words["layer"].values], bool)[words["layer"].codes]
            codes = np.where(on_device, words["name"].codes, len(operations))
            block["algorithm"] = Words(codes.astype(np.int32), [*operations, ""])
        return {**block, **words}

    def notes(self, source: Source) -> list[Note]:
        if not self.refused:
            return []
        text = f"{self.refused} events left out: they end before they start, or their times are not numbers"
        return [Note(text, Severity.WARNING, str(source))]


def _known(number: int | None) -> int:
    return number if number is not None and 0 <= number <= COUNT_LIMIT else NONE


# ---------------------------------------------------------------- lines that no table has
LISTED = 8  # by number


@dataclass(slots=True)
class UnreadLines:
    """Lines of an accepted file that are in no table: how many, and the first of them by number."""

    what: str = "not understood"
    severity: Severity = Severity.NOTE
    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, line: int) -> None:
        self.count += 1
        if len(self.first) < LISTED:
            self.first.append(line)

    def added(self, lines: Iterable[int]) -> UnreadLines:
        for line in lines:
            self.add(line)
        return self

    def told_with_last(self, readings: Iterable[Reading], source: Source) -> Iterator[Reading]:
        """These readings, the last of which says what was not read until then."""
        held = None
        for reading in readings:
            if held is not None:
                yield held
            held = reading
        if held is not None:
            held.notes += self.notes(source)
            yield held

    def notes(self, source: Source) -> list[Note]:
        if not self.count:
            return []
        listed = ", ".join(str(line + source.first_line - 1) for line in self.first)
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        lines = "line" if self.count == 1 else "lines"
        return [Note(f"{self.count} {lines} {self.what}: {listed}{more}", self.severity, source.at(self.first[0]))]


class OtherLines:
    """Lines that a reader has in no table, where it reads among the output of a program."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines = UnreadLines("not in any table (other output, or not understood)")

    def add(self, line: int, text: str) -> None:
        if text.strip() and line not in self._source.taken:
            self._lines.add(line)

    def told_with_last(self, readings: Iterable[Reading]) -> Iterator[Reading]:
        """These readings, the last of which says what was not read until then."""
        return self._lines.told_with_last(readings, self._source)
