"""What a rank file says of the GPUs of its process beside the tallies: busy time, memory, what was not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.model import Figure, Note, Severity
from rankscope.rank_file import ChunkKind, CudaState, Rows
from rankscope.rank_files.chunks import RankFile
from rankscope.readers.rows import copy_rows

TIMES = {
    "busy": "busy_ns",
    "compute": "compute_ns",
    "communication": "communication_ns",
    "copy": "copy_ns",
    "communication hidden": "hidden_ns",
    "too late to be placed, at most": "late_ns",
}
COUNTS = {
    "activities": "activities",
    "allocations": "allocations",
    "releases": "releases",
    "allocations out of pools": "pool_allocations",
    "unified memory moves": "migrations",
    "unified memory fault groups": "gpu_faults",
}
SIZES = {
    "allocated": "allocated_bytes",
    "released": "released_bytes",
    "memory in use": "current_bytes",
    "memory in use, peak": "peak_bytes",
    "memory pools": "pool_bytes",
    "memory pools, peak": "pool_peak_bytes",
    "out of pools": "pool_used_bytes",
    "out of pools, peak": "pool_used_peak_bytes",
    "unified memory to the device": "migrated_in_bytes",
    "unified memory to the host": "migrated_out_bytes",
}
GAP_NAMES = ("< 1 us", "< 10 us", "< 100 us", "< 1 ms", "< 10 ms", "< 100 ms", "< 1 s", ">= 1 s")
LOSSES = {
    "dropped": "records were dropped by CUPTI: counts and times of the GPU are too small",
    "unfinished": "GPU records without a start or an end were left out",
    "lost_ranges": "NVTX ranges were left out: too many were open at once",
    "folded_ranges": "NVTX ranges are under '(ranges of other names)': there are too many names",
    "folded_streams": "GPU activities are under their device: there are too many streams",
    "unattributed": "GPU activities are in no NVTX range: the call that launched them is not known",
    "unplaced_calls": "CUDA calls are in no NVTX range: there was no room to wait for it",
    "late_markers": "starts or ends of NVTX ranges came late: what was launched then may be in the wrong one",
    "folded_nodes": "NVTX ranges are not told apart by what is around them: there are too many",
    "folded_work": "calls and activities in NVTX ranges are under '(other work)': there are too many names",
}


def cuda_rows_of(file: RankFile) -> tuple[Rows, Rows, int]:
    """How CUPTI was listened to, the devices, and how many rows are torn."""
    how = [part.rows.copy() for part in file.parts(ChunkKind.CUDA)]
    copies = [copy_rows(part.rows, "seq") for part in file.parts(ChunkKind.DEVICES)]
    devices = np.concatenate([np.zeros(0, rank_file.DEVICE), *(rows for rows, _ in copies)])
    torn = sum(int(unsettled.sum()) for _, unsettled in copies)
    return np.concatenate([np.zeros(0, rank_file.CUDA), *how]), devices, torn


def device_figures(how: Rows, devices: Rows) -> list[Figure]:
    """The sums of each device, as figures named after what they are."""
    figures = [figure for row in devices for figure in _of_device(row)]
    for row in how:
        if row["pinned_peak_bytes"]:
            figures.append(Figure("host", "pinned memory in use, peak", _number(row["pinned_peak_bytes"]), "bytes"))
        if row["cpu_faults"]:
            figures.append(Figure("host", "unified memory faults", _number(row["cpu_faults"]), "count"))
    return figures


def _of_device(row: Any) -> Iterator[Figure]:
    series = f"GPU {row['device']}"
    if row["activities"]:
        yield Figure(series, "first to last", _number(row["last_ns"]) - _number(row["first_ns"]), "ns")
        for name, field in TIMES.items():
            if field != "late_ns" or row["late"]:
                yield Figure(series, name, _number(row[field]), "ns")
        for name, gaps, gap_ns in zip(GAP_NAMES, row["gaps"], row["gap_ns"], strict=True):
            if gaps:
                yield Figure(series, f"idle gaps {name}", _number(gaps), "count")
                yield Figure(series, f"idle in gaps {name}", _number(gap_ns), "ns")
    if row["migration_ns"]:
        yield Figure(series, "unified memory moving", _number(row["migration_ns"]), "ns")
    for names, unit in ((COUNTS, "count"), (SIZES, "bytes")):
        for name, field in names.items():
            if row[field]:
                yield Figure(series, name, _number(row[field]), unit)


def _number(value: Any) -> float:
    return float(value)


def cuda_notes(how: Rows, devices: Rows, word: Callable[[int], str], where: str) -> list[Note]:
    """What is to be said about the recording of the GPU."""
    notes: list[Note] = []
    for row in how:
        if row["note"]:
            notes.append(Note(word(int(row["note"])), Severity.WARNING, where))
        for field, text in LOSSES.items():
            if row[field]:
                notes.append(Note(f"{row[field]} {text}", Severity.WARNING, where))
        if row["instants"]:
            notes.append(Note(f"{row['instants']} GPU activities have equal start and end", Severity.NOTE, where))
        if row["unified"] == 2:
            notes.append(Note("CUPTI refused to record unified memory", Severity.NOTE, where))
        if row["open_ranges"] and row["state"] == CudaState.RECORDING:
            notes.append(Note(f"{row['open_ranges']} NVTX ranges had begun and not ended", Severity.NOTE, where))
    for row in devices[devices["late"] > 0]:
        told = f"GPU {row['device']}: {row['late']} activities came too late to be placed"
        notes.append(
            Note(f"{told}: up to {row['late_ns'] / 1e6:.3g} ms are missing in its times", Severity.WARNING, where)
        )
    return notes
