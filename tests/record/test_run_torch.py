"""`rankscope run torchrun …` with real processes: who is which rank, and how each one ended."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from mpis import ROOT
from programs import recorded

TORCHRUN = ROOT / ".envs" / "torch" / "bin" / "torchrun"
RANKS = 3
JOB = """\
import os, signal, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
values = torch.ones(100)
dist.all_reduce(values)
assert values[0] == dist.get_world_size()
dist.barrier()
if len(sys.argv) > 1 and dist.get_rank() == int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    if not TORCHRUN.exists():
        pytest.skip(f"{TORCHRUN.relative_to(ROOT)} is missing: make envs")
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def torchrun(rankscope: str, job: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [rankscope, "run", "--out", "run", TORCHRUN, "--nproc-per-node", str(RANKS), job, *arguments]
    return subprocess.run(command, cwd=job.parent, capture_output=True, text=True, check=False)


def ranks_of(folder: Path) -> dict[int, recorded.Reading]:
    readings = [recorded.read(path) for path in recorded.rank_files(folder)]
    return {reading.facts.rank: reading for reading in readings if reading.facts.rank is not None}


def test_every_worker_is_a_rank(rankscope: str, job: Path) -> None:
    done = torchrun(rankscope, job)
    assert done.returncode == 0, done.stderr
    found = ranks_of(job.parent / "run")
    assert sorted(found) == list(range(RANKS))
    for rank, reading in found.items():
        facts = reading.facts
        assert (facts.local_rank, facts.world_size, facts.rank_source) == (rank, RANKS, "torchrun")
        assert (facts.ending, facts.exit_code) == ("exited", 0)


def test_a_killed_worker_is_known_by_its_signal(rankscope: str, job: Path) -> None:
    done = torchrun(rankscope, job, "1")
    assert done.returncode == 1
    facts = ranks_of(job.parent / "run")[1].facts
    assert (facts.ending, facts.end_signal) == ("signalled", 9)


def test_ranks_started_one_by_one(rankscope: str, job: Path) -> None:
    """As scripts and Kubernetes start them: no torchrun, out of order, twice with the same port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [rankscope, "run", TORCHRUN.with_name("python"), job]
    for _ in range(2):
        ranks = [
            subprocess.Popen(
                command,
                cwd=job.parent,
                env={**os.environ, "RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port},
            )
            for rank in "10"
        ]
        assert [rank.wait(timeout=100) for rank in ranks] == [0, 0]
    folders = [path for path in (job.parent / "rankscope-runs").iterdir() if path.name[0] == "2"]
    assert [sorted(ranks_of(folder)) for folder in folders] == [[0, 1], [0, 1]]


@pytest.mark.slow
def test_the_pods_of_the_page(rankscope: str, job: Path) -> None:
    """The command of the PyTorchJob in the docs, once for each pod, with the variables that its operator sets."""
    page = (ROOT / "docs" / "howto" / "launchers.md").read_text(encoding="utf-8")
    spec = page.split("kind: PyTorchJob", 1)[1].split("```", 1)[0]
    replicas = int(spec.split("replicas: ", 1)[1].split("\n", 1)[0])
    words = spec.split("command: [", 1)[1].split("]", 1)[0].split(", ")
    programs = {"rankscope": rankscope, "python": str(TORCHRUN.with_name("python")), "train_ddp.py": str(job)}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    pods = [
        subprocess.Popen(
            [programs.get(word, word) for word in words],
            cwd=job.parent,
            env={
                **os.environ,
                **{"RANK": str(rank), "WORLD_SIZE": str(replicas), "MASTER_PORT": port},
                "MASTER_ADDR": "localhost" if rank == 0 else socket.gethostname(),
            },
        )
        for rank in range(replicas)
    ]
    assert [pod.wait(timeout=100) for pod in pods] == [0] * replicas
    out = words[words.index("--out") + 1]
    assert sorted(ranks_of(job.parent / out)) == list(range(replicas))
