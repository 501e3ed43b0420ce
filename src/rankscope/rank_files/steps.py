"""What a rank file says of the training steps of its process, and of the moments between its phases."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.model.records import MARKS, Mark
from rankscope.rank_file import ChunkKind, DeviceStepFlag, Idle, MarkKind, Part, Rows, StepFlag
from rankscope.rank_files.chunks import RankFile, copy_rows
from rankscope.rank_files.clock import Clock, CuptiClock

LARGEST_NS = 2.0**62
WARMUP_STEPS = 2  # as the recorder has it
LARGEST_COUNT = np.uint64(2**63 - 1)
BLOCK_TIMES = ("least", "quarter", "median", "three_quarters", "most", "long", "exposed", "covered", "checkpoint", "gc")
READ_TRIES = 8
IN_TICKS = ("progress", "covered", "gc")
IN_NS = ("cpu_ns", "process_cpu_ns", "runnable_ns")
COUNTS = (
    "collectives",
    "collective_bytes",
    "gc_runs",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
    "process_involuntary_switches",
    "backwards",
    "optimizer_steps",
)


def step_rows_of(file: RankFile) -> tuple[Rows, int]:
    """The steps that the ring still holds, oldest first, and how many newer ones have taken the place of."""
    parts = file.parts(ChunkKind.STEPS)
    if not parts or not len(parts[0].rows):
        return np.zeros(0, rank_file.STEP), 0
    ring, unsettled = copy_rows(parts[0].rows, "number", zero_is_busy=True)
    numbers = ring["number"].astype(np.int64)
    fits = np.flatnonzero(~unsettled & (numbers > 0) & ((numbers - 1) % len(ring) == np.arange(len(ring))))
    in_order = ring[fits[np.argsort(numbers[fits], kind="stable")]]
    return in_order, int(max(0, numbers.max() - len(ring)))


def step_columns(rows: Rows, clock: Clock) -> dict[str, Any]:
    """The columns of model.Step."""
    begin_ns, end_ns = clock.unix_ns(rows["begin_ticks"]), clock.unix_ns(rows["end_ticks"])
    parts = _ns(np.column_stack([rows["part_ticks"], rows["compute_ticks"]]), clock.ns_per_tick)
    blocked = _ns(np.column_stack([rows["blocked_ticks"], rows["blocked_compute_ticks"]]), clock.ns_per_tick)
    columns = {"number": rows["number"].astype(np.int64), "begin_ns": begin_ns, "end_ns": end_ns}
    columns |= {f"{part.name.lower()}_ns": parts[:, part] for part in Part}
    columns |= {f"blocked_{part.name.lower()}_ns": blocked[:, part] for part in Part}
    columns["exposed_ns"] = np.minimum(blocked.astype(np.float64).sum(axis=1), LARGEST_NS).astype(np.int64)
    columns |= {f"{name}_ns": _ns(rows[f"{name}_ticks"], clock.ns_per_tick) for name in IN_TICKS}
    columns["hidden_ns"] = np.maximum(columns["covered_ns"] - columns["exposed_ns"], 0)
    columns |= {name: _ns(rows[name], 1.0) for name in IN_NS}
    columns |= {name: (rows[name].astype(np.uint64) & LARGEST_COUNT).astype(np.int64) for name in COUNTS}
    return columns | {flag.name.lower(): (rows["flags"] & flag) != 0 for flag in StepFlag if flag.name}


def step_block_rows_of(file: RankFile) -> Rows:
    """The blocks of steps in the order of time, each step in one of them."""
    rows = np.zeros(0, rank_file.STEP_BLOCK)
    for _ in range(READ_TRIES):  # while rows were copied one by one, two of them may have become a third
        rows = _in_order(file)
        if not len(rows) or (rows["first"][0] == 1 and (np.diff(rows["first"]) == rows["steps"][:-1]).all()):
            break
    return rows


def _in_order(file: RankFile) -> Rows:
    parts = file.parts(ChunkKind.STEP_BLOCKS)
    if not parts:
        return np.zeros(0, rank_file.STEP_BLOCK)
    copied, unsettled = copy_rows(parts[0].rows, "seq")
    rows = copied[~unsettled & (copied["steps"] > 0) & (copied["first"] > 0)]
    rows = rows[np.lexsort((-rows["steps"].astype(np.int64), rows["first"]))]
    ends = rows["first"].astype(np.int64) + rows["steps"]
    before = np.maximum.accumulate(np.concatenate([[0], ends[:-1]])) if len(rows) else ends
    return rows[rows["first"] >= before]  # two that were joined lie beside what they became until their rows are freed


def step_block_columns(rows: Rows, clock: Clock) -> dict[str, Any]:
    """The columns of model.StepBlock."""
    columns = {name: rows[name].astype(np.int64) for name in ("first", "steps", "saved", "long_steps")}
    columns |= {f"{name}_ns": clock.unix_ns(rows[f"{name}_ticks"]) for name in ("begin", "end")}
    columns |= {f"{name}_ns": _ns(rows[f"{name}_ticks"], clock.ns_per_tick) for name in BLOCK_TIMES}
    own = _ns(rows["own_ticks"], clock.ns_per_tick)
    columns |= {f"own_{part.name.lower()}_ns": own[:, part] for part in Part}
    columns |= {name: _ns(rows[name], 1.0) for name in IN_NS}
    return columns | {"warmup": (rows["flags"] & StepFlag.WARMUP) != 0}


def _ns(values: Any, rate: float) -> Any:
    """Sums as whole nanoseconds; what a damaged record holds in place of a number becomes 0."""
    clean = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float64)
    return np.clip(clean * rate, 0, LARGEST_NS).astype(np.int64)


def device_step_columns(file: RankFile, clock: CuptiClock) -> dict[str, Any]:
    """The columns of model.DeviceStep, by device and step."""
    parts = file.parts(ChunkKind.DEVICE_STEPS)
    if not parts:
        return {}
    ring, unsettled = copy_rows(parts[0].rows, "number", zero_is_busy=True)
    rows = ring[~unsettled & (ring["number"] > 0)]
    rows = rows[np.lexsort((rows["number"], rows["device"]))]
    columns = {name: rows[name].astype(np.int64) for name in ("number", "device", "kernels", "copies", "sync_calls")}
    columns |= {name: clock.unix_ns(rows[name]) for name in ("begin_ns", "end_ns")}
    columns |= {name: _ns(rows[name], 1.0) for name in ("compute_ns", "exposed_ns", "copy_ns", "kernel_ns", "sync_ns")}
    columns["overlapped_ns"] = _ns(rows["hidden_ns"], 1.0)
    columns |= {f"idle_{cause.name.lower()}_ns": _ns(rows["idle_ns"][:, cause], 1.0) for cause in Idle}
    columns |= {name: (rows[name] & LARGEST_COUNT).astype(np.int64) for name in ("copy_bytes", "pageable_bytes")}
    _share_out_waits(columns, (rows["flags"] & DeviceStepFlag.NO_WAITS) != 0)
    flags = (DeviceStepFlag.CUT, DeviceStepFlag.BY_TIME)
    return columns | {str(flag.name).lower(): (rows["flags"] & flag) != 0 for flag in flags}


def _share_out_waits(columns: dict[str, Any], unknown: Any) -> None:
    """Of the steps whose waits for the device were not recorded, as large a part of the host's idle time is waiting as
    in the first steps, whose waits were."""
    known = ~unknown & (columns["number"] > WARMUP_STEPS)
    if not unknown.any() or not known.any():
        return
    for name in ("sync_calls", "sync_ns"):
        columns[name][unknown] = round(columns[name][known].mean())
    sums = {name: columns[name][known].sum() for name in ("idle_sync_ns", "idle_launch_ns", "idle_python_ns")}
    share = sums["idle_sync_ns"] / max(1, sum(sums.values()))
    for name in ("idle_launch_ns", "idle_python_ns"):
        waits = (columns[name][unknown] * share).astype(np.int64)
        columns[name][unknown] -= waits
        columns["idle_sync_ns"][unknown] += waits


def mark_rows_of(file: RankFile) -> Rows:
    return np.concatenate([np.zeros(0, rank_file.MARK), *(part.rows.copy() for part in file.parts(ChunkKind.MARKS))])


def marks_of(rows: Rows, file: RankFile, clock: Clock, strings: list[str], gpu: dict[str, int]) -> list[Mark]:
    """The moments that the file names, those its header knows and those of the GPUs, in the order of time."""
    known = {int(kind) for kind in MarkKind}
    marks = [
        Mark(MarkKind(int(row["kind"])).name.lower(), int(at), strings[int(row["name"])])
        for row, at in zip(rows, clock.unix_ns(rows["ticks"]), strict=True)
        if int(row["kind"]) in known and int(row["name"]) < len(strings)
    ]
    started = int(file.header["started_realtime_ns"])
    if marks and started < 2**62:
        marks.append(Mark("process_start", started))
    if marks and file.header["ended_ticks"]:
        marks.append(Mark("end", int(clock.unix_ns(file.header["ended_ticks"]))))
    if marks:
        marks += [Mark(name, at_ns) for name, at_ns in gpu.items()]
    return sorted(marks, key=lambda mark: (mark.at_ns, MARKS.index(mark.name)))
