"""Floating-point operations of real torch steps, against torch's own counter and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.test_torch_steps import BIN, cache, environment, start  # noqa: F401
from mpis import ROOT
from programs import recorded

PROGRAM = ROOT / "tests" / "programs" / "known_flops.py"
pytestmark = pytest.mark.skipif(not (BIN / "torchrun").exists(), reason=".envs/torch is missing: make envs")

BY_HAND = {
    # torch's counter takes a grouped convolution's gradient of its weights for that of an ungrouped one
    "grouped": 2 * (2 * 4 * 32 * 16 * 2 * 3) + 3 * (2 * 4 * (2 * 2 * 30) * 4 * 27),
    "lstm": 3 * (2 * 4 * 16 * 4 * 48 * (64 + 48 + 48 + 48)),  # and does not see oneDNN's layers
}
PRECISIONS = {"autocast": "bf16", "double": "fp64"}


@pytest.fixture
def steps_of(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> Any:  # noqa: F811
    def run(*kinds: str, **settings: str) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
        """By kind: what was recorded of its sampled step, and what torch says."""
        command = [rankscope, "run", "--quiet", "--out", tmp_path / "run", BIN / "python", PROGRAM, *kinds]
        done = start(command, tmp_path, environment | {"RANKSCOPE_FLOPS_EVERY": "8"} | settings)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        (reading,) = (read for path in recorded.rank_files(tmp_path / "run") if (read := recorded.read(path)).marks)
        columns: Any = reading.utilisation_columns.get("step_flops", {"number": []})
        rows = {
            told[str(number)]["kind"]: {name: values[i] for name, values in columns.items()}
            for i, number in enumerate(columns["number"])
            if str(number) in told
        }
        return rows, {one["kind"]: one["flops"] for one in told.values()}

    return run


def test_what_operators_compute_is_what_torch_counts(steps_of: Any) -> None:
    kinds = ("mlp", "gpt", "plain_attention", "residual", "grouped", "lstm", "autocast", "double", "accumulated")
    rows, told = steps_of(*kinds, "encoder", "checkpointed", "custom")
    assert set(rows) == {*kinds, "encoder", "checkpointed", "custom"}
    for kind, row in rows.items():
        assert (kind, row["flops"]) == (kind, BY_HAND.get(kind, told[kind]))
        assert (kind, row["precision"]) == (kind, PRECISIONS.get(kind, "fp32"))
        again = told["checkpointed"] - told["gpt"] if kind == "checkpointed" else 0
        assert (kind, row["device"], row["recomputed_flops"]) == (kind, -1, again)
        assert (kind, row["unseen"], row["unseen_name"]) == (
            kind,
            *((1, "mine::twice") if kind == "custom" else (0, "")),
        )
        assert not row["compiled"] and not row["graphs"]


def test_steps_of_two_optimizers_are_whole(steps_of: Any) -> None:
    rows, told = steps_of("two_optimizers", "gpt")
    assert rows["two_optimizers"]["flops"] == told["two_optimizers"] == rows["gpt"]["flops"]


@pytest.mark.slow
def test_compiled_code_is_marked_and_never_counted_too_high(steps_of: Any) -> None:
    rows, told = steps_of("compiled")
    assert rows["compiled"]["compiled"]
    assert 0 < rows["compiled"]["flops"] <= told["compiled"]


IN_PARTS = """
import sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cpu", (2,))
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
if sys.argv[1] == "tensor_parallel":
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
else:
    fully_shard(model[0], mesh=mesh), fully_shard(model[2], mesh=mesh), fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
PRODUCT = 2 * 8 * 64 * 128


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "flops"), [("tensor_parallel", 5 * PRODUCT // 2), ("fully_shard", 5 * PRODUCT)])
def test_a_rank_has_what_it_computes_itself(
    rankscope: str,
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
    kind: str,
    flops: int,
) -> None:
    (tmp_path / "program.py").write_text(IN_PARTS)
    job = [BIN / "torchrun", "--standalone", "--nproc-per-node=2", tmp_path / "program.py", kind]
    done = start([rankscope, "run", "--quiet", "--out", tmp_path / "run", *job], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    readings = [recorded.read(path) for path in recorded.rank_files(tmp_path / "run")]
    found = [columns for read in readings if (columns := read.utilisation_columns.get("step_flops"))]
    assert [list(columns["flops"]) for columns in found] == [[flops], [flops]]


AS_ON_GPUS = """
import ctypes, torch
recorder = ctypes.CDLL(None)
recorder.rankscope_operator.argtypes = [ctypes.c_int] * 3 + [ctypes.c_uint64, ctypes.c_int]
parameter = torch.nn.Parameter(torch.zeros(4, 4))
optimizer = torch.optim.SGD([parameter])
torch.cuda.is_initialized, torch.cuda.device_count = lambda: True, lambda: 3
torch._C._get_fp32_precision_getter = lambda device, operation: "tf32" if operation == "conv" else "ieee"
GIB, step = 2**30, 0
def stats(device):
    held = lambda current, peak: {"all": {"current": current * GIB, "peak": peak * GIB}}
    if device == 2:
        return {"allocated_bytes": held(0, 0), "reserved_bytes": held(0, 0), "inactive_split_bytes": held(0, 0)}
    return {"allocated_bytes": held(2 + device, 5), "reserved_bytes": held(6, 8), "inactive_split_bytes": held(3, 3),
            "num_alloc_retries": step, "num_ooms": device}
torch._C._cuda_memoryStats = stats
for step in range(1, 5):
    (parameter @ parameter).sum().backward()
    for is_convolution in (0, 1):
        recorder.rankscope_operator(0, 1, is_convolution, 1000 + is_convolution, 0)
    if step == 2:
        try:
            torch.cuda.CUDAGraph.replay(object())
        except (AttributeError, TypeError):
            pass
    optimizer.step()
"""


def test_gpus_by_what_torch_says_of_them(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    """No GPU here: torch's functions are stand-ins, the recorder is the real one."""
    (tmp_path / "program.py").write_text(AS_ON_GPUS)
    command = [rankscope, "run", "--quiet", "--out", tmp_path / "run", BIN / "python", tmp_path / "program.py"]
    done = start(command, tmp_path, environment)
    assert (done.returncode, done.stderr) == (0, "")
    (reading,) = (read for path in recorded.rank_files(tmp_path / "run") if (read := recorded.read(path)).marks)
    flops: Any = reading.utilisation_columns["step_flops"]
    rows = zip(flops["device"], flops["precision"], flops["flops"], strict=True)
    assert sorted(rows) == [(-1, "fp32", 3 * 128), (0, "fp32", 1000), (0, "tf32", 1001)]
    assert set(flops["number"]) == {2} and all(flops["graphs"])
    allocator: Any = reading.utilisation_columns["allocator"]
    assert set(allocator["device"]) == {0, 1}
    assert allocator["retries"][0] == 1  # a look at the first step
    last = {name: int(values[-1]) >> 30 for name, values in allocator.items() if name.endswith("_bytes")}
    expected = {"allocated": 3, "allocated_peak": 5, "reserved": 6, "reserved_peak": 8, "split": 3}
    assert last == {f"{name}_bytes": value for name, value in expected.items()}
    assert (allocator["device"][-1], allocator["ooms"][-1]) == (1, 1)


@pytest.mark.slow
def test_without_the_compiled_observer_nothing_is_sampled(steps_of: Any) -> None:
    assert steps_of("mlp", RANKSCOPE_TORCH="python")[0] == {}
