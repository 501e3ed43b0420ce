"""Where a reader leaves what it cannot hand on yet: blocks of records in a file without a name."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import suppress
from tempfile import SpooledTemporaryFile, gettempdir
from typing import Any, Generic, TypeVar

from rankscope.model.records import BadFile

HELD_BYTES = 8 << 20  # in memory, before there is a file in $TMPDIR
BLOCK_RECORDS = 10_000

Record = TypeVar("Record")


class BlockFile:
    """Blocks of our own records, each found again by the place it was given."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(HELD_BYTES)

    def put(self, block: Any) -> int:
        try:
            self._file.seek(0, 2)
            place = self._file.tell()
            pickle.dump(block, self._file, pickle.HIGHEST_PROTOCOL)
        except OSError as problem:
            raise BadFile(f"{gettempdir()}: no room to read a long file ({problem.strerror}): set TMPDIR") from None
        return place

    def get(self, place: int) -> Any:
        self._file.seek(place)
        return pickle.load(self._file)  # written by `put`, nobody else can name the file

    def __del__(self) -> None:
        with suppress(OSError):  # of a full disk
            self._file.close()


class Waiting(Generic[Record]):
    """Records in the order in which they came, of which the last few are in memory."""

    __slots__ = ("_count", "_file", "_places", "_recent")

    def __init__(self, file: BlockFile) -> None:
        self._file, self._places, self._count = file, list[int](), 0
        self._recent: list[Record] = []

    def append(self, record: Record) -> None:
        self._recent.append(record)
        self._count += 1
        if len(self._recent) >= BLOCK_RECORDS:
            self.set_down()

    def set_down(self) -> None:
        """Keep nothing in memory, since it may take long until somebody asks."""
        if self._recent:
            self._places.append(self._file.put(self._recent))
            self._recent = []

    def blocks(self) -> Iterator[list[Record]]:
        yield from map(self._file.get, self._places)
        if self._recent:
            yield self._recent

    def __iter__(self) -> Iterator[Record]:
        for block in self.blocks():
            yield from block

    def __len__(self) -> int:
        return self._count
