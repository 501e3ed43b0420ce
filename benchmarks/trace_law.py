"""Writes made-up traces of a training in the real formats, whose every sum is known by construction.

    python benchmarks/trace_law.py RUN [--events N] [--ranks R] [--form rank|parquet]

`rank`: rank files with a trace, as the recorder leaves them. `parquet`: loaded files, as `rankscope load` keeps Kineto
and nsys traces, with the numbers by which calls and what they launched name each other.

The law. A rank's trace is cells of 400 µs, 16 of them a step; a step is 273 events. All lengths are whole nanoseconds
drawn by a hash of seed, rank, cell and purpose, so that any part can be made alone. In the cell that begins at T:

    host     `layer` T+1,000 to T+300,000; in it 4 operators of b = 4 to 9 µs, at T+5,000 + 10,000 j, each with a call
             that launches a kernel, 1,000 after its begin, 2,000 long; then two calls at T+50,000 and T+60,000
             (3,000 each) that launch the communication and the copy. `step` lasts its 16 cells but the last 1,000 ns.
    stream 7   4 kernels of a = 5 to 25 µs, the first at T+50,000, with gaps g = 1 to 20 µs between them
    stream 20  a communication of m = 20 to 60 µs that begins o = 0 to 5 µs before the last kernel ends (o is hidden)
    stream 13  a copy of h = 5 to 20 µs, w = 1 to 5 µs after the communication has ended

So of a cell busy = Σa + m − o + h, compute = Σa, communication = m, hidden = o, copies = h; gaps within a cell are
shorter than 30 µs, those between cells longer, and the call that ends such a gap begins in it. Records come in the
order of a cell, ranges after what is in them, activities of a stream out of order (2nd kernel before the 1st,
communication before the last kernel), as buffers of CUPTI may bring them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.model.records import RankFacts, Reading
from rankscope.model.tables import Words
from rankscope.rank_file import EVENT, Flag, GroupKind, LayerNumber, State, TickSource
from rankscope.rank_file_writer import RankFileWriter
from rankscope.store.foreign import LoadedFile

CELL_NS, STEP_CELLS = 400_000, 16
STEP_NS, STEP_EVENTS = CELL_NS * STEP_CELLS, 17 * STEP_CELLS + 1
STEP_RANGE_NS, LAYER_NS = STEP_NS - 1_000, 299_000
SECOND = 1_000_000_000
START_NS = 1_800_000_000 * SECOND
FIRST_NS = 2 * SECOND  # of the first cell, on CUPTI's clock
BLOCK_STEPS = 1 << 13
MOST_RANK_EVENTS = 4_000_000  # 128 MB of records

KERNELS = [
    f"_ZN7cutlass7Kernel2I{len(word)}{word}EEvv"
    for word in (f"tile_{size}x{k}" for size in (64, 128) for k in range(12))
]
COMMUNICATION = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
COPY = "[CUDA memcpy HtoD]"
OPERATORS = [f"aten::{name}" for name in ("linear", "matmul", "add_", "mul", "batch_norm", "softmax", "mean", "copy_")]
CALLS = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync")
LAYER, STEP, DOMAIN = "layer", "step", "training"
STREAMS = ("0/7", "0/20", "0/13")
NAMES = ["", *KERNELS, COMMUNICATION, COPY, *OPERATORS, *CALLS, LAYER, STEP]
GROUPS = ["", *STREAMS, DOMAIN]
CODE = {name: code for code, name in enumerate(NAMES)}

# The records of a cell in their order: layer, group, and whose start, length and name they have.
API, GPU, RANGE = LayerNumber.CUDA_API, LayerNumber.GPU, LayerNumber.NVTX
RECORDS = [
    *(record for j in range(4) for record in ((API, "", f"call{j}"), (RANGE, DOMAIN, f"operator{j}"))),
    (API, "", "call4"), (API, "", "call5"),
    (GPU, "0/7", "kernel1"), (GPU, "0/7", "kernel0"), (GPU, "0/7", "kernel2"), (GPU, "0/20", "communication"),
    (GPU, "0/7", "kernel3"), (GPU, "0/13", "copy"), (RANGE, DOMAIN, "layer"),
]  # fmt: skip
LAUNCHED = {"kernel0": 0, "kernel1": 1, "kernel2": 2, "kernel3": 3, "communication": 4, "copy": 5}

Array = Any


def drawn(seed: int, rank: int, cells: Array, purpose: int, least: int, most: int) -> Array:
    """Numbers from least up to, but without, most: SplitMix64 of what they are for."""
    key = ((seed << 48) ^ (rank << 8) ^ purpose) * 0xBF58476D1CE4E5B9 % 2**64
    x = cells.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (least + (x >> np.uint64(33)).astype(np.int64) % (most - least)).astype(np.int64)


@dataclass(slots=True)
class Cells:
    """Some cells of one rank: what was drawn for them."""

    at_ns: Array
    kernel_ns: list[Array]  # 4
    gap_ns: list[Array]  # 3
    operator_ns: list[Array]  # 4
    comm_ns: Array
    hidden_ns: Array
    wait_ns: Array
    copy_ns: Array
    kernel_name: list[Array]
    operator_name: list[Array]

    @classmethod
    def of(cls, seed: int, rank: int, first: int, count: int) -> Cells:
        cells = np.arange(first, first + count)

        def draw(purpose: int, least: int, most: int) -> Array:
            return drawn(seed, rank, cells, purpose, least, most)

        return cls(
            FIRST_NS + cells * CELL_NS,
            [draw(j, 5_000, 25_000) for j in range(4)],
            [draw(4 + j, 1_000, 20_000) for j in range(3)],
            [draw(7 + j, 4_000, 9_000) for j in range(4)],
            draw(11, 20_000, 60_000),
            draw(12, 0, 5_000),
            draw(13, 1_000, 5_000),
            draw(14, 5_000, 20_000),
            [draw(15 + j, CODE[KERNELS[0]], CODE[KERNELS[-1]] + 1) for j in range(4)],
            [draw(19 + j, CODE[OPERATORS[0]], CODE[OPERATORS[-1]] + 1) for j in range(4)],
        )

    def kernel_starts(self) -> list[Array]:
        starts = [self.at_ns + 50_000]
        for j in range(3):
            starts.append(starts[-1] + self.kernel_ns[j] + self.gap_ns[j])
        return starts

    def told(self) -> dict[str, tuple[Array, Array, Array]]:
        """Start, length and name of each record of the cells."""
        kernels = self.kernel_starts()
        comm = kernels[3] + self.kernel_ns[3] - self.hidden_ns
        copy = comm + self.comm_ns + self.wait_ns
        found: dict[str, tuple[Array, Array, Array]] = {
            "communication": (comm, self.comm_ns, CODE[COMMUNICATION]),
            "copy": (copy, self.copy_ns, CODE[COPY]),
            "layer": (self.at_ns + 1_000, LAYER_NS, CODE[LAYER]),
            "call4": (self.at_ns + 50_000, 3_000, CODE[CALLS[1]]),
            "call5": (self.at_ns + 60_000, 3_000, CODE[CALLS[2]]),
        }
        for j in range(4):
            begin = self.at_ns + 5_000 + 10_000 * j
            found[f"kernel{j}"] = kernels[j], self.kernel_ns[j], self.kernel_name[j]
            found[f"operator{j}"] = begin, self.operator_ns[j], self.operator_name[j]
            found[f"call{j}"] = begin + 1_000, 2_000, CODE[CALLS[0]]
        return found


@dataclass(slots=True)
class Law:
    """One rank's trace of so many steps."""

    rank: int
    steps: int
    seed: int = 1

    @property
    def events(self) -> int:
        return self.steps * STEP_EVENTS

    def blocks(self) -> Iterator[tuple[int, Cells]]:
        """The cells, some steps at a time."""
        for first in range(0, self.steps, BLOCK_STEPS):
            count = min(BLOCK_STEPS, self.steps - first)
            yield count, Cells.of(self.seed, self.rank, first * STEP_CELLS, count * STEP_CELLS)

    def columns(self) -> Iterator[dict[str, Array]]:
        """start, length, name, group, layer and correlation of each record, in their order."""
        calls = 0
        for steps, cells in self.blocks():
            yield _columns(steps, cells, calls)
            calls += steps * STEP_CELLS * 6


