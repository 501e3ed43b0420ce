"""The law of synthetic runs: when each rank enters and leaves each collective (docs/inside/synthetic.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Array = Any  # of numpy

SECOND = 1_000_000_000
START_NS = 1_700_000_000 * SECOND  # Unix time
GOLDEN = 0.618_033_988_749_894_9
SIZES_BYTES = (8, 4_096, 65_536, 1_048_576)
BARRIER_EVERY = 50
LATENCY_NS = 20_000
BYTES_PER_NS = 10
LEAST_WAIT_NS = 1_000
POINT_TO_POINT = ("MPI_Send", "MPI_Recv", "MPI_Isend", "MPI_Irecv", "MPI_Wait", "MPI_Waitall", "MPI_Test", "MPI_Probe")


@dataclass(frozen=True)
class Law:
    """What a synthetic run is made of; all random numbers come from the seed."""

    ranks: int = 64
    ranks_per_host: int = 12
    collectives: int = 10_000
    tallies: int = 200
    period_ns: int = 1_000_000  # between two collectives
    imbalance_ns: int = 100_000  # how much sooner the least loaded rank comes
    jitter_ns: int = 50_000
    stragglers: tuple[int, ...] = ()
    straggler_share: float = 0.5  # of the collectives in which one of them comes last
    straggler_ns: int = 200_000  # how much longer the others then wait
    skew_ns: int = 0  # clocks of hosts are apart by up to so much
    drift_ppm: float = 0.0
    log_capacity: int | None = None  # records that the log keeps
    killed: tuple[int, ...] = ()  # ranks that end in the middle, without a word
    absent: tuple[int, ...] = ()  # ranks without a file
    lost_calls: int = 0  # of every rank
    steps: int = 0  # that every rank records, each of as many collectives
    seed: int = 1

    def __post_init__(self) -> None:
        longest = LEAST_WAIT_NS + self.imbalance_ns + self.jitter_ns + self.straggler_ns + int(max(self.transfers_ns()))
        if longest >= self.period_ns:
            raise ValueError(f"a collective of up to {longest} ns does not fit in a period of {self.period_ns} ns")
        if self.steps and (not self.collectives or self.collectives % self.steps):
            raise ValueError(f"{self.collectives} collectives are not as many in each of {self.steps} steps")

    @property
    def hosts(self) -> int:
        return -(-self.ranks // self.ranks_per_host)

    def host(self, rank: int) -> int:
        return rank // self.ranks_per_host

    def load(self, rank: int) -> float:
        """From 0 to 1: how much a rank has to compute, spread evenly over the ranks."""
        return (rank * GOLDEN) % 1.0

    def barriers(self) -> Array:
        return np.arange(1, self.collectives + 1) % BARRIER_EVERY == 0

    def bytes(self) -> Array:
        sizes = np.array(SIZES_BYTES, np.int64)[np.arange(self.collectives) % len(SIZES_BYTES)]
        return np.where(self.barriers(), 0, sizes)

    def transfers_ns(self) -> Array:
        if not self.collectives:
            return np.zeros(1, np.int64)
        return LATENCY_NS + self.bytes() // BYTES_PER_NS

    @cached_property
    def last(self) -> Array:
        """The rank that comes last, of each collective."""
        random = np.random.default_rng((self.seed, 1))
        chosen = random.integers(0, self.ranks, self.collectives)
        if self.stragglers:
            late = random.random(self.collectives) < self.straggler_share
            chosen = np.where(late, np.array(self.stragglers)[chosen % len(self.stragglers)], chosen)
        return chosen

    @cached_property
    def complete_ns(self) -> Array:
        """When the last rank enters: true time since START_NS."""
        return SECOND + np.arange(1, self.collectives + 1, dtype=np.int64) * self.period_ns

    def waits_ns(self, rank: int) -> Array:
        """How much sooner than the last a rank enters each collective."""
        random = np.random.Generator(np.random.Philox(key=[self.seed, rank]))
        waits: Array = LEAST_WAIT_NS + int(self.imbalance_ns * (1 - self.load(rank)))
        waits = waits + (self.jitter_ns * random.random(self.collectives)).astype(np.int64)
        waits = waits + self.straggler_ns * np.isin(self.last, self.stragglers)
        return np.where(self.last == rank, 0, waits)

    def times_ns(self, rank: int) -> tuple[Array, Array]:
        """Entering and leaving: all leave at one time, when the data have moved."""
        return self.complete_ns - self.waits_ns(rank), self.complete_ns + self.transfers_ns()[: self.collectives]

    def step_edges_ns(self) -> Array:
        """When steps begin and end: one follows the other, just after the last collective of the one before."""
        each = self.collectives // self.steps
        last = SECOND + np.arange(0, self.collectives + 1, each, dtype=np.int64) * self.period_ns
        return last + int(max(self.transfers_ns())) + 1

    def stays_ns(self, rank: int) -> Array:
        """How long a rank is in the collectives of each step."""
        enter, leave = self.times_ns(rank)
        return (leave - enter).reshape(self.steps, -1).sum(axis=1)

    def clock(self, host: int) -> tuple[int, float]:
        """Offset in ns and drift of a host's clock; that of the first host is the true one."""
        random = np.random.default_rng((self.seed, 2, host))
        offset, drift = random.uniform(-1, 1, 2)
        return (round(self.skew_ns * offset), self.drift_ppm * 1e-6 * drift) if host else (0, 0.0)

    @property
    def end_ns(self) -> int:
        return SECOND + (self.collectives + 2) * self.period_ns
