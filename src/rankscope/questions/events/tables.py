"""One pass over the events of one process: what questions about all ranks need of them.

It is a function of the events alone, so that any process, thread or machine may be given it: docs/at-scale.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rankscope.analyse.launches import Launches
from rankscope.analyse.range_sums import LAYERS as RANGE_LAYERS
from rankscope.analyse.range_sums import RangeWork, threads_of
from rankscope.analyse.trace_twins import CAUSES
from rankscope.questions.gpu.activities import GpuWork, rows_of_layers
from rankscope.questions.gpu.walk import Gaps, GpuTime, walked

API_LAYERS = ("cuda_api", "hip_api", "xpu_api")

Array = Any
Columns = Mapping[str, Any]


def trace_tables(blocks: Iterable[Columns]) -> dict[str, Columns]:
    """The tables of model_traces.TRACE_TABLES, of the events of one process."""
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
    rows = rows_of_layers(columns, ("gpu",))
    if len(rows):
        gpu.add(columns, rows)
    if columns.get("correlation") is not None:
        rows = rows_of_layers(columns, API_LAYERS)
        number = np.ma.filled(columns["correlation"][rows], -1).astype(np.int64)
        launches.add(number, columns["start_ns"][rows], threads_of(columns, rows))
    rows = rows_of_layers(columns, RANGE_LAYERS)
    if len(rows):
        ranges.add(columns, rows)


def _activities(gpu: GpuWork) -> Columns:
    names = {name: one for name, one in gpu.names.items() if one.calls}
    fields = ("calls", "total_ns", "min_ns", "max_ns", "deviations_ns2")
    return {"name": list(names), **{key: [getattr(one, key) for one in names.values()] for key in fields}}


def _devices(gpu: GpuWork, launches: Launches) -> tuple[Columns, list[Gaps]]:
    told: dict[str, list[Any]] = {"device": [], **{key: [] for key in GpuTime.__slots__}}
    gaps: list[Gaps] = []
    for name, device in gpu.devices.items():
        time, found = walked(device, len(gpu.streams), launches)
        gaps.append(found)
        told["device"].append(name)
        for key in GpuTime.__slots__:
            told[key].append(getattr(time, key))
    return told, gaps


def _gaps(gpu: GpuWork, found: list[Gaps]) -> Columns:
    """Stream by stream and cause by cause."""
    streams = list(gpu.streams)
    rows = []
    for gaps in found:
        for key, lengths_ns in gaps.by_key():
            stream, cause = divmod(key, len(CAUSES))
            told = len(lengths_ns), int(lengths_ns.sum()), float(np.median(lengths_ns)), int(lengths_ns.max())
            rows.append((stream, streams[stream], CAUSES[cause], *told))
    names = ("place", "stream", "cause", "gaps", "idle_ns", "median_ns", "max_ns")
    columns = list(zip(*sorted(rows, key=lambda row: (row[0], CAUSES.index(row[2]))), strict=True)) or [()] * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _ranges(gpu: GpuWork, launches: Launches, ranges: RangeWork) -> Columns:
    keys = ranges.keys()
    sums = ranges.sums(_launched(gpu, launches) if keys else {})
    layer, domain, name = (list(column) for column in zip(*keys, strict=True)) if keys else ([], [], [])
    told: dict[str, Any] = {"layer": layer, "domain": domain, "name": name}
    told |= {key: sums[key].tolist() for key in ("calls", "total_ns", "own_ns", "min_ns", "max_ns")}
    for key in ("activities", "own_activities", "gpu_ns", "own_gpu_ns"):
        told[key] = sums[key].tolist() if launches else [None] * len(sums)
    return told


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
    made = {}
    for one in np.unique(thread).tolist():
        rows = np.flatnonzero((thread == one) & (count > 0))
        rows = rows[np.argsort(start_ns[rows], kind="stable")]
        made[one] = start_ns[rows], count[rows], time_ns[rows]
    return made