def _columns(steps: int, cells: Cells, calls: int) -> dict[str, Array]:
    made = {
        key: np.empty((steps, STEP_EVENTS), np.int64) for key in ("start", "length", "name", "group", "layer", "number")
    }
    told, count = cells.told(), steps * STEP_CELLS
    numbers = calls + 6 * np.arange(count)
    for at, (layer, group, record) in enumerate(RECORDS):
        start, length, name = told[record]
        launch = LAUNCHED.get(record, int(record[-1]) if record.startswith("call") else None)
        number = numbers + launch if launch is not None else -1
        values = (start, length, name, GROUPS.index(group), int(layer), number)
        for key, value in zip(made, values, strict=True):
            made[key][:, at : STEP_EVENTS - 1 : len(RECORDS)] = np.broadcast_to(value, count).reshape(steps, STEP_CELLS)
    last = (cells.at_ns[::STEP_CELLS], STEP_RANGE_NS, CODE[STEP], GROUPS.index(DOMAIN), int(LayerNumber.NVTX), -1)
    for key, value in zip(made, last, strict=True):
        made[key][:, -1] = value
    return {key: column.reshape(-1) for key, column in made.items()}


def rank_file(law: Law, ranks: int) -> RankFileWriter:
    """The rank as a recorder leaves it: CUPTI's clock and ours run alike."""
    made = RankFileWriter(
        host=f"node{law.rank // 8}".encode(), pid=1000 + law.rank, parent_pid=1, state=State.EXITED, rank=law.rank,
        local_rank=law.rank % 8, world_size=ranks, tick_source=TickSource.MONOTONIC, flags=Flag.MPI_STARTED,
        loaded={"ticks": 1, "monotonic_ns": 1, "realtime_ns": START_NS + 1}, started_realtime_ns=START_NS,
        ended_ticks=FIRST_NS + (law.steps + 1) * STEP_NS, command=b"python\0train.py\0", rankscope_version=b"0.1.0",
    )  # fmt: skip
    made.cuda(started_ticks=1, started_ns=1, flushed_ticks=1, flushed_ns=1)
    for name in NAMES:
        made.string(name)
    for name in GROUPS[1:]:
        made.group(name, kind=GroupKind.DOMAIN if name == DOMAIN else GroupKind.STREAM)
    rows, at = np.zeros(law.events, EVENT), 0
    durations = np.empty(law.events, np.int64)
    for columns in law.columns():
        part = slice(at, at + len(columns["start"]))
        rows["start_ticks"][part], durations[part] = columns["start"], columns["length"]
        for key in ("name", "group", "layer"):
            rows[key][part] = columns[key]
        at = part.stop
    rows["flags"], rows["thread"] = 5, 1
    made.trace(rows, durations)
    return made


