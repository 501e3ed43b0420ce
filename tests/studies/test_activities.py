"""Activities in nvprof's columns, of real runs on an H200, against sums of our own."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.api.run import Run
from rankscope.studies.activities import GPU, KINDS, activities, profile, shares
from scripts.alexnet_table import shares_of, together

ARCHIVE = ROOT / "benchmarks/results/h200/gpu_matrix_parallel-2026-11-15.tar.xz"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two ranks on one GPU, with the parts of a step in ranges."""
    folder = tmp_path_factory.mktemp("h200")
    with tarfile.open(ARCHIVE) as archive:
        members = [one for one in archive if one.name.startswith("runs/alexnet-data-parallel-2-16/")]
        archive.extractall(folder, members, filter="data")
    return Run(Path(folder) / "runs/alexnet-data-parallel-2-16")


def test_kinds_and_rows_add_up_to_the_time_of_the_gpus(run: Run) -> None:
    found = activities(run, 2)
    kinds = {one.name: one.total_ns for one in found if one.kind == KINDS}
    expected = together(shares_of(run.store())[0])
    ((all_ns, calls),) = run.query("SELECT sum(total_ns), sum(calls)::BIGINT FROM tallies WHERE layer = 'gpu'").rows
    assert sum(one.total_ns for one in found if one.kind == GPU) == all_ns == expected.gpu_ns
    assert sum(one.calls for one in found if one.kind == GPU) == calls
    assert kinds["NCCL"] == sum(expected.parts[part] for part in ("all_reduce", "broadcast", "reduce", "other_nccl"))
    assert kinds["copies"] + kinds["sets"] == expected.parts["copies"]
    assert kinds["of computing: optimizer"] == expected.parts["optimizer"]
    assert sum(time for name, time in kinds.items() if not name.startswith("of ")) == all_ns


def test_one_rank_and_rows_left_out(run: Run) -> None:
    both, one = activities(run, 2), activities(run, 2, rank=1)
    assert 0 < sum(row.calls for row in one if row.kind == GPU) < sum(row.calls for row in both if row.kind == GPU)
    table = profile("profile", "Profile", both)
    hidden = sum(share is not None and share < 0.02 for share in shares(both))
    assert len(table.rows) == len(both) - hidden and table.notes == [f"{hidden} rows of less than 2 % are not shown."]
    assert [row[0] for row in table.rows if row[0]] == ["GPU time:", "GPU activities:"]
