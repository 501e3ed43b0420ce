"""Does the same work on many things, the results in their order: here, in several processes or on a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rankscope.model import BadFile

Thing = TypeVar("Thing")
Made = TypeVar("Made")

AHEAD = 3  # things in work for each worker: what waits to be taken is held in memory
TRIES = 3  # a pool whose worker was killed is begun again so often


class Killed(Exception):
    """Workers were killed again and again."""


class Lost(BadFile):
    """The machine that alone could do a thing is gone, or has no worker any more."""


@dataclass(frozen=True, slots=True)
class At:
    """Where a thing is best done: on the machine of that name, by others when it is gone or has too much to do."""

    host: str
    only: bool = False  # others do not have what it needs


ANYWHERE = At("")


class Executor(Protocol):
    """Where the work is done."""

    @property
    def hosts(self) -> frozenset[str]:
        """The machines among which it can choose, as they call themselves."""

    def map(
        self, work: Callable[[Thing], Made], things: Sequence[Thing], at: Sequence[At] = ()
    ) -> Iterator[Made | Lost]: ...


class Pool:
    """Processes of this machine; begun for each `map`, and not at all for a single thing or processor."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers if workers is not None else len(os.sched_getaffinity(0))

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset()

    def map(
        self, work: Callable[[Thing], Made], things: Sequence[Thing], at: Sequence[At] = ()
    ) -> Iterator[Made | Lost]:
        """The result of each thing; what a killed worker had begun is done again by another."""
        if len(things) < 2 or self.workers < 2:
            yield from map(work, things)
            return
        done, tries = 0, 0
        while done < len(things):
            try:
                for made in self._in_order(work, things[done:]):
                    yield made
                    done += 1
            except BrokenProcessPool:
                tries += 1
                if tries == TRIES:
                    raise Killed(f"the processes that do the work were killed {TRIES} times (no memory?)") from None

    def _in_order(self, work: Callable[[Thing], Made], things: Sequence[Thing]) -> Iterator[Made]:
        # by fork: nothing here has started a thread yet, and the workers need not import everything again
        with ProcessPoolExecutor(self.workers, multiprocessing.get_context("fork")) as pool:
            pending: deque[Future[Any]] = deque()
            for thing in things:
                if len(pending) == AHEAD * self.workers:
                    yield pending.popleft().result()
                pending.append(pool.submit(work, thing))
            while pending:
                yield pending.popleft().result()
