"""The trace of a rank file: its records oldest first, on the Unix clock, and how many of them there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.model.records import PHASES, BadFile, Figure, Note, Reading, Severity
from rankscope.rank_file import LAP, ChunkKind, LayerNumber, Rows, TraceKeep
from rankscope.rank_files.chunks import RankFile, copy_rows, native_function
from rankscope.rank_files.clock import Clock, CuptiClock

# ---------------------------------------------------------------------------------------------------------------------
# Times of trace records on the Unix clock, and what there is of each layer (native/read/trace_times.c).
LAYERS = 16  # RS_TRACE_LAYERS
UNTRACED = {LayerNumber.HOROVOD: "Horovod", LayerNumber.JAX: "JAX"}  # numbered above those
KEPT = np.dtype([("events", "i8"), ("first_ns", "i8"), ("last_ns", "i8")])
MOST = np.dtype([("name", "u4"), ("group", "u4"), ("phase", "u4"), ("layer", "u4")])
CLOCK = np.dtype([("origin", "i8"), ("origin_unix_ns", "i8"), ("ns_per_unit", "f8")])
FURTHEST = 2.0**61  # 73 years: added to the largest time it still fits
IN_NS = sum(1 << layer for layer in rank_file.IN_NS)


def _nothing_kept() -> Any:
    kept_rows = np.zeros(LAYERS, KEPT)
    kept_rows["first_ns"], kept_rows["last_ns"] = 2**63 - 1, -(2**63)
    return kept_rows


@dataclass(slots=True)
class Seen:
    """What came by: events and time span of each layer, and the largest numbers that point elsewhere."""

    kept: Any = field(default_factory=_nothing_kept)
    most: Any = field(default_factory=lambda: np.zeros(1, MOST))


@dataclass(slots=True)
class TraceClocks:
    """The clocks of a process by which its events are timed, each layer by its own."""

    ticks: Clock
    cupti: CuptiClock

    def times(self, rows: Rows, seen: Seen | None = None) -> tuple[Any, Any]:
        """Start and end of each event, Unix time; what they tell is added to what was seen."""
        seen = seen or Seen()
        native = native_function("rankscope_trace_times")
        rows = np.ascontiguousarray(rows)
        start_ns, end_ns = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        clocks = self._as_rows()
        into = (start_ns.ctypes.data, end_ns.ctypes.data, seen.kept.ctypes.data, seen.most.ctypes.data)
        native(rows.ctypes.data, len(rows), clocks.ctypes.data, IN_NS, *into)
        return start_ns, end_ns

    def _as_rows(self) -> Any:
        rows = np.zeros(2, CLOCK)
        rows["origin"] = self.ticks.origin_ticks % 2**63, self.cupti.origin_ns % 2**63
        rows["origin_unix_ns"] = min(self.ticks.origin_unix_ns, 2**61), self.cupti.origin_unix_ns
        rows["ns_per_unit"] = self.ticks.ns_per_tick, self.cupti.rate
        return rows


# ---------------------------------------------------------------- trace
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
            settled = ~unsettled & (rows["mark"] >= LAP)
            yield rows if settled.all() else rows[settled]


def seen_in(file: RankFile, clocks: TraceClocks) -> Seen:
    """What is in the trace: events and time span of each layer, and whether all that they name is in the file."""
    seen = Seen()
    for rows in trace_blocks(file):
        clocks.times(rows, seen)
    return seen


def add_trace(reading: Reading, file: RankFile, clock: Clock, cuda_rows: Rows, layers: Sequence[str]) -> None:
    """Put into a reading how much the trace keeps, and what it lost; its events are read by another: trace_events."""
    if not file.header["trace_keep"]:
        return
    seen = seen_in(file, TraceClocks(clock, CuptiClock(clock, cuda_rows)))
    offered = {layer: count for layer, count in enumerate(file.header["trace_events"].tolist()) if count}
    layers_kept = np.flatnonzero(seen.kept["events"]).tolist()
    _check(file, seen, max((*layers_kept, *offered), default=0), layers)
    for layer in sorted({*layers_kept, *offered}):
        of_layer, count = seen.kept[layer], offered.get(layer, 0)
        lost = max(0, count - int(of_layer["events"])) % 2**63
        reading.facts.lost_trace_events += lost
        reading.figures += _figures(f"trace {layers[layer]}", of_layer, lost, reading.facts.started_ns or 0)
    if offered and not file.header["trace_capacity"]:
        text = "no space for the trace (a full disk, or a limit on file sizes): it has no events"
        reading.notes.append(Note(text, Severity.WARNING, str(file.path)))


def add_untraced(reading: Reading, file: RankFile, tallies: Rows) -> None:
    """Say which layers the trace has no place for, where there is one: their calls are summed up only."""
    if not file.header["trace_keep"]:
        return
    present = set(np.unique(tallies["layer"]).tolist())
    layers = [name for layer, name in UNTRACED.items() if int(layer) in present]
    if layers:
        text = f"the trace has no events of {' and '.join(layers)}: their calls are summed up only (table tallies)"
        reading.notes.append(Note(text, Severity.NOTE, str(file.path)))


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


def _figures(series: str, totals: Any, lost: int, started_ns: int) -> list[Figure]:
    events, first_ns, last_ns = (int(value) for value in totals.tolist())
    figures = [
        Figure(series, "events kept", float(events), "count"),
        Figure(series, "events lost", float(lost), "count"),
    ]
    if events:
        figures.append(Figure(series, "begins", float(first_ns - started_ns), "ns"))
        figures.append(Figure(series, "spans", float(last_ns - first_ns), "ns"))
    return figures
