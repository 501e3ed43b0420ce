"""The trace of a rank file: its records oldest first, on the Unix clock, and how many of them there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rankscope.model import PHASES, BadFile, Figure, Note, Reading, Severity
from rankscope.rank_file import LAP, ChunkKind, Rows, TraceKeep
from rankscope.rank_files.chunks import RankFile
from rankscope.rank_files.clock import Clock, CuptiClock
from rankscope.readers.rows import copy_rows
from rankscope.readers.trace_times import Clocks, Seen

BLOCK_ROWS = 1 << 17  # what is held in memory at a time


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
            whole = ~unsettled & (rows["mark"] >= LAP)
            yield rows if whole.all() else rows[whole]


def seen_in(file: RankFile, clocks: Clocks) -> Seen:
    """What is in the trace: events and time span of each layer, and whether all that they name is in the file."""
    seen = Seen()
    for rows in trace_blocks(file):
        clocks.times(rows, seen)
    return seen


def add_trace(reading: Reading, file: RankFile, clock: Clock, cuda_rows: Rows, layers: Sequence[str]) -> None:
    """Put into a reading how much the trace keeps, and what it lost; its events are read by another: trace_events."""
    if not file.header["trace_keep"]:
        return
    seen = seen_in(file, Clocks(clock, CuptiClock(clock, cuda_rows)))
    offered = {layer: count for layer, count in enumerate(file.header["trace_events"].tolist()) if count}
    kept = np.flatnonzero(seen.kept["events"]).tolist()
    _check(file, seen, max((*kept, *offered), default=0), layers)
    for layer in sorted({*kept, *offered}):
        of_layer, count = seen.kept[layer], offered.get(layer, 0)
        lost = max(0, count - int(of_layer["events"])) % 2**63
        reading.facts.lost_trace_events += lost
        reading.figures += _figures(f"trace {layers[layer]}", of_layer, lost, reading.facts.started_ns or 0)
    if offered and not file.header["trace_capacity"]:
        told = "there was no room for the trace (a full disk, or a limit on file sizes): it has no events"
        reading.notes.append(Note(told, Severity.WARNING, str(file.path)))


def _check(file: RankFile, seen: Seen, largest: int, layers: Sequence[str]) -> None:
    """Its events are read later, if at all: that they are damaged must be known before the rest is shown."""
    name, group, phase, layer = (int(value) for value in seen.most[0].tolist())
    if max(layer, largest) >= len(layers):
        raise BadFile(f"{file.path}: layer {max(layer, largest)}, but there are only {len(layers)}")
    groups = sum(len(part.rows) for part in file.parts(ChunkKind.GROUPS))
    if name >= len(file.strings()) or group > groups:
        raise BadFile(f"{file.path}: the trace has a name or a group that is not in the file")
    if phase >= len(PHASES):
        raise BadFile(f"{file.path}: the trace has a phase or a layer that is not known")


def _figures(series: str, kept: Any, lost: int, started_ns: int) -> list[Figure]:
    events, first_ns, last_ns = (int(value) for value in kept.tolist())
    figures = [
        Figure(series, "events kept", float(events), "count"),
        Figure(series, "events lost", float(lost), "count"),
    ]
    if events:
        figures.append(Figure(series, "begins", float(first_ns - started_ns), "ns"))
        figures.append(Figure(series, "spans", float(last_ns - first_ns), "ns"))
    return figures
