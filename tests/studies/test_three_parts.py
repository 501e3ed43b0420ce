"""The three parts of document 000: of a run on a GPU they are the sums of its rank files."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.rank_files.read import read_rank_file
from rankscope.studies.allreduce import three_parts
from rankscope.studies.collective_tables import waits
from rankscope.studies.plan import Cell, Outcome
from studies.real_cells import rows

ARCHIVE = ROOT / "tests" / "runs" / "h200_runs.tar.gz"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Two ranks of NCCL on an H200, as if a cell had left them."""
    folder = tmp_path_factory.mktemp("cell")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    (folder / "ddp").rename(folder / "run")
    return Outcome(Cell((("backend", "nccl"),), 2, 1), "done", folder=str(folder))


def summed(outcome: Outcome, layer: str, only_bytes: bool = False) -> tuple[float, int, int]:
    """Time, calls and bytes of a layer, straight from the rank files."""
    total_ns, calls, size = 0.0, 0, 0
    for path in Path(outcome.folder).glob("run/ranks/*/*.rank"):
        columns = read_rank_file(path, events=False).tally_columns
        layers, kinds = columns["layer"], columns["kind"]
        for at in range(len(columns["calls"])):
            is_ours = layers.values[layers.codes[at]] == layer and kinds.values[kinds.codes[at]] == "call"
            if is_ours and (columns["bytes"][at] or not only_bytes):
                total_ns += float(columns["total_ns"][at])
                calls += int(columns["calls"][at])
                size += int(columns["bytes"][at])
    return total_ns, calls, size


def test_parts_of_a_gpu_run(outcome: Outcome) -> None:
    counts, host, device, copied, sent = three_parts([outcome])
    time_ns, calls, _ = summed(outcome, "gpu")
    (row,) = rows(device)
    assert row["nccl_device_ns"] == pytest.approx(time_ns) and row["nccl_device_calls"] == calls
    time_ns, calls, _ = summed(outcome, "cuda_api")
    (row,) = rows(host)
    assert row["nccl_host_ns"] == pytest.approx(time_ns) and row["nccl_host_calls"] == calls
    _, calls, size = summed(outcome, "gpu", only_bytes=True)
    (row,) = rows(copied)
    assert (row["nccl_copied_bytes"], row["nccl_copied_calls"]) == (size, calls)
    assert not device.notes and not copied.notes, "nothing is absent"
    seen = {row["part"]: (row["hostnames"], row["processes"], row["devices"]) for row in rows(counts)}
    assert seen == {"BACKEND_CUDA": (1, 2, None), "Device profiling": (1, 2, 1)}
    assert len(sent.rows) == 1


def test_waiting_of_a_gpu_run(outcome: Outcome) -> None:
    shares, sizes = waits([outcome], "allreduce")
    (row,) = rows(shares)
    assert (row["backend"], row["ranks"]) == ("nccl", 2) and shares.warnings == []
    assert row["collectives"] == sum(int(str(one["collectives"])) for one in rows(sizes)) > 0
