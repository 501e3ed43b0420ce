"""Operations, GPUs, energy and the allocator in a rank file: as written, torn, and damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.rank_file import ALLOCATOR, GPU, POWER, STEP_FLOPS, ChunkKind, FlopsFlag, Precision
from rankscope.rank_files.read import read_rank_file
from rankscope.store.columns import UTILISATION_TABLES, reading_tables
from runs.small_run import START, mpi_rank

KINDS = {
    ChunkKind.STEP_FLOPS: STEP_FLOPS,
    ChunkKind.GPUS: GPU,
    ChunkKind.POWER: POWER,
    ChunkKind.ALLOCATOR: ALLOCATOR,
}


def read(folder: Path, tables: dict[ChunkKind, Any], **strings: str) -> Any:
    made = mpi_rank(0, 1)
    for text in strings.values():
        made.string(text)
    made._tables += list(tables.items())
    return read_rank_file(made.write(folder / "1.rank"))


def test_a_row_for_each_precision_and_none_of_what_is_being_written(tmp_path: Path) -> None:
    rows = np.zeros(4, STEP_FLOPS)
    rows["number"], rows["device"] = [64, 2, 0, 3], [0, 0, 1, -1]
    rows["flops"][0, Precision.BF16], rows["flops"][0, Precision.TF32] = 10, 20
    rows["flops"][1, Precision.FP8], rows["recomputed_flops"][1, Precision.FP8] = 2**64 - 1, 4
    rows["flags"][0] = FlopsFlag.GRAPHS
    found = read(tmp_path, {ChunkKind.STEP_FLOPS: rows}).utilisation_columns["step_flops"]
    told = [*zip(found["number"], found["device"], found["precision"], found["flops"], strict=True)]
    assert told == [(2, 0, "fp8", 2**63 - 1), (64, 0, "tf32", 20), (64, 0, "bf16", 10), (3, -1, "", 0)]
    assert list(found["recomputed_flops"]) == [4, 0, 0, 0]
    assert list(found["graphs"]) == [False, True, True, False]


def test_a_gpu_and_its_samples_in_their_order(tmp_path: Path) -> None:
    gpu = np.zeros(1, GPU)
    gpu["samples"], gpu["first_ticks"], gpu["last_ticks"] = 2, 5, 1_000_000_005
    gpu["first_energy_mj"], gpu["last_energy_mj"], gpu["uuid"] = 700, 1000, bytes(range(16))
    power = np.zeros(3, POWER)
    power["number"], power["ticks"], power["energy_mj"] = [2, 1, 0], [20, 10, 30], [1000, 700, 9]
    tables = read(tmp_path, {ChunkKind.GPUS: gpu, ChunkKind.POWER: power}).utilisation_columns
    assert (tables["gpus"]["energy_mj"][0], tables["gpus"]["uuid"][0]) == (300, bytes(range(16)).hex())
    assert tables["gpus"]["last_ns"][0] - tables["gpus"]["first_ns"][0] == 1_000_000_000
    assert list(tables["gpu_power"]["energy_mj"]) == [700, 1000]
    assert list(tables["gpu_power"]["at_ns"]) == [START + 10, START + 20]
    assert tables["gpu_power"]["sm_mhz"].mask.all()


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_make_tables(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    tables = {kind: np.frombuffer(random.bytes(5 * row.itemsize), row).copy() for kind, row in KINDS.items()}
    tables[ChunkKind.GPUS]["seq"] &= ~np.uint32(1)  # a torn one is waited for
    made = reading_tables(0, read(tmp_path, tables), events=False)
    assert all(made[name].num_rows for name in UTILISATION_TABLES)
