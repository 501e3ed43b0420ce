"""What a rank file says of the GPUs of its process beside the tallies: busy time, memory, what was not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.model import INSIDE, Figure, Group, Note, Severity
from rankscope.rank_file import IN_RANGES, ChunkKind, CudaState, GroupKind, LayerNumber, Rows
from rankscope.rank_files.chunks import RankFile, copy_rows

# ---------------------------------------------------------------------------------------------------------------------
# NVTX ranges of a rank file: which lies inside which, and the threads they were on.
DEEPEST = 64  # as the recorder has it
LONGEST = 256  # letters of a name: a damaged file may have one of any length, and each path holds many


FORGETFUL = "NCCL"  # a domain that does not end all its ranges
Ended = set[tuple[int, int]]  # domain's group id, name's string id


def ended_ranges(tallies: Rows) -> Ended:
    """The ranges that ended at least once.

    One of NCCL's that never did is no range: NCCL 2.28 begins ncclCommInitRankConfig and forgets it, and everything
    that came after would lie inside.
    """
    ranges = tallies[tallies["layer"] == LayerNumber.NVTX]
    return set(zip(ranges["group"].tolist(), ranges["name"].tolist(), strict=True))


def range_paths(
    rows: Sequence[Any], labels: Sequence[str], word: Callable[[int], str], ended: Ended
) -> tuple[list[str], list[str]]:
    """By group id: the path of `domain/range` down to a range ("" for other groups), and the label of a tally.

    The label of a range is its domain, so that its rows look like those that are not counted by range.
    """
    paths, domains = [""], [""]
    for number, (label, row) in enumerate(zip(labels[1:], rows, strict=True), 1):
        is_range = int(row["kind"]) == GroupKind.RANGE
        paths.append(_path(number, rows, labels, word, ended) if is_range else "")
        domains.append(_label(labels, int(row["remote_size"])) if is_range else label)
    return paths, domains


def _path(number: int, rows: Sequence[Any], labels: Sequence[str], word: Callable[[int], str], ended: Ended) -> str:
    steps: list[str] = []
    while int(rows[number - 1]["kind"]) == GroupKind.RANGE and len(steps) < DEEPEST:
        row = rows[number - 1]
        domain, name = _label(labels, int(row["remote_size"])), word(int(row["name"]))
        if domain != FORGETFUL or (int(row["remote_size"]), int(row["name"])) in ended:
            steps.append(f"{domain[:LONGEST]}/{name[:LONGEST]}".replace(INSIDE, " "))
        parent = int(row["parent"])
        if not 0 < parent < number:  # what is around a range was there before it
            break
        number = parent
    return INSIDE.join(reversed(steps))


def _label(labels: Sequence[str], number: int) -> str:
    return labels[number] if number < len(labels) else ""


def range_threads(file: RankFile, tallies: Rows, slots: Any) -> list[Group]:
    """The threads on which there were ranges, by the slot of their rows."""
    with_ranges = set(np.unique(slots[np.isin(tallies["layer"], (LayerNumber.NVTX, *IN_RANGES))]).tolist())
    found = {int(row["slot"]): row for part in file.parts(ChunkKind.THREADS) for row in part.rows}
    return [
        Group(found[slot]["name"].decode("utf-8", "replace"), str(slot), "thread", my_rank=int(found[slot]["tid"]))
        for slot in sorted(with_ranges & found.keys())
    ]


# ---------------------------------------------------------------- cuda
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
