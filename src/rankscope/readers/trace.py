"""The trace of a rank file: its records oldest first, on the Unix clock, and how many of them there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope import rankfile
from rankscope.model import BadFile, Figure, Note, Reading, Severity
from rankscope.rankfile import LAP, ChunkKind, Rows, TraceKeep
from rankscope.readers.chunks import RankFile
from rankscope.readers.clock import Clock, CuptiClock
from rankscope.readers.rows import copy_rows

BLOCK_ROWS = 1 << 17  # what is held in memory at a time


@dataclass(slots=True)
class Clocks:
    """The clocks of a process by which its events are timed, each layer by its own."""

    ticks: Clock
    cupti: CuptiClock

    def times(self, rows: Rows) -> tuple[Any, Any]:
        """Start and end of each event, Unix time."""
        durations = rows["duration_low"] + ((rows["mark"] & np.uint32(LAP - 1)).astype(np.uint64) << np.uint64(32))
        of_gpu = np.isin(rows["layer"], rankfile.IN_NS)
        start_ns = np.where(of_gpu, self.cupti.unix_ns(rows["start_ticks"]), self.ticks.unix_ns(rows["start_ticks"]))
        rate = np.where(of_gpu, self.cupti.rate, self.ticks.ns_per_tick)
        return start_ns, start_ns + np.rint(durations * rate).astype(np.int64)


def trace_blocks(file: RankFile) -> Iterator[Rows]:
    """The finished records, some at a time, in the order in which they were begun."""
    parts = file.parts(ChunkKind.TRACE)
    capacity = int(file.header["trace_capacity"])
    if not parts or not capacity:
        return
    if len(parts) > 1 or capacity > len(parts[0].rows):
        raise BadFile(f"{file.path}: a trace of {capacity} records in room for {len(parts[0].rows)}")
    ring, written = parts[0].rows[:capacity], file.now("trace_written")
    oldest = written % capacity if written > capacity and file.header["trace_keep"] != TraceKeep.OLDEST else 0
    for first, last in ((oldest, min(capacity, written)), (0, oldest)):
        for at in range(first, last, BLOCK_ROWS):
            rows, unsettled = copy_rows(ring[at : min(last, at + BLOCK_ROWS)], "mark", zero_is_busy=True)
            yield rows[~unsettled & (rows["mark"] >= LAP)]


@dataclass(slots=True)
class Kept:
    """What the trace has of one layer."""

    events: int = 0
    first_ns: int = 2**63 - 1
    last_ns: int = -(2**63)

    def add(self, start_ns: Any, end_ns: Any) -> None:
        self.events += len(start_ns)
        self.first_ns = min(self.first_ns, int(start_ns.min()))
        self.last_ns = max(self.last_ns, int(end_ns.max()))


def kept_by_layer(file: RankFile, clocks: Clocks) -> dict[int, Kept]:
    """Events and time span of each layer in the trace."""
    found: dict[int, Kept] = {}
    for rows in trace_blocks(file):
        start_ns, end_ns = clocks.times(rows)
        for layer in np.unique(rows["layer"]).tolist():
            of_layer = rows["layer"] == layer
            found.setdefault(layer, Kept()).add(start_ns[of_layer], end_ns[of_layer])
    return found


def add_trace(reading: Reading, file: RankFile, clock: Clock, cuda_rows: Rows, layers: Sequence[str]) -> None:
    """Put into a reading how much the trace keeps, and what it lost; its events are read by another: trace_events."""
    if not file.header["trace_keep"]:
        return
    kept = kept_by_layer(file, Clocks(clock, CuptiClock(clock, cuda_rows)))
    offered = {layer: count for layer, count in enumerate(file.header["trace_events"].tolist()) if count}
    if max((*kept, *offered), default=0) >= len(layers):
        raise BadFile(f"{file.path}: layer {max((*kept, *offered))}, but there are only {len(layers)}")
    for layer in sorted(kept.keys() | offered.keys()):
        of_layer, count = kept.get(layer, Kept()), offered.get(layer, 0)
        lost = max(0, count - of_layer.events) % 2**63
        reading.facts.lost_trace_events += lost
        reading.figures += _figures(f"trace {layers[layer]}", of_layer, lost, reading.facts.started_ns or 0)
    if offered and not file.header["trace_capacity"]:
        told = "there was no room for the trace (a full disk, or a limit on file sizes): it has no events"
        reading.notes.append(Note(told, Severity.WARNING, str(file.path)))


def _figures(series: str, kept: Kept, lost: int, started_ns: int) -> list[Figure]:
    figures = [
        Figure(series, "events kept", float(kept.events), "count"),
        Figure(series, "events lost", float(lost), "count"),
    ]
    if kept.events:
        figures.append(Figure(series, "begins", float(kept.first_ns - started_ns), "ns"))
        figures.append(Figure(series, "spans", float(kept.last_ns - kept.first_ns), "ns"))
    return figures
