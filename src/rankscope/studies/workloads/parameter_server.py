"""A parameter server: averages what all trainers send it, and knows how long it waited for the last of them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import timings
import torch
from torch.distributed import rpc

Key = tuple[str, int, int]  # pass, batch, bucket


@dataclass
class Gathering:
    """One gradient, of the trainers that have sent theirs."""

    first_s: float
    parts: list[tuple[Any, ...]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)


class Server:
    def __init__(self, trainers: int) -> None:
        self.trainers = trainers
        self.lock = threading.Lock()
        self.open: dict[Key, Gathering] = {}
        self.times: dict[str, dict[str, list[float]]] = {}  # by pass and metric, in ms
        self.waits: dict[str, list[tuple[float, float]]] = {}  # by pass: first and last arrival

    def take(self, key: Key, parts: tuple[Any, ...]) -> Any:
        """One trainer's part; the answer comes when all are there."""
        arrived_s = time.perf_counter()
        answer = torch.futures.Future()
        with self.lock:
            gathering = self.open.setdefault(key, Gathering(arrived_s))
            gathering.parts.append(parts)
            gathering.answers.append(answer)
            complete = len(gathering.parts) == self.trainers
            if complete:
                del self.open[key]
        if complete:
            mean = averaged(gathering.parts)
            self.keep(key[0], gathering.first_s, arrived_s, time.perf_counter())
            for future in gathering.answers:
                future.set_result(mean)
        return answer

    def keep(self, passed: str, first_s: float, last_s: float, averaged_s: float) -> None:
        with self.lock:
            self.waits.setdefault(passed, []).append((first_s, last_s))
            times = self.times.setdefault(passed, {timings.STRAGGLER: [], timings.AVERAGE: []})
            times[timings.STRAGGLER].append(1e3 * (last_s - first_s))
            times[timings.AVERAGE].append(1e3 * (averaged_s - first_s))

    def waiting_ms(self) -> dict[str, float]:
        """By pass: the time in which at least one gradient waited for its last trainer."""
        return {passed: 1e3 * covered(spans) for passed, spans in self.waits.items()}


def covered(spans: list[tuple[float, float]]) -> float:
    """The time in any of them."""
    total = end = 0.0
    for begin, last in sorted(spans):
        total += max(0.0, last - max(begin, end))
        end = max(end, last)
    return total


def averaged(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Of dense gradients (one tensor each), or of sparse ones (indices, values, shape)."""
    if len(parts[0]) == 1:
        return (torch.stack([tensors[0] for tensors in parts]).sum(0) / len(parts),)
    indices, values, shapes = zip(*parts, strict=True)
    joined = torch.sparse_coo_tensor(torch.cat(indices, 1), torch.cat(values) / len(parts), shapes[0]).coalesce()
    return joined.indices(), joined.values(), shapes[0]


SERVER: Server | None = None


def serve(trainers: int) -> Server:
    """This process is a server from now on."""
    global SERVER
    SERVER = Server(trainers)
    return SERVER


@rpc.functions.async_execution  # type: ignore[untyped-decorator]
def average(key: Key, parts: tuple[Any, ...]) -> Any:
    """Called by trainers, runs on the server."""
    assert SERVER is not None
    return SERVER.take(key, parts)
