"""Memory pools, and unified memory, which is asked for only once it is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from native.cuda import test_cuda_ranges
from native.cuda.test_cuda_ranges import cuda_row, only, play
from programs import recorded
from rankscope.rank_file import ChunkKind
from rankscope.rank_files.chunks import open_rank_file

driver, plain = test_cuda_ranges.driver, test_cuda_ranges.plain


def test_pools(plain: Path, tmp_path: Path) -> None:
    """32 KiB pool, 10 and 20 kB out of it, grown to 64 KiB, trimmed, destroyed; 5 kB beside it."""
    script = ["p 1 4096 32768", "m 1 3 10000 1 4096 32768", "m 1 3 20000 1 4096 65536", "m 1 3 5000 0 0 0"]
    script += ["m 2 3 20000 1 4096 65536", "p 3 4096 16384", "p 1 8192 1000", "p 2 4096 0"]
    play(plain, tmp_path, script)
    device = open_rank_file(only(tmp_path)).parts(ChunkKind.DEVICES)[0].rows[0]
    assert {name: int(device[name]) for name in POOLS} == POOLS
    assert (int(device["current_bytes"]), int(device["peak_bytes"])) == (15_000, 35_000)
    (told,) = recorded.read(only(tmp_path)).devices
    assert {name: getattr(told, name) for name in POOLS} == POOLS and told.span_ns is None


POOLS = {
    "pool_bytes": 1_000,
    "pool_peak_bytes": 65_536,
    "pool_allocations": 2,
    "pool_releases": 1,
    "pool_used_bytes": 10_000,
    "pool_used_peak_bytes": 30_000,
}


@pytest.mark.parametrize(("refused", "said", "state"), [("0", "6 0 0\n6 1 30\n", 1), ("1", "6 0 0\n6 0 0\n", 2)])
def test_unified_memory(refused: str, said: str, state: int, plain: Path, tmp_path: Path) -> None:
    """Asked for when the first is allocated; a CUPTI that cannot is left in peace."""
    script = ["P", "m 1 5 4096 0 0 0", "W 3", "P", "u 1 4096 10 30", "u 2 100 30 35", "u 3 555 1 1", "u 4 3 50 60"]
    assert play(plain, tmp_path, script, FAKE_CUPTI_NO_UNIFIED=refused) == said
    device, row = open_rank_file(only(tmp_path)).parts(ChunkKind.DEVICES)[0].rows[0], cuda_row(tmp_path)
    assert int(row["unified"]) == state and int(row["cpu_faults"]) == 1
    assert {name: int(device[name]) for name in UNIFIED} == UNIFIED
    (told,), facts = recorded.read(only(tmp_path)).devices, recorded.read(only(tmp_path)).facts
    known = {name: getattr(told, name) for name in UNIFIED}
    assert known == (UNIFIED if state == 1 else dict.fromkeys(UNIFIED)), "what CUPTI refused to tell is not known"
    assert facts.unified_faults == (1 if state == 1 else None)


UNIFIED = {"migrated_in_bytes": 4096, "migrated_out_bytes": 100, "migrations": 2, "migration_ns": 25, "gpu_faults": 3}
