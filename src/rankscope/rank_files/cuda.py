"""What a rank file says of the GPUs of its process beside the tallies: busy time, memory, what was not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.model.gpu import DeviceGaps, DeviceTotals, GpuRecording
from rankscope.model.records import INSIDE, Figure, Group, Note, Reading, Severity
from rankscope.rank_file import IN_RANGES, Backend, ChunkKind, CudaState, GroupKind, LayerNumber, Rows
from rankscope.rank_files.chunks import RankFile, copy_rows
from rankscope.rank_files.clock import CuptiClock

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
    threads = {int(row["slot"]): row for part in file.parts(ChunkKind.THREADS) for row in part.rows}
    return [
        Group(threads[slot]["name"].decode("utf-8", "replace"), str(slot), "thread", my_rank=int(threads[slot]["tid"]))
        for slot in sorted(with_ranges & threads.keys())
    ]


# ---------------------------------------------------------------- cuda
TIMES = ("busy_ns", "compute_ns", "communication_ns", "copy_ns", "hidden_ns")  # of a device that did anything
COUNTED = (
    *("activities", "late_ns", "allocations", "allocated_bytes", "releases", "released_bytes", "current_bytes"),
    *("peak_bytes", "pool_bytes", "pool_peak_bytes", "pool_allocations", "pool_releases", "pool_used_bytes"),
    "pool_used_peak_bytes",
)
UNIFIED = ("migrated_in_bytes", "migrated_out_bytes", "migrations", "migration_ns", "gpu_faults")
LEAST_WINDOWS, LEAST_MILLISTEPS = 3, 1000  # for an error to be told
REFUSED = 2  # CUPTI's answer when it was asked for unified memory
SHORTEST_GAP_NS = 1000  # bound of the first class of gaps; that of each other one is ten times that before
LOSSES = {
    "dropped": "records were dropped by CUPTI: counts and times of the GPU are too small",
    "unfinished": "GPU records without a start or an end were left out",
    "lost_ranges": "NVTX ranges were left out: too many were open at once",
    "folded_ranges": "NVTX ranges are under '(ranges of other names)': there are too many names",
    "folded_streams": "GPU activities are under their device: there are too many streams",
    "unattributed": "GPU activities are in no NVTX range: the call that launched them is not known",
    "unplaced_calls": "CUDA calls are in no NVTX range: no room was left to hold them until theirs was known",
    "late_markers": "starts or ends of NVTX ranges arrived late: what was launched then may be in the wrong range",
    "folded_nodes": "NVTX ranges are not separated by what is around them: there are too many",
    "folded_work": "calls and activities in NVTX ranges are under '(other work)': there are too many names",
}


BACKENDS: dict[int, str] = {Backend.ZE: "Level Zero", Backend.OPENCL: "OpenCL", Backend.HIP: "HIP"}


def add_runtimes(reading: Reading, file: RankFile, word: Callable[[int], str]) -> None:
    """Put into a reading how the runtimes other than CUDA's were listened to, and what memory they gave out."""
    where = str(file.path)
    for row in (row for part in file.parts(ChunkKind.RUNTIMES) for row in part.rows.copy()):
        runtime = BACKENDS.get(int(row["backend"]), "an unknown runtime")
        if row["note"]:
            reading.notes.append(Note(word(int(row["note"])), Severity.WARNING, where))
        if row["untimed"]:
            text = (
                f"{row['untimed']} of {row['launched']} kernels and copies of {runtime} are in no table: their events"
            )
            text += " have no times"
            text += " (shared with another process, or reset by the device)" if row["backend"] == Backend.ZE else ""
            reading.notes.append(Note(text, Severity.WARNING, where))
        under_way = int(row["launched"]) - int(row["timed"]) - int(row["untimed"])
        if under_way > 0:
            reading.notes.append(
                Note(f"{under_way} kernels and copies of {runtime} were under way at the end", Severity.NOTE, where)
            )
        for kind in ("host", "shared"):
            if row[f"{kind}_peak_bytes"]:
                value = float(_whole(row[f"{kind}_peak_bytes"]))
                reading.figures.append(Figure(f"{runtime} memory", f"{kind} memory, peak", value, "bytes"))


def cuda_rows_of(file: RankFile) -> tuple[Rows, Rows, int]:
    """How CUPTI was listened to, the devices, and how many rows are torn."""
    how = [part.rows.copy() for part in file.parts(ChunkKind.CUDA)]
    copies = [copy_rows(part.rows, "seq") for part in file.parts(ChunkKind.DEVICES)]
    devices = np.concatenate([np.zeros(0, rank_file.DEVICE), *(rows for rows, _ in copies)])
    torn = sum(int(unsettled.sum()) for _, unsettled in copies)
    return np.concatenate([np.zeros(0, rank_file.CUDA), *how]), devices, torn


def add_devices(reading: Reading, how: Rows, devices: Rows) -> None:
    """Put into a reading the sums of each device, and what of the host's memory they used."""
    refused = bool((how["unified"] == REFUSED).any())
    reading.devices = [_totals(row, refused) for row in devices]
    reading.device_gaps = [gaps for row in devices for gaps in _gaps(row)]
    reading.facts.devices = ", ".join(f"GPU {device.device}" for device in reading.devices)
    if len(how):
        reading.facts.pinned_peak_bytes = _whole(how["pinned_peak_bytes"].max())
        reading.facts.unified_faults = None if refused else _whole(how["cpu_faults"].max())


