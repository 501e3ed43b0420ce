"""Real programs behind wrappers, with restarts, without optimizers: the process that trains is the rank."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rankscope as rs
from mpis import ROOT, find_mpi

BIN = ROOT / ".envs" / "torch" / "bin"
TRIALS = ROOT / "build" / "lives" / "bin"  # accelerate, ray, nbconvert, uv …, where somebody has installed them
needs_torch = pytest.mark.skipif(not (BIN / "torchrun").exists(), reason=".envs/torch is missing: make envs")

WRAP = """\
import subprocess, sys
raise SystemExit(subprocess.call(sys.argv[1:]))
"""
# Both kinds of training in one process: by hand, which tells steps by backward, then with an optimizer.
TRAIN = """\
import sys
import torch
torch.set_num_threads(1)
weight = torch.randn(16, 16, requires_grad=True)
for step in range(9):
    (torch.randn(4, 16) @ weight).square().mean().backward()
    with torch.no_grad():
        weight -= 0.01 * weight.grad
        weight.grad = None
optimizer = torch.optim.SGD([weight], lr=0.01)
for step in range(4):
    for micro_batch in range(3):
        (torch.randn(4, 16) @ weight).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained", file=sys.stderr)
raise SystemExit(3)
"""


def start(rankscope: str, folder: Path, *command: Any, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH" and not key.startswith("RANKSCOPE_")}
    words = [str(word) for word in (rankscope, "run", "--out", folder / "run", *command)]
    environment = {**kept, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False)


def answer(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rs.open(folder / "run").query(sql)]


RANKS = """SELECT rank, world_size, role, ended_steps, exit_code FROM ranks
    WHERE role IN ('rank', 'attempt') ORDER BY attempt, rank"""


@needs_torch
def test_a_training_in_wrappers_is_rank_0_and_needs_no_optimizer(rankscope: str, tmp_path: Path) -> None:
    (tmp_path / "wrap.py").write_text(WRAP)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "wrap.sh").write_text(f"{sys.executable} wrap.py {BIN}/python train.py\n")
    done = start(rankscope, tmp_path, "sh", "wrap.sh")
    assert (done.returncode, done.stderr) == (3, "trained\n")
    assert answer(tmp_path, RANKS) == [(0, 1, "rank", 13, 3)]
    by_backward = "SELECT by_backward, count(*), min(backwards), max(optimizer_steps) FROM steps GROUP BY 1 ORDER BY 1"
    assert answer(tmp_path, by_backward) == [(False, 4, 3, 1), (True, 9, 1, 0)]
    notes = " ".join(rs.open(tmp_path / "run").table("steps").notes)
    assert "rankscope.step()" in notes


# Started as torchrun starts its workers, which costs no import of torch.
ELASTIC = """\
import os, subprocess, sys, time
for restart in range(2):
    workers = [subprocess.Popen([sys.executable, "worker.py"], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(restart)}) for rank in range(2)]
    for worker in workers:
        worker.wait()
"""
WORKER = """\
import os
import rankscope
for step in range(3 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 5):
    rankscope.step()
raise SystemExit(7 if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 0)
"""


def test_the_last_attempt_is_the_run_and_the_others_are_told(rankscope: str, tmp_path: Path) -> None:
    (tmp_path / "elastic.py").write_text(ELASTIC)
    (tmp_path / "worker.py").write_text(WORKER)
    done = start(rankscope, tmp_path, sys.executable, "elastic.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert answer(tmp_path, RANKS) == [
        *((0, 2, "attempt", 3, 0), (1, 2, "attempt", 3, 7)),
        *((0, 2, "rank", 5, 0), (1, 2, "rank", 5, 0)),
    ]
    run = rs.open(tmp_path / "run")
    attempts = run.table("attempts")
    assert [(row["attempt"], row["ranks"], row["steps"]) for row in attempts] == [(1, 2, 3), (2, 2, 5)]
    assert "exit 7 on rank 1" in attempts["ended"][0] and attempts["ended"][1] == "exit 0 on rank 0-1"
    assert any(line.startswith("RESTARTED: this is attempt 2") for line in run.screen().problems)
    goodput = run.table("goodput")
    assert sum(goodput["share"]) == pytest.approx(1.0) and "3 lost" in goodput.notes[0]


IMPORTED = """\
import importlib.util, sys
spec = importlib.util.find_spec("rankscope")
import rankscope
with rankscope.range("forward"):
    pass
with rankscope.checkpoint():
    pass
