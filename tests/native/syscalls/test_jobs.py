"""Jobs of several ranks with every system call trapped: mpi4py on real MPIs, DDP on Gloo with forked data loaders."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mpis import ROOT, find_mpi
from native.syscalls import runs

TORCH = ROOT / ".envs" / "torch" / "bin"
MPI_PROGRAM = """
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
if world.rank == 0:
    print("sum", total, world.size)
world.Barrier()
raise SystemExit(total)
"""
DDP_PROGRAM = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(1)
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (rows,) in DataLoader(TensorDataset(torch.arange(256.0).reshape(32, 8)), batch_size=4, num_workers=2):
    optimizer.zero_grad()
    loss = model(rows / 256).square().sum()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"loss {loss.item():.6f}")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("mode", ["calls", pytest.param("paths", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_mpi4py(name: str, mode: str, tmp_path: Path) -> None:
    mpi = find_mpi(name)
    program = tmp_path / "program.py"
    program.write_text(MPI_PROGRAM)
    command = mpi.command(2, mpi.python, program)
    alone, with_us = (
        runs.bare(command, **mpi.environment),
        runs.recorded(command, tmp_path / "run", mode, **mpi.environment),
    )
    assert (with_us.code, with_us.out) == (alone.code, alone.out) and with_us.code == 3
    run = runs.opened(tmp_path / "run")
    ranks = "SELECT count(*) FROM ranks JOIN calls_method USING (process) WHERE role = 'rank' AND method = 'dispatch'"
    assert run.query(ranks) == [(2,)]
    calls = """SELECT min(calls) FROM (SELECT sum(calls) AS calls FROM system_calls JOIN modules USING (process, module)
        WHERE name = 'mpi4py.MPI' GROUP BY process)"""
    assert run.query(calls)[0][0] > 500


@pytest.mark.skipif(not (TORCH / "torchrun").exists(), reason=".envs/torch is missing: run make envs")
@pytest.mark.slow
@pytest.mark.parametrize("until", ["steps", "end"])
def test_data_parallel_training(until: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(DDP_PROGRAM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [TORCH / "torchrun", "--nproc-per-node", "2", "--master-port", port, program]
    told = {"OMP_NUM_THREADS": "1", "RANKSCOPE_TORCH": "python"}
    alone = runs.bare(command, **told)
    with_us = runs.recorded(command, tmp_path / "run", "calls", RANKSCOPE_IMPORTS_UNTIL=until, **told)
    assert (with_us.code, with_us.out) == (alone.code, alone.out) and "loss" in with_us.out
    run = runs.opened(tmp_path / "run")
    by_rank = run.query("""SELECT sum(calls) FROM system_calls JOIN ranks USING (process) WHERE role = 'rank'
        AND module IN (SELECT module FROM modules WHERE name LIKE 'torch%' AND modules.process = system_calls.process)
        GROUP BY process""")
    assert len(by_rank) == 2 and all(row[0] > 10_000 for row in by_rank)
    assert run.query("SELECT count(*) FROM steps JOIN ranks USING (process) WHERE role = 'rank'")[0][0] >= 16
    assert {row[0] for row in run.query("SELECT DISTINCT method FROM calls_method")} == {"dispatch"}
