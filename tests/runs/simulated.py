"""Runs whose every entering and leaving is known in true time, written with the clocks of hosts that disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.rank_file import COLLECTIVE, GroupKind
from rankscope.rank_file_writer import RankFileWriter
from runs.small_run import MILLI, SECOND, START, mpi_rank, write_run

MICRO = 1_000
Array = Any


@dataclass
class Truth:
    """True times of K collectives on M ranks, in ns since START."""

    enter_ns: Array  # K x M
    end_ns: Array  # K x M
    names: list[str]
    bytes: Array  # K
    root: Array  # K

    def waits_ns(self) -> Array:
        """What each rank waits, of operations in which all wait for all."""
        last = self.enter_ns.max(axis=1, keepdims=True)
        return np.clip(last - self.enter_ns, 0, self.end_ns - self.enter_ns)


@dataclass
class Skew:
    """The clocks: host of each rank, offset and drift of each host."""

    host_of: Sequence[int]
    offset_ns: Sequence[float]
    drift: Sequence[float]
    jumps: dict[int, tuple[float, float]] = field(default_factory=dict)  # host: (when, by how much)

    def local(self, rank: int, true_ns: Array) -> Array:
        """What the clock of a rank's host shows."""
        host = self.host_of[rank]
        when, by = self.jumps.get(host, (np.inf, 0.0))
        shown = self.offset_ns[host] + true_ns * (1 + self.drift[host]) + np.where(true_ns > when, by, 0.0)
        return np.round(shown).astype(np.int64)


def train(
    random: np.random.Generator,
    ranks: int,
    collectives: int,
    compute_ns: float = 5 * MILLI,
    jitter: float = 0.1,
    transfer_ns: float = 100 * MICRO,
    late: dict[int, float] | None = None,
    names: Sequence[str] = ("MPI_Allreduce",),
    lopsided: float = 0.0,
) -> Truth:
    """Ranks that compute and then call a collective; `late` ranks compute longer by so many ns.

    `lopsided`: some ranks always leave later than others, by up to so many times the transfer.
    """
    enter, end = np.empty((collectives, ranks)), np.empty((collectives, ranks))
    chosen = [names[at] for at in random.integers(0, len(names), collectives)]
    root = np.where(
        [name in ("MPI_Bcast", "MPI_Reduce") for name in chosen], random.integers(0, ranks, collectives), -1
    )
    more = np.array([(late or {}).get(rank, 0.0) for rank in range(ranks)])
    now = np.full(ranks, float(SECOND))
    longer = 1 + random.uniform(0, lopsided, ranks)
    for at, name in enumerate(chosen):
        now = now + compute_ns * random.lognormal(0, jitter, ranks) + more
        enter[at] = now
        took = transfer_ns * random.lognormal(0, 0.2) * longer + random.exponential(3 * MICRO, ranks)
        took += (random.random(ranks) < 0.01) * random.exponential(1 * MILLI, ranks)  # preempted
        is_root = np.arange(ranks) == root[at]
        if name == "MPI_Bcast":
            now = np.where(is_root, now + took / 4, np.maximum(now, now[is_root].sum() + took * 0.9) + took * 0.1)
        elif name == "MPI_Reduce":
            now = np.where(is_root, now.max() + took, now + took / 4)
        else:
            now = now.max() + took
        end[at] = now
    sizes = random.integers(1, 1 << 20, collectives)
    return Truth(enter, end, chosen, np.where([name == "MPI_Barrier" for name in chosen], 0, sizes), root)


def write(folder: Path, truth: Truth, skew: Skew, capacity: int | None = None, **more: Any) -> Path:
    """The run as ranks on those hosts would have recorded it."""
    ranks = truth.enter_ns.shape[1]
    made = []
    for rank in range(ranks):
        writer = mpi_rank(rank, ranks, host=f"node{skew.host_of[rank]}".encode(), loaded=anchor(skew, rank))
        log_rank(writer, truth, skew, rank, capacity, **more)
        made.append(writer)
    return write_run(folder, *made, expected_ranks=ranks)


def anchor(skew: Skew, rank: int) -> dict[str, int]:
    """Ticks begin at 1 ns of the host's own time; the offset is in the time of day."""
    return {"ticks": 1, "monotonic_ns": 1, "realtime_ns": START + 1 + round(skew.offset_ns[skew.host_of[rank]])}


def log_rank(
    writer: RankFileWriter, truth: Truth, skew: Skew, rank: int, capacity: int | None = None, **group: Any
) -> None:
    size = truth.enter_ns.shape[1]
    told = {"identity": 1, "size": size, "my_rank": rank, "kind": GroupKind.COMM, **group}
    world = writer.group(told.pop("name", "MPI_COMM_WORLD"), **told)
    rows = np.zeros(len(truth.names), COLLECTIVE)
    offset = round(skew.offset_ns[skew.host_of[rank]])
    rows["enter_ticks"] = skew.local(rank, truth.enter_ns[:, rank]) - offset
    rows["end_ticks"] = skew.local(rank, truth.end_ns[:, rank]) - offset
    rows["bytes"], rows["root"] = truth.bytes, truth.root
    rows["sequence"] = np.arange(1, len(rows) + 1)
    rows["name"] = [writer.string(name) for name in truth.names]
    rows["group"], rows["phase"] = world, 5
    writer.collectives(rows, capacity)
