"""What a rank file says of how well a GPU is used: operations of sampled steps, energy, torch's allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.model.gpu import PRECISIONS
from rankscope.rank_file import ChunkKind, FlopsFlag, Rows
from rankscope.rank_files.chunks import RankFile, copy_rows
from rankscope.rank_files.clock import Clock

LARGEST = np.uint64(2**63 - 1)
ALLOCATOR_BYTES = (
    *("allocated_bytes", "allocated_peak_bytes", "reserved_bytes", "reserved_peak_bytes", "split_bytes"),
    *("retries", "ooms"),
)


def utilisation_columns(file: RankFile, clock: Clock, strings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The columns of model.StepFlops, Gpu, GpuPower and AllocatorSample, by table; none that has no rows."""
    tables = {
        "step_flops": _flops(_ring(file, ChunkKind.STEP_FLOPS), strings),
        "gpus": _gpus(file, clock, strings),
        "gpu_power": _power(_ring(file, ChunkKind.POWER), clock),
        "allocator": _allocator(_ring(file, ChunkKind.ALLOCATOR), clock),
    }
    return {table: columns for table, columns in tables.items() if columns}


def _ring(file: RankFile, kind: ChunkKind) -> Rows | None:
    parts = file.parts(kind)
    if not parts:
        return None
    ring, unsettled = copy_rows(parts[0].rows, "number", zero_is_busy=True)
    rows: Rows = ring[~unsettled & (ring["number"] > 0)]
    return rows if len(rows) else None


def _word(strings: Sequence[str], number: int) -> str:
    return strings[number] if number < len(strings) else ""


def _whole(values: Any) -> Any:
    return np.minimum(values.astype(np.uint64), LARGEST).astype(np.int64)


def _known(values: Any) -> Any:
    """0 is what was not told."""
    return np.ma.masked_array(values.astype(np.int64), values == 0)


def _flops(rows: Rows | None, strings: Sequence[str]) -> dict[str, Any]:
    """A row for each precision that a device computed in; one without any where nothing was counted."""
    if rows is None:
        return {}
    rows = rows[np.lexsort((rows["device"], rows["number"]))]
    at, precision = np.nonzero(rows["flops"])
    empty = np.flatnonzero(~rows["flops"].any(axis=1))
    chosen = rows[np.concatenate([at, empty])]
    words = [PRECISIONS[number] for number in precision] + [""] * len(empty)
    none = np.zeros(len(empty), np.uint64)
    columns = {name: chosen[name].astype(np.int64) for name in ("number", "device", "operators", "unseen")}
    for name in ("flops", "recomputed_flops"):
        columns[name] = _whole(np.concatenate([rows[name][at, precision], none]))
    columns |= {flag.name.lower(): (chosen["flags"] & flag) != 0 for flag in FlopsFlag if flag.name}
    names = [_word(strings, int(number)) for number in chosen["unseen_name"]]
    return {**columns, "precision": words, "unseen_name": names}


def _gpus(file: RankFile, clock: Clock, strings: Sequence[str]) -> dict[str, Any]:
    parts = file.parts(ChunkKind.GPUS)
    rows = np.concatenate([np.zeros(0, rank_file.GPU), *(copy_rows(part.rows, "seq")[0] for part in parts)])
    if not len(rows):
        return {}
    sampled = rows["samples"] > 0
    energy = _whole(rows["last_energy_mj"]) - _whole(rows["first_energy_mj"])
    return {
        "device": rows["device"].astype(np.int64),
        "name": [_word(strings, int(number)) for number in rows["name"]],
        "uuid": [bytes(row).hex() if any(bytes(row)) else "" for row in rows["uuid"]],
        "multiprocessors": _known(rows["multiprocessors"]),
        "memory_bytes": _known(np.minimum(rows["memory_bytes"], LARGEST)),
        "samples": _whole(rows["samples"]),
        "first_ns": np.ma.masked_array(clock.unix_ns(rows["first_ticks"]), ~sampled),
        "last_ns": np.ma.masked_array(clock.unix_ns(rows["last_ticks"]), ~sampled),
        "energy_mj": np.ma.masked_array(np.maximum(energy, 0), rows["samples"] < 2),
        "note": [_word(strings, int(number)) for number in rows["note"]],
    }


def _power(rows: Rows | None, clock: Clock) -> dict[str, Any]:
    if rows is None:
        return {}
    rows = rows[np.argsort(rows["number"], kind="stable")]
    columns = {"device": rows["device"].astype(np.int64), "at_ns": clock.unix_ns(rows["ticks"])}
    columns["energy_mj"] = _whole(rows["energy_mj"])
    return columns | {name: _known(rows[name]) for name in ("sm_mhz", "temperature_c", "processes")}


def _allocator(rows: Rows | None, clock: Clock) -> dict[str, Any]:
    if rows is None:
        return {}
    rows = rows[np.lexsort((rows["ticks"], rows["device"]))]
    columns = {name: rows[name].astype(np.int64) for name in ("number", "device")}
    return columns | {"at_ns": clock.unix_ns(rows["ticks"])} | {name: _whole(rows[name]) for name in ALLOCATOR_BYTES}
