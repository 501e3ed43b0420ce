"""Does the same work on many things, the results in their order: here, in several processes or on a Dask cluster."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol, TypeVar

from rankscope.model.records import BadFile
from rankscope.store.folder import NoRun

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
                for result in self._in_order(work, things[done:]):
                    yield result
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


# ---------------------------------------------------------------------------------------------------------------------
# Dask does the work on many things: on workers of a cluster, or in processes of this machine.
AHEAD_ON_CLUSTER = 4  # things in work for each worker
CONNECT_S = 20
POLL_S = 1.0
LOST_S = 15.0  # without a worker on a host: those that are begun again take seconds
INSTALL = "pip install 'rankscope[dask]'"


@dataclass(slots=True)
class Begun:
    """A thing in work, and where."""

    work: Callable[[bytes], Any]
    packed: bytes
    at: At
    future: Any  # None: nobody has it
    workers: frozenset[str]  # who may do it, if others may not

    def is_done(self, within_s: float) -> bool:
        from distributed import wait

        if self.future is None:
            time.sleep(within_s)
            return False
        with suppress(TimeoutError, asyncio.TimeoutError):
            wait([self.future], timeout=within_s)
        return bool(self.future.done())

    def release(self) -> None:
        if self.future is not None:
            self.future.release()


class Cluster:
    """The workers of one scheduler. Work that a lost worker had begun, the scheduler gives to another."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._lost: set[str] = set()  # hosts whose workers did not come back

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(self.workers())

    def workers(self) -> dict[str, list[str]]:
        """The addresses of the workers on each host, as it calls itself: by which it named the folder of its ranks."""
        by_host: dict[str, list[str]] = {}
        for address, host in self.client.run(socket.gethostname, on_error="ignore").items():
            by_host.setdefault(host, []).append(address)
        return by_host

    def on_each_host(self, work: Callable[[], Made]) -> dict[str, Made]:
        """What one worker of each host says; nothing of one that is lost meanwhile."""
        from distributed.comm import CommClosedError

        first = {addresses[0]: host for host, addresses in self.workers().items()}
        answers = self.client.run(work, workers=list(first), on_error="return") if first else {}
        results = {
            first[address]: answer for address, answer in answers.items() if not isinstance(answer, CommClosedError)
        }
        for host, result in results.items():
            if isinstance(result, BaseException):
                raise Killed(f"the Dask worker on {host} cannot answer ({result}): does it have the same rankscope?")
        return results

    def map(
        self, work: Callable[[Thing], Made], things: Sequence[Thing], at: Sequence[At] = ()
    ) -> Iterator[Made | Lost]:
        """The result of each thing, in order; no more of them in work than the workers need.

        Things go as bytes: what a worker cannot unpack is told as the failure of its work, and does not end the worker.
        """
        from cloudpickle import dumps  # comes with distributed

        places = at or [ANYWHERE] * len(things)
        begin = partial(self._begun, partial(_done, work), self.workers() if set(places) - {ANYWHERE} else {})
        most = AHEAD_ON_CLUSTER * max(1, len(self.client.nthreads()))
        packed = [(dumps(thing), place) for thing, place in zip(things, places, strict=True)]
        slabs = [packed[first : first + most] for first in range(0, len(packed), most)]
        ahead: list[Begun] = begin(slabs[0]) if slabs else []
        for number in range(len(slabs)):
            begun = ahead
            ahead = begin(slabs[number + 1]) if number + 1 < len(slabs) else []
            for job in begun:
                yield self._waited_for(job) if job.at.only else self._result(job.future)
                job.release()

    def _begun(
        self, work: Callable[[bytes], Any], workers: Mapping[str, list[str]], slab: Sequence[tuple[bytes, At]]
    ) -> list[Begun]:
        """These things in work, in their order; those of one place go there together."""
        of_place: dict[At, list[int]] = {}
        for number, (_, place) in enumerate(slab):
            of_place.setdefault(place if place.only or place.host in workers else ANYWHERE, []).append(number)
        begun: dict[int, Begun] = {}
        for place, numbers in of_place.items():
            packed, there = [slab[number][0] for number in numbers], workers.get(place.host, [])
            futures = self._submitted(work, packed, place, there)
            for number, packed_job, future in zip(numbers, packed, futures, strict=True):
                begun[number] = Begun(work, packed_job, place, future, frozenset(there))
        return [begun[number] for number in range(len(slab))]

    def _submitted(self, work: Callable[[bytes], Any], packed: list[bytes], place: At, there: list[str]) -> list[Any]:
        """Futures; none of things for a place where there is nobody."""
        if place.only and not there:
            return [None] * len(packed)
        chosen = {"workers": there, "allow_other_workers": not place.only} if there else {}
        return list(self.client.map(work, packed, pure=False, **chosen))

    def _waited_for(self, job: Begun) -> Any:
        """The result of what only one host can do; a worker that is begun again there has another address."""
        tries, gone_s = 0, time.monotonic()
        while not job.is_done(POLL_S):
            if job.workers & set(self.client.nthreads()):
                gone_s = time.monotonic()
                continue
            there = self.workers().get(job.at.host, [])
            if there and tries < TRIES:
                job.release()
                [job.future], job.workers = self._submitted(job.work, [job.packed], job.at, there), frozenset(there)
                tries += 1
            elif there:
                return Lost(f"Dask workers on {job.at.host}, the only host with this file, were killed repeatedly")
            elif job.at.host in self._lost or time.monotonic() - gone_s > LOST_S:
                self._lost.add(job.at.host)
                return Lost(f"no worker of Dask is on {job.at.host} any more, which alone has this file")
        try:
            return self._result(job.future)
        except Killed as problem:
            return Lost(f"{problem} on {job.at.host}, which alone has this file")

    def _result(self, future: Any) -> Any:
        try:
            return future.result()
        except ModuleNotFoundError as problem:
            raise Killed(f"a worker of Dask has no {problem.name}: install rankscope there") from None
        except Exception as problem:
            if isinstance(problem, RuntimeError) and "deserializ" in str(problem):  # by the scheduler, of what to do
                raise Killed("the scheduler of Dask does not know rankscope: install it there too") from None
            if type(problem).__name__ != "KilledWorker":
                raise
            raise Killed("Dask workers were killed repeatedly (out of memory?)") from None


def _done(work: Callable[[Thing], Made], packed: bytes) -> Made:
    return work(pickle.loads(packed))


class Dask:
    """The cluster at an address, asked only if there is work: a run whose tables are kept needs none."""

    def __init__(self, address: str) -> None:
        self.address = address

    @property
    def hosts(self) -> frozenset[str]:
        """Where it has workers."""
        return cluster(self.address).hosts

    def map(
        self, work: Callable[[Thing], Made], things: Sequence[Thing], at: Sequence[At] = ()
    ) -> Iterator[Made | Lost]:
        """As a cluster does it."""
        if things:
            yield from cluster(self.address).map(work, things, at)


@cache
def cluster(address: str) -> Cluster:
    """The scheduler at that address; "local": one of our own, with a worker for each processor."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise NoRun(f"--dask {address}: Dask is not installed: {INSTALL}") from None
    if address == "local":
        workers = len(os.sched_getaffinity(0))
        here = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
        return Cluster(Client(here))
    try:
        return Cluster(Client(address, timeout=CONNECT_S))
    except (OSError, ValueError, TimeoutError, socket.gaierror) as problem:
        text = " ".join(str(problem)[:200].split()) or type(problem).__name__
        raise NoRun(f"--dask {address}: no scheduler answers there ({text}): start one with `dask scheduler`") from None
