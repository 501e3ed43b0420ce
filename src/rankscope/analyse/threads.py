"""Does the same work on many things in several threads: numpy and Arrow let others run while they work."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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