rankscope.step()
print(spec.origin.endswith("rankscope/__init__.py"), sorted(name for name in sys.modules if "duckdb" in name))
"""


def test_rankscope_can_be_imported_where_it_records_though_it_is_not_installed(rankscope: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "bare"], cwd=tmp_path, check=True)
    python = tmp_path / "bare" / "bin" / "python"
    bare = subprocess.run([python, "-c", IMPORTED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert bare.returncode == 1 and "ModuleNotFoundError" in bare.stderr
    done = start(rankscope, tmp_path, python, "-c", IMPORTED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True []\n", "")
    assert answer(tmp_path, "SELECT ended_steps FROM ranks WHERE role = 'rank'") == [(1,)]
    assert answer(tmp_path, "SELECT name FROM tallies WHERE layer = 'torch' ORDER BY 1") == [
        ("checkpoint",),
        ("forward",),
    ]


def test_a_rankscope_of_ones_own_comes_first(rankscope: str, tmp_path: Path) -> None:
    (tmp_path / "rankscope.py").write_text("step = 'mine'\n")
    code = "import sys; sys.path.insert(0, ''); import rankscope; print(rankscope.step)"
    assert start(rankscope, tmp_path, sys.executable, "-c", code).stdout == "mine\n"


LONE_MPI = """\
import ctypes, os, sys
def torch(rank):
    recorder = ctypes.PyDLL(None)
    recorder.rankscope_rank(rank, 2)  # as init_process_group does
child = os.fork()
rank = 0 if child else 1
if sys.argv[1] == "first":
    from mpi4py import MPI
torch(rank)
if sys.argv[1] == "last":
    from mpi4py import MPI
if child:
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("order", ["first", "last"])
def test_mpi_that_a_library_initialises_is_no_rank(rankscope: str, tmp_path: Path, order: str) -> None:
    mpi = find_mpi("openmpi")
    (tmp_path / "lone.py").write_text(LONE_MPI)
    done = start(rankscope, tmp_path, mpi.python, "lone.py", order, **mpi.environment)
    assert done.returncode == 0, done.stderr
    found = answer(tmp_path, "SELECT rank, world_size, rank_source FROM ranks WHERE role = 'rank' ORDER BY rank")
    assert found == [(0, 2, "init_process_group"), (1, 2, "init_process_group")]


