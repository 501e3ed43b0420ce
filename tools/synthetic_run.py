"""Writes a synthetic run of up to 100,000 ranks, in rank files as a recorder leaves them: docs/inside/synthetic.md.

python tools/synthetic_run.py OUT --ranks 6144 --stragglers 77 --skew-ns 2e9 --drift-ppm 30
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.rank_file import (
    CHUNK,
    COLLECTIVE,
    GROUP,
    HEADER,
    STEP,
    TALLY,
    ChunkKind,
    Flag,
    Part,
    RankSource,
    State,
    StepFlag,
    size_class,
)
from rankscope.rank_file_writer import RankFileWriter
from synthetic_law import LATENCY_NS, POINT_TO_POINT, SECOND, SIZES_BYTES, START_NS, Array, Law

MPI_BEGIN_NS = SECOND // 2
FIRST_PID = 1_000
STEADY = 5
WARMUP_STEPS = 2
MOST_RANKS = 100_000


class Template:
    """The file of one rank, of which the others differ in a few columns: those are written over for each of them."""

    def __init__(self, law: Law, killed: bool) -> None:
        self.law, self.records = law, law.collectives // 2 if killed else law.collectives
        records = self.records
        self.capacity = law.log_capacity or max(1, records)
        writer = _writer(law)
        self.group = writer.group("MPI_COMM_WORLD", identity=1, size=law.ranks, collectives=records)
        self.names = {name: writer.string(name) for name in ("MPI_Allreduce", "MPI_Barrier", *POINT_TO_POINT)}
        if law.tallies:
            writer.tallies(self._tally_rows())
        if records:
            writer.collectives(self._log_rows(), self.capacity)
        self.steps = law.steps // 2 if killed else law.steps
        if self.steps:
            writer.steps(self._step_rows())
        self.data = np.frombuffer(bytearray(writer.to_bytes()), np.uint8)

    def _log_rows(self) -> Array:
        rows, law = np.zeros(self.records, COLLECTIVE), self.law
        barrier = law.barriers()[: self.records]
        rows["name"] = np.where(barrier, self.names["MPI_Barrier"], self.names["MPI_Allreduce"])
        rows["bytes"], rows["root"] = law.bytes()[: self.records], -1
        rows["sequence"], rows["group"], rows["phase"] = np.arange(1, self.records + 1), self.group, STEADY
        return rows

    def _step_rows(self) -> Array:
        rows = np.zeros(self.steps, STEP)
        rows["number"] = np.arange(1, self.steps + 1)
        rows["flags"] = np.where(rows["number"] <= WARMUP_STEPS, StepFlag.WARMUP, 0)
        return rows

    def _tally_rows(self) -> Array:
        rows, law = np.zeros(self.law.tallies, TALLY), self.law
        rows["layer"], rows["group"], rows["phase"] = 1, self.group, STEADY
        for at, (name, size_bytes, chosen) in enumerate(self.kinds):
            calls = int(chosen.sum())
            rows[at]["name"], rows[at]["size_class"] = self.names[name], size_class(size_bytes)
            rows[at]["calls"], rows[at]["bytes"] = calls, calls * size_bytes
        rest, number = rows[len(self.kinds) :], np.arange(law.tallies - len(self.kinds))
        rest["name"] = [self.names[POINT_TO_POINT[at % len(POINT_TO_POINT)]] for at in number]
        rest["size_class"] = 1 + number // len(POINT_TO_POINT)
        rest["calls"] = 10 * (1 + number % 7)
        rest["bytes"] = rest["calls"] << (rest["size_class"].astype(np.uint64) - np.uint64(1))
        return rows

    @cached_property
    def kinds(self) -> list[tuple[str, int, Array]]:
        """Each kind of collective: its name, its size, and which of the collectives are of it."""
        if not self.records:
            return []
        sizes, barrier = self.law.bytes()[: self.records], self.law.barriers()[: self.records]
        made = [("MPI_Allreduce", size, ~barrier & (sizes == size)) for size in SIZES_BYTES]
        return [*made, ("MPI_Barrier", 0, barrier)][: self.law.tallies]

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        """Where the rows of each kind of chunk begin, and how many there are."""
        found, at = {}, int(self.header["header_bytes"])
        while at < len(self.data):
            chunk = self.data[at : at + CHUNK.itemsize].view(CHUNK)[0]
            found[int(chunk["kind"])] = (at + CHUNK.itemsize, int(chunk["rows"]))
            at += int(chunk["chunk_bytes"])
        return found

    @cached_property
    def header(self) -> Any:
        return self.data[: HEADER.itemsize].view(HEADER)[0]

    def rows(self, kind: ChunkKind, dtype: Any) -> Array:
        """The rows of one kind, in the file."""
        begin, count = self.places.get(kind, (0, 0))
        return self.data[begin : begin + count * dtype.itemsize].view(dtype)

    def of_rank(self, rank: int) -> Array:
        """The bytes of one rank's file; good until the next rank is asked for."""
        law = self.law
        offset_ns, drift = law.clock(law.host(rank))
        enter, leave = (times[: self.records] for times in law.times_ns(rank))
        self._patch_header(rank, offset_ns, drift)
        self.rows(ChunkKind.GROUPS, GROUP)["my_rank"] = rank
        if law.tallies:
            self._patch_tallies(rank, leave - enter)
        if self.records:
            log, kept = self.rows(ChunkKind.LOG, COLLECTIVE), np.arange(self.records)[-self.capacity :]
            log["enter_ticks"][kept % self.capacity] = _shown(enter[kept], drift)
            log["end_ticks"][kept % self.capacity] = _shown(leave[kept], drift)
        if self.steps:
            self._patch_steps(rank, drift)
        return self.data

    def _patch_steps(self, rank: int, drift: float) -> None:
        """All collectives are in the backward pass; the other parts share what is left, each a tenth or more."""
        rows, edges = self.rows(ChunkKind.STEPS, STEP), _shown(self.law.step_edges_ns(), drift)
        rows["begin_ticks"], rows["end_ticks"] = edges[: self.steps], edges[1 : self.steps + 1]
        length = np.diff(edges.astype(np.int64))[: self.steps]
        stays = _shown(self.law.stays_ns(rank)[: self.steps], drift).astype(np.int64)
        own = length - stays
        shares = {Part.DATA: own // 10, Part.FORWARD: 3 * own // 10, Part.OPTIMIZER: own // 10}
        for part, values in shares.items():
            rows["part_ticks"][:, part] = values
        rows["part_ticks"][:, Part.BACKWARD] = length - sum(shares.values())
        rows["blocked_ticks"][:, Part.BACKWARD] = stays
        rows["cpu_ns"], rows["collectives"] = own, self.law.collectives // self.law.steps

    def _patch_header(self, rank: int, offset_ns: int, drift: float) -> None:
        header, law = self.header, self.law
        header["rank"], header["local_rank"] = rank, rank % law.ranks_per_host
        header["pid"] = FIRST_PID + rank % law.ranks_per_host
        header["host"] = host_name(law.host(rank)).encode()
        header["started_realtime_ns"] = START_NS + offset_ns
        header["loaded"]["realtime_ns"] = START_NS + offset_ns + 1
        header["facts"]["user_ns"] = int(law.end_ns * (0.5 + 0.5 * law.load(rank)))
        if rank in law.killed:
            header["state"], header["flags"], header["ended_ticks"] = State.RUNNING, Flag.MPI_STARTED, 0
            header["mpi_finalized_ticks"] = 0
        else:
            header["ended_ticks"] = _shown(law.end_ns, drift)

    def _patch_tallies(self, rank: int, stay_ns: Array) -> None:
        rows = self.rows(ChunkKind.TALLIES, TALLY)
        for at, (_, _, chosen) in enumerate(self.kinds):
            stays = stay_ns[chosen]
            rows["total_ticks"][at], rows["sum_squares_ticks2"][at] = stays.sum(), (stays.astype(np.float64) ** 2).sum()
            if len(stays):
                rows["min_ticks"][at], rows["max_ticks"][at] = stays.min(), stays.max()
        rest = rows[len(self.kinds) :]
        each = each_ns(self.law, rank, len(rest))
        rest["total_ticks"], rest["min_ticks"], rest["max_ticks"] = rest["calls"] * each, each, each
        rest["sum_squares_ticks2"] = rest["calls"] * each.astype(np.float64) ** 2


def each_ns(law: Law, rank: int, rows: int) -> Array:
    """How long one point-to-point call of each tally takes a rank."""
    return (1_000 * (1 + np.arange(rows) % 5) * (1 + law.load(rank))).astype(np.uint64)


def host_name(number: int) -> str:
    return f"node{number:05d}"


def _shown(true_ns: Any, drift: float) -> Any:
    return np.rint(np.asarray(true_ns) * (1 + drift)).astype(np.uint64)


def _writer(law: Law) -> RankFileWriter:
    return RankFileWriter(
        parent_pid=1,
        state=State.EXITED,
        flags=Flag.MPI_STARTED | Flag.MPI_FINALIZED,
        rank_source=RankSource.OPENMPI,
        world_size=law.ranks,
        loaded={"ticks": 1, "monotonic_ns": 1, "realtime_ns": START_NS + 1},
        started_realtime_ns=START_NS,
        mpi_started_ticks=MPI_BEGIN_NS,
        mpi_finalized_ticks=law.end_ns - 1,
        ended_ticks=law.end_ns,
        lost_calls=law.lost_calls,
        lost_ticks=law.lost_calls * LATENCY_NS,
        rankscope_version=b"0.1.0",
        mpi_version=b"Open MPI v5.0.11",
        command=b"python\0train.py\0",
    )


def write_run(folder: Path, law: Law) -> Path:
    """The folder of a run, as `rankscope run` leaves it."""
    told = {"format": 1, "command": ["mpirun", "-n", str(law.ranks), "python", "train.py"], "launcher": "openmpi"}
    told |= {"expected_ranks": law.ranks, "started_ns": START_NS, "host": host_name(0), "synthetic": asdict(law)}
    for host in range(law.hosts):
        (folder / "ranks" / host_name(host)).mkdir(parents=True)
    whole, half = Template(law, killed=False), Template(law, killed=True) if law.killed else None
    for rank in sorted(set(range(law.ranks)) - set(law.absent)):
        place = folder / "ranks" / host_name(law.host(rank)) / f"{FIRST_PID + rank % law.ranks_per_host}.rank"
        template = half if half is not None and rank in law.killed else whole
        place.write_bytes(template.of_rank(rank).data)
    (folder / "run.json").write_text(json.dumps(told))
    return folder


def ranks_of(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("folder", type=Path, metavar="OUT", help="folder of the run to make; must not be there yet")
    for name, default in asdict(Law()).items():
        kind = ranks_of if isinstance(default, tuple) else float if isinstance(default, float) else _whole
        made.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, metavar="N", help=f"{default}")
    return made


def _whole(text: str) -> int:
    return int(float(text))


def main(argv: Sequence[str] | None = None) -> int:
    options = vars(parser().parse_args(argv))
    folder = options.pop("folder")
    if folder.exists():
        print(f"{folder}: is there already: name another folder", file=sys.stderr)
        return 2
    try:
        law = Law(**options)
        if not 0 < law.ranks <= MOST_RANKS:
            raise ValueError(f"--ranks {law.ranks}: from 1 to {MOST_RANKS}")
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    write_run(folder, law)
    return 0


if __name__ == "__main__":
    sys.exit(main())
