"""A matrix of members × collectives that is too large for memory: on disk, cut so that a block is read in one piece."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

# ---------------------------------------------------------------------------------------------------------------------
# Does the same work on many things in several threads: numpy and Arrow let others run while they work.
Thing = TypeVar("Thing")
Made = TypeVar("Made")


def in_threads(work: Callable[[Thing], Made], things: Sequence[Thing]) -> Iterator[Made]:
    """The results in order, few of them at a time."""
    workers = len(os.sched_getaffinity(0))
    if workers < 2 or len(things) < 2:
        yield from map(work, things)
        return
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[Made]] = deque()
        for thing in things:
            if len(pending) > workers:
                yield pending.popleft().result()
            pending.append(pool.submit(work, thing))
        while pending:
            yield pending.popleft().result()


# ---------------------------------------------------------------- disk matrix
Array = Any  # of numpy
CELLS = 1 << 20  # of a block: bounds what is held in memory at a time
ITEM_BYTES = 8


class Scratch:
    """A file without a name that goes with this object."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="rankscope-tiles-")
        self.number = self._file.fileno()
        self.used_bytes = 0

    def room(self, size_bytes: int) -> int:
        """A place for so many bytes, which read as 0 until they are written."""
        place = self.used_bytes
        self.used_bytes += size_bytes
        os.ftruncate(self.number, self.used_bytes)
        return place


@dataclass(slots=True)
class Tiles:
    """One matrix of int64; its tiles follow each other, in each the rows of all members."""

    scratch: Scratch
    members: int
    width: int  # collectives
    place: int = -1

    def __post_init__(self) -> None:
        self.place = self.scratch.room(self.members * self.width * ITEM_BYTES)

    @property
    def block(self) -> int:
        """Collectives of a tile."""
        return max(1, CELLS // self.members)

    def __len__(self) -> int:
        return -(-self.width // self.block)

    def columns(self, number: int) -> slice:
        """The collectives of a tile."""
        return slice(number * self.block, min((number + 1) * self.block, self.width))

    def write(self, first: int, rows: Array) -> None:
        """The rows of some members that follow each other."""
        for number in range(len(self)):
            columns = self.columns(number)
            piece = np.ascontiguousarray(rows[:, columns], np.int64)
            place = columns.start * self.members + first * piece.shape[1]
            write_at(self.scratch.number, piece.reshape(-1).view(np.uint8).data, self.place + place * ITEM_BYTES)

    def read(self, number: int) -> Array:
        """One tile, members × collectives."""
        columns = self.columns(number)
        count = (columns.stop - columns.start) * self.members
        block = np.empty(count, np.int64)
        read_at(self.scratch.number, block.view(np.uint8).data, self.place + columns.start * self.members * ITEM_BYTES)
        return block.reshape(self.members, -1)


def write_at(number: int, data: memoryview, place: int) -> None:
    """All of it; the system may take less than it is given."""
    done = 0
    while done < len(data):
        done += os.pwrite(number, data[done:], place + done)


def read_at(number: int, data: memoryview, place: int) -> None:
    """As much as fits into `data`."""
    done = 0
    while done < len(data):
        got = os.preadv(number, [data[done:]], place + done)
        if not got:
            raise OSError("the file for what does not fit into memory is cut short")
        done += got