RPC = """\
import os, sys, time
import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

def get_weights():
    time.sleep(0.02)
    return torch.ones(10)

def rollout(n):
    time.sleep(0.05)
    return n

def work(rank):
    names = ["ps", "trainer0", "trainer1"]
    rpc.init_rpc(names[rank], rank=rank, world_size=3)
    if rank:
        for step in range(4):
            weights = rpc.rpc_sync("ps", get_weights)
            rpc.rpc_async("ps", rollout, args=(step,)).wait()
    rpc.shutdown()

if __name__ == "__main__":
    mp.spawn(work, nprocs=3)
"""


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.mark.slow
@needs_torch
def test_workers_of_rpc_are_ranks_and_roles(rankscope: str, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(RPC)
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    done = start(rankscope, tmp_path, BIN / "python", "work.py", **variables)
    assert done.returncode == 0, done.stderr
    workers = answer(tmp_path, "SELECT rank, worker, world_size FROM ranks WHERE role = 'rank' ORDER BY rank")
    assert workers == [(0, "ps", 3), (1, "trainer0", 3), (2, "trainer1", 3)]
    run = rs.open(tmp_path / "run")
    by_role = {row["role"]: row for row in run.table("roles")}
    assert 8 * 50e6 <= by_role["ps"]["generate_ns"] < 8 * 1e9 and by_role["ps"]["sync_ns"] >= 8 * 20e6
    assert by_role["trainer"]["waits_for"] == "ps" and by_role["trainer"]["wait_ns"] > 4 * 50e6
    waits = {row["function"]: (row["waiting"], row["for_role"], row["calls"]) for row in run.table("role_waits")}
    assert waits["get_weights"] == ("trainer", "ps", 8) and waits["rollout"] == ("trainer", "ps", 8)
    assert not any("slow" in line for line in map(str, run.findings()["finding"]))


ELASTIC_TORCH = """\
import os, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
# a store of its own: that of torchrun still has the addresses of the first attempt
store = f"file://{os.getcwd()}/store-{restart}"
dist.init_process_group("gloo", init_method=store, rank=int(os.environ["RANK"]), world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    model(torch.randn(4, 8)).sum().backward()
    time.sleep(0.02)
    optimizer.step()
    if step == 4 and dist.get_rank() == 0:
        torch.save(model.state_dict(), "checkpoint.pt")
    if step == 8 and restart == 0 and dist.get_rank() == 1:
        os._exit(5)
dist.destroy_process_group()
"""


@pytest.mark.slow
@needs_torch
def test_torchrun_starts_anew(rankscope: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ELASTIC_TORCH)
    done = start(
        rankscope, tmp_path, BIN / "torchrun", "--standalone", "--nproc-per-node=2", "--max-restarts=1", "train.py"
    )
    assert done.returncode == 0, done.stderr
    assert [row[:4] for row in answer(tmp_path, RANKS)] == [
        *((0, 2, "attempt", 9), (1, 2, "attempt", 9), (0, 2, "rank", 12), (1, 2, "rank", 12)),
    ]
    goodput = rs.open(tmp_path / "run").table("goodput")
    assert "17 useful steps, 4 lost" in goodput.notes[0]  # 5 of the first attempt, up to its checkpoint


# --- packages that nobody needs to have: `python -m venv build/lives` and pip install into it


def trial(name: str) -> Path:
    found = shutil.which(name, path=str(TRIALS))
    if found is None:
        pytest.skip(f"{name} is not installed in {TRIALS.relative_to(ROOT)}")
    return Path(found)


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", ["accelerate launch --cpu --num_processes=1", "uv run --no-project --active"])
def test_real_wrappers(rankscope: str, tmp_path: Path, wrapper: str) -> None:
    first, *rest = wrapper.split()
    (tmp_path / "train.py").write_text(TRAIN)
    environment = {"VIRTUAL_ENV": str(TRIALS.parent), "HF_HOME": str(tmp_path)}
    done = start(rankscope, tmp_path, trial(first), *rest, "train.py", **environment)
    assert "trained" in done.stderr and done.returncode != 0
    assert [row[:4] for row in answer(tmp_path, RANKS)] == [(0, 1, "rank", 13)]


@pytest.mark.slow
def test_a_notebook_that_is_executed(rankscope: str, tmp_path: Path) -> None:
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": []}
    source = TRAIN.replace("raise SystemExit(3)\n", "")
    book = {"cells": [{**cell, "source": source}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "train.ipynb").write_text(json.dumps(book))
    jupyter = trial("jupyter")
    path = f"{TRIALS}:{os.environ['PATH']}"
    done = start(rankscope, tmp_path, jupyter, "nbconvert", "--to", "notebook", "--execute", "train.ipynb", PATH=path)
    assert done.returncode == 0, done.stderr
    assert [row[:4] for row in answer(tmp_path, RANKS)] == [(0, 1, "rank", 13)]


RAY = """\
import time, os
import ray

@ray.remote
class Rollout:
    def __init__(self):
        self.weights = 0
    def generate(self, n):
        time.sleep(0.05)
        return n
    def set_weights(self, weights):
        time.sleep(0.02)
        self.weights = weights

@ray.remote
class Trainer:
    def __init__(self):
        import torch
        self.weight = torch.randn(8, 8, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.weight], lr=0.01)
    def train(self, batch):
        import torch
        self.optimizer.zero_grad()
        (torch.randn(4, 8) @ self.weight).sum().backward()
        time.sleep(0.03)
        self.optimizer.step()
        return 0

ray.init(num_cpus=3, include_dashboard=False, logging_level="error")
trainer, rollouts = Trainer.remote(), [Rollout.remote() for _ in range(2)]
for step in range(5):
    batches = ray.get([rollout.generate.remote(step) for rollout in rollouts])
    weights = ray.get(trainer.train.remote(batches))
    ray.get([rollout.set_weights.remote(weights) for rollout in rollouts])
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_actors_of_ray_are_roles(rankscope: str, tmp_path: Path) -> None:
    trial("ray")
    (tmp_path / "train.py").write_text(RAY)
    done = start(rankscope, tmp_path, TRIALS / "python", "train.py", RAY_TMPDIR="/tmp")
    assert done.returncode == 0, done.stderr
    run = rs.open(tmp_path / "run")
    by_role = {row["role"]: row for row in run.table("roles")}
    assert by_role["Rollout"]["processes"] == 2 and by_role["Trainer"]["ranks"] == "0"
    assert 5 * 50e6 <= by_role["Rollout"]["generate_ns"] < 5 * 1e9 and by_role["Rollout"]["sync_ns"] >= 5 * 20e6
    assert by_role["Trainer"]["train_ns"] > 5 * 25e6
    waits = {row["function"]: row["for_role"] for row in run.table("role_waits")}
    assert waits["generate"] == "Rollout" and waits["train"] == "Trainer"