def reading_blocks(law: Law, ranks: int) -> Iterator[Reading]:
    """The same as a reader of somebody else's trace gives it, with correlations."""
    facts = RankFacts(host=f"node{law.rank // 8}", pid=1000 + law.rank, rank=law.rank, world_size=ranks, tool="made up")
    layers = ["", "", "cuda_api", "gpu", "nvtx"]
    for at, columns in enumerate(law.columns()):
        start_ns = columns["start"] + START_NS
        number = columns["number"]
        events = {
            "layer": Words(columns["layer"].astype(np.int32), layers),
            "name": Words(columns["name"].astype(np.int32), NAMES),
            "group": Words(columns["group"].astype(np.int32), GROUPS),
            "start_ns": start_ns,
            "end_ns": start_ns + columns["length"],
            "correlation": np.ma.MaskedArray(number, number < 0),
            "thread": np.where(columns["layer"] == LayerNumber.GPU, 0, 1).astype(np.int32),
        }
        yield Reading(facts, continues=at > 0, event_columns=events)


def laws(events: int, ranks: int, seed: int = 1) -> list[Law]:
    """About so many events, shared out among the ranks in whole steps."""
    steps = max(ranks, round(events / STEP_EVENTS))
    return [Law(rank, steps // ranks + (rank < steps % ranks), seed) for rank in range(ranks)]


def write_run(folder: Path, found: list[Law], form: str = "rank", ranks: int | None = None) -> int:
    """A run of these ranks (of so many, where others are written by others); the number of events."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = len(found) if ranks is None else ranks
    for law in found:
        if form == "rank":
            rank_file(law, ranks).write(folder / f"ranks/node{law.rank // 8}/{1000 + law.rank}.rank")
        else:
            loaded = LoadedFile(folder, f"rank{law.rank}.trace")
            for reading in reading_blocks(law, ranks):
                loaded.add(reading)
            loaded.settle()
            loaded.finish(f"trace{law.rank:06}", {"loaded_ns": law.rank, "tool": "made up"})
    told = {"format": 1, "command": ["python", "train.py"], "expected_ranks": ranks, "started_ns": START_NS}
    (folder / "run.json").write_text(json.dumps(told))
    return sum(law.events for law in found)


def ranks_for(events: int) -> int:
    """Files of a handy size, at least two."""
    return max(2, -(-events // MOST_RANK_EVENTS))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--events", type=float, default=1e6)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--form", choices=("rank", "parquet"), default="rank")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    events = int(options.events)
    written = write_run(options.run, laws(events, options.ranks or ranks_for(events), options.seed), options.form)
    print(f"{options.run}: {written} events")
    return 0


if __name__ == "__main__":
    sys.exit(main())