def _totals(row: Any, refused: bool) -> DeviceTotals:
    totals = DeviceTotals(int(row["device"]), **{name: _whole(row[name]) for name in COUNTED})
    for name in UNIFIED:
        setattr(totals, name, None if refused else _whole(row[name]))
    if totals.activities:
        # 0 of earlier recorders, which recorded all the time
        totals.span_ns = _whole(row["watched_ns"]) or _whole(row["last_ns"]) - _whole(row["first_ns"])
        for name in TIMES:
            setattr(totals, name, _whole(row[name]))
    return totals


def _gaps(row: Any) -> Iterator[DeviceGaps]:
    """By length; the last class has no end."""
    least_ns, bound_ns = 0, SHORTEST_GAP_NS
    classes = len(row["gaps"])
    for at, (gaps, idle_ns) in enumerate(zip(row["gaps"], row["gap_ns"], strict=True), 1):
        if gaps and row["activities"]:
            below_ns = bound_ns if at < classes else None
            yield DeviceGaps(int(row["device"]), least_ns, below_ns, _whole(gaps), _whole(idle_ns))
        least_ns, bound_ns = bound_ns, 10 * bound_ns


def _whole(value: Any) -> int:
    """As the tables hold it: 63 bits are enough for any true number."""
    return min(int(value), 2**63 - 1)


def gpu_recordings(file: RankFile, how: Rows, clock: CuptiClock, end_unix_ns: int | None) -> list[GpuRecording]:
    """When the GPUs were recorded, where that was not all the time, and what it cost."""
    parts = file.parts(ChunkKind.WINDOWS)
    if not len(how) or not parts:
        return []
    ring, unsettled = copy_rows(parts[0].rows, "number", zero_is_busy=True)
    windows = ring[~unsettled & (ring["number"] > 0)]
    row = how[0]
    since_ns = int(row["window_begin_ns"])
    going_ns = max(0, int(row["flushed_ns"]) - since_ns) if since_ns else 0
    is_measured = bool(row["costs"])
    is_known = is_measured or not row["seen_steps"]
    recorded_ns = _whole(row["window_ns"]) + going_ns
    first_ns = int(row["started_ns"])  # a little earlier, where the first window has been overwritten
    if len(windows) and int(windows["number"].min()) == 1:
        first_ns = int(windows["begin_ns"].min())
    passed_ns = end_unix_ns - int(clock.unix_ns(first_ns)) if clock.known and end_unix_ns is not None else 0
    return [
        GpuRecording(
            _whole(row["windows"]),
            recorded_ns,
            max(passed_ns, recorded_ns),
            _whole(row["seen_steps"]),
            int(row["window_millisteps"]) / 1000,
            _whole(row["costs"]),
            int(row["cost_ppm"]) / 1e6 if is_measured else None,
            int(row["cost_error_ppm"]) / 1e6 if is_measured else None,
            _whole(row["spent_ns"]) if is_known else None,
            _work_error(windows),
        )
    ]


def _work_error(windows: Rows) -> float | None:
    """Windows are a sample of the job's steps: by how much would their kernel time differ in another sample?"""
    windows_full = windows[windows["millisteps"] >= LEAST_MILLISTEPS]
    if len(windows_full) < LEAST_WINDOWS:
        return None
    each = windows_full["kernel_ns"].astype(np.float64) / windows_full["millisteps"]
    mean = float(each.mean())
    return float(each.std(ddof=1)) / len(windows_full) ** 0.5 / mean if mean else None


def cuda_notes(how: Rows, devices: Rows, word: Callable[[int], str], where: str) -> list[Note]:
    """What is to be said about the recording of the GPU."""
    notes: list[Note] = []
    for row in how:
        if row["note"]:
            notes.append(Note(word(int(row["note"])), Severity.WARNING, where))
        for field, text in LOSSES.items():
            if field == "unfinished" and row[field] and row["windows"]:
                text = "GPU activities were not finished when a recording window ended: they are in no table"
                notes.append(Note(f"{row[field]} {text}", Severity.NOTE, where))
            elif row[field]:
                notes.append(Note(f"{row[field]} {text}", Severity.WARNING, where))
        if row["calls_begin_ns"]:
            late_s = (int(row["calls_begin_ns"]) - int(row["started_ns"])) / 1e9
            text = f"GPU work later than {late_s:.1f} s after CUDA's start may be in a wrong step (old recorder)"
            notes.append(Note(text, Severity.NOTE, where))
        if row["instants"]:
            notes.append(Note(f"{row['instants']} GPU activities have equal start and end", Severity.NOTE, where))
        if row["unified"] == REFUSED:
            notes.append(Note("CUPTI refused to record unified memory", Severity.NOTE, where))
        if row["open_ranges"] and row["state"] == CudaState.RECORDING:
            notes.append(Note(f"{row['open_ranges']} NVTX ranges had begun but not ended", Severity.NOTE, where))
    for row in devices[devices["late"] > 0]:
        sentence = f"GPU {row['device']}: {row['late']} activities arrived too late to be placed"
        notes.append(
            Note(f"{sentence}: up to {row['late_ns'] / 1e6:.3g} ms are missing in its times", Severity.WARNING, where)
        )
    return notes
