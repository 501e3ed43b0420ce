"""Dask does the work on many things: on workers of a cluster, or in processes of this machine."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from rankscope.store.executors import Killed, Made, Thing
from rankscope.store.folder import NoRun

AHEAD = 4  # things in work for each worker
CONNECT_S = 20
INSTALL = "pip install 'rankscope[dask]'"


class Cluster:
    """The workers of one scheduler. Work that a lost worker had begun, the scheduler gives to another."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def map(self, work: Callable[[Thing], Made], things: Sequence[Thing]) -> Iterator[Made]:
        """The result of each thing, in order; no more of them in work than the workers need.

        Things go as bytes: what a worker cannot unpack is told as the failure of its work, and does not end the worker.
        """
        from cloudpickle import dumps  # comes with distributed

        unpacking = partial(_done, work)
        most = AHEAD * max(1, len(self.client.scheduler_info()["workers"]))
        slabs = [[dumps(thing) for thing in things[at : at + most]] for at in range(0, len(things), most)]
        ahead: list[Any] = self.client.map(unpacking, slabs[0], pure=False) if slabs else []
        for number in range(len(slabs)):
            futures = ahead
            ahead = self.client.map(unpacking, slabs[number + 1], pure=False) if number + 1 < len(slabs) else []
            for future in futures:
                yield self._result(future)
                future.release()

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
            raise Killed("workers of Dask were killed again and again (no memory?)") from None


def _done(work: Callable[[Thing], Made], packed: bytes) -> Made:
    return work(pickle.loads(packed))


class Dask:
    """The cluster at an address, asked only if there is work: a run whose tables are kept needs none."""

    def __init__(self, address: str) -> None:
        self.address = address

    def map(self, work: Callable[[Thing], Made], things: Sequence[Thing]) -> Iterator[Made]:
        """As a cluster does it."""
        if things:
            yield from cluster(self.address).map(work, things)


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
        told = " ".join(str(problem)[:200].split()) or type(problem).__name__
        raise NoRun(f"--dask {address}: no scheduler answers there ({told}): start one with `dask scheduler`") from None
