"""One pass over the events of one process: what questions about all ranks need of them.

It is a function of the events alone, so that any process, thread or machine may be given it: docs/howto/many-ranks.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rankscope.model.records import API_LAYERS, Layer
from rankscope.model.tables import Words
from rankscope.questions.events.sums import CAUSES, RANGE_SUM, empty_sums, sweep_ranges
from rankscope.questions.gpu.activities import GpuWork, Vocabulary, rows_of_layers
from rankscope.questions.gpu.walk import Gaps, GpuTime, Launches, walked

# ---------------------------------------------------------------------------------------------------------------------
# The ranges of one process (NVTX, framework, profiler), block by block: how long, and how much is their own.
ON_THREADS = (Layer.NVTX, Layer.TORCH, Layer.STEP, Layer.PYTHON)
ON_STREAMS = (Layer.GPU_RANGE,)  # lie in each other on their stream, which is their group
LAYERS = (*ON_THREADS, *ON_STREAMS)
NUMBERED = re.compile(r"#\d+$")  # ProfilerStep#17: every step has a name of its own
MOST_CELLS = 1 << 18
APART = "\x1f"

Array = Any
Key = tuple[str, str, str]  # layer, domain, name


class RangeWork:
    """The ranges of one process, by the thread or stream on which they lie in each other."""

    def __init__(self) -> None:
        self._names = Vocabulary()  # of layer, domain and name in one word
        self._streams = Vocabulary()
        self._lanes: dict[tuple[str, int], list[tuple[Array, Array, Array]]] = {}

    def add(self, columns: Mapping[str, Any], rows: Array) -> None:
        """Those rows of a block, which are ranges."""
        layer, name, group = (
            Words(columns[key].codes[rows], columns[key].values) for key in ("layer", "name", "group")
        )
        codes = self._codes(layer, group, name)
        start_ns, end_ns = (np.asarray(columns[key][rows], np.int64) for key in ("start_ns", "end_ns"))
        on_stream = np.array([value in ON_STREAMS for value in layer.values], np.bool_)[layer.codes]
        thread = threads_of(columns, rows)
        for kind, members, lane in (("thread", ~on_stream, thread), ("stream", on_stream, None)):
            if members.any():
                of = self._streams.codes(Words(group.codes[members], group.values)) if lane is None else lane[members]
                self._put(kind, of, start_ns[members], end_ns[members], codes[members])

    def _put(self, kind: str, lane: Array, *columns: Array) -> None:
        lanes = np.unique(lane) if len(lane) and (lane[0] != lane).any() else lane[:1]
        for lane_number in lanes.tolist():
            own_rows = slice(None) if len(lanes) == 1 else lane == lane_number
            self._lanes.setdefault((kind, lane_number), []).append(tuple(column[own_rows] for column in columns))

    def _codes(self, layer: Words, group: Words, name: Words) -> Array:
        """One number for layer, domain and name: of cells of all three where these are few, else of those that come."""
        sizes = len(layer.values), len(group.values), len(name.values)
        cell = (layer.codes.astype(np.int64) * sizes[1] + group.codes) * sizes[2] + name.codes
        if sizes[0] * sizes[1] * sizes[2] <= MOST_CELLS:
            used = np.flatnonzero(np.bincount(cell, minlength=1))
            place = np.empty(int(used[-1]) + 1 if len(used) else 0, np.int32)
            place[used] = np.arange(len(used))
            inverse = place[cell]
        else:
            used, inverse = np.unique(cell, return_inverse=True)
        words = [_word(cell, layer.values, group.values, name.values) for cell in used.tolist()]
        return self._names.codes(Words(inverse, words))

    def keys(self) -> list[Key]:
        """Layer, domain and name of each sum."""
        return [tuple(word.split(APART, 2)) for word in self._names]

    def sums(self, calls: Mapping[int, tuple[Array, Array, Array]]) -> Array:
        """RANGE_SUM of each key; calls of each thread: start, activities launched and their time, by start."""
        sums = empty_sums(RANGE_SUM, len(self._names))
        nothing = (np.empty(0, np.int64),) * 3
        for (kind, lane), parts in self._lanes.items():
            start_ns, end_ns, codes = (np.concatenate(column) for column in zip(*parts, strict=True))
            start_ns, end_ns, codes = _outer_first(start_ns, end_ns, codes)
            launched = calls.get(lane, nothing) if kind == "thread" else nothing
            sweep_ranges((start_ns, end_ns), codes, launched, sums)
        return sums


def threads_of(columns: Mapping[str, Any], rows: Array) -> Array:
    """The thread of each of these rows; 0 where nobody tells."""
    threads = columns.get("thread")
    return np.zeros(len(rows), np.int64) if threads is None else np.asarray(threads)[rows].astype(np.int64)


def _word(cell: int, layers: Sequence[str], groups: Sequence[str], names: Sequence[str]) -> str:
    rest, name = divmod(cell, len(names))
    layer, group = divmod(rest, len(groups))
    domain = groups[group] if layers[layer] == Layer.NVTX else ""
    return APART.join((layers[layer], domain, NUMBERED.sub("", names[name])))


def _outer_first(start_ns: Array, end_ns: Array, codes: Array) -> tuple[Array, Array, Array]:
    """By start; of those that begin together the longest first."""
    step_ns = np.diff(start_ns)
    if bool((step_ns > 0).all()):
        return start_ns, end_ns, codes
    if bool((step_ns < 0).any()):
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns, codes = start_ns[order], end_ns[order], codes[order]
    together = np.concatenate([[False], start_ns[1:] == start_ns[:-1]])
    together[:-1] |= together[1:]
    rows = np.flatnonzero(together)
    if len(rows):
        order = rows[np.lexsort((-end_ns[rows], start_ns[rows]))]
        start_ns[rows], end_ns[rows], codes[rows] = start_ns[order], end_ns[order], codes[order]
    return start_ns, end_ns, codes


# ---------------------------------------------------------------- tables


Columns = Mapping[str, Any]


def trace_tables(blocks: Iterable[Columns]) -> dict[str, Columns]:
    """The tables of TRACE_TABLES, of the events of one process."""
    gpu, launches, ranges = GpuWork(), Launches(), RangeWork()
    for columns in blocks:
        _add(columns, gpu, launches, ranges)
    devices, gaps = _devices(gpu, launches)
    return {
        "activity_sums": _activities(gpu),
        "device_sums": devices,
        "gap_sums": _gaps(gpu, gaps),
        "range_sums": _ranges(gpu, launches, ranges),
    }


def _add(columns: Columns, gpu: GpuWork, launches: Launches, ranges: RangeWork) -> None:
    rows = rows_of_layers(columns, (Layer.GPU,))
    if len(rows):
        gpu.add(columns, rows)
    if columns.get("correlation") is not None:
        rows = rows_of_layers(columns, API_LAYERS)
        number = np.ma.filled(columns["correlation"][rows], -1).astype(np.int64)
        launches.add(number, columns["start_ns"][rows], threads_of(columns, rows))
    rows = rows_of_layers(columns, LAYERS)
    if len(rows):
        ranges.add(columns, rows)


def _activities(gpu: GpuWork) -> Columns:
    names = {name: lengths for name, lengths in gpu.names.items() if lengths.calls}
    fields = ("calls", "total_ns", "min_ns", "max_ns", "deviations_ns2")
    return {"name": list(names), **{key: [getattr(lengths, key) for lengths in names.values()] for key in fields}}


def _devices(gpu: GpuWork, launches: Launches) -> tuple[Columns, list[Gaps]]:
    columns: dict[str, list[Any]] = {"device": [], **{key: [] for key in GpuTime.__slots__}}
    gaps: list[Gaps] = []
    for name, device in gpu.devices.items():
        time, device_gaps = walked(device, len(gpu.streams), launches)
        gaps.append(device_gaps)
        columns["device"].append(name)
        for key in GpuTime.__slots__:
            columns[key].append(getattr(time, key))
    return columns, gaps


def _gaps(gpu: GpuWork, all_gaps: list[Gaps]) -> Columns:
    """Stream by stream and cause by cause."""
    streams = list(gpu.streams)
    rows = []
    for gaps in all_gaps:
        for key, lengths_ns in gaps.by_key():
            stream, cause = divmod(key, len(CAUSES))
            figures = len(lengths_ns), int(lengths_ns.sum()), float(np.median(lengths_ns)), int(lengths_ns.max())
            rows.append((stream, streams[stream], CAUSES[cause], *figures))
    names = ("place", "stream", "cause", "gaps", "idle_ns", "median_ns", "max_ns")
    columns = list(zip(*sorted(rows, key=lambda row: (row[0], CAUSES.index(row[2]))), strict=True)) or [()] * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _ranges(gpu: GpuWork, launches: Launches, ranges: RangeWork) -> Columns:
    keys = ranges.keys()
    sums = ranges.sums(_launched(gpu, launches) if keys else {})
    layer, domain, name = (list(column) for column in zip(*keys, strict=True)) if keys else ([], [], [])
    columns: dict[str, Any] = {"layer": layer, "domain": domain, "name": name}
    columns |= {key: sums[key].tolist() for key in ("calls", "total_ns", "own_ns", "min_ns", "max_ns")}
    for key in ("activities", "own_activities", "gpu_ns", "own_gpu_ns"):
        columns[key] = sums[key].tolist() if launches else [None] * len(sums)
    return columns


def _launched(gpu: GpuWork, launches: Launches) -> dict[int, tuple[Array, Array, Array]]:
    """The calls of each thread that launched something, by their start: how many activities, and their time."""
    if not launches:
        return {}
    _, start_ns, thread = launches.calls()
    parts = [(np.empty(0, np.int64), np.empty(0))]
    for run in (run for device in gpu.devices.values() for run in device.runs if run.correlation is not None):
        at, known = launches.of(run.correlation)
        parts.append((at[known], run.length[known].astype(np.float64)))
    at, length_ns = (np.concatenate(column) for column in zip(*parts, strict=True))
    count = np.bincount(at, minlength=len(start_ns))
    # sums of whole numbers below 2^53, which a double holds exactly
    time_ns = np.bincount(at, length_ns, len(start_ns)).astype(np.int64)
    launched = {}
    for thread_id in np.unique(thread).tolist():
        rows = np.flatnonzero((thread == thread_id) & (count > 0))
        rows = rows[np.argsort(start_ns[rows], kind="stable")]
        launched[thread_id] = start_ns[rows], count[rows], time_ns[rows]
    return launched
