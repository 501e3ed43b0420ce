"""The folder in which the commands of the docs are typed: programs, runs and files of other tools, and a checkout."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz.seeds import collected
from mpis import ROOT
from tutorial_output import FILE, environment

TRAIN_DDP = """
import os
import torch
from torch import nn
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
os._exit(0)  # torch itself aborts now and then in its destructors
"""
MEASURED = """
| nodes | soft-CCL (s) | TMP (s) |
|---|---|---|
| 1 | 2.0 | 5.0 |
| 2 | 4.1 | 5.1 |
| 4 | 8.2 | 5.2 |
| 8 | 16.1 | 5.1 |
"""
DOCUMENT = """
| nodes | soft-CCL (s) | lus-CCL (s) | Total TMP- CCL (s) |
|---|---|---|---|
| 1 | 2.0 | 2.0 | 5.0 |
| 2 | 4.1 | 2.1 | 5.1 |
| 4 | 8.2 | 2.1 | 5.2 |
| 8 | 16.1 | 2.3 | 5.1 |
"""
TWO_BRANCHES = """
git init -q -b main && git config user.name tests && git config user.email tests@example.org
git add train.py && git commit -qm 'train' && git branch faster && git checkout -q faster
sed -i 's/else 0.010/else 0.009/' train.py && git commit -qam 'faster' && git checkout -q main
"""
FILES = {"nvprof.log": "nvprof", "mpi_profile.1.0": "mpitrace", "darshan.txt.gz": "darshan", "rank0.log": "nvprof"}
BATCHES = """
import sys, time
import rankscope
for step in range(4):
    time.sleep(int(sys.argv[sys.argv.index("--batch") + 1]) / 4000)
    rankscope.step()
"""


def write_folder(folder: Path) -> None:
    """What the examples of most pages speak of."""
    program = dict(FILE.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")))["train.py"]
    (folder / "train.py").write_text(program, encoding="utf-8")
    (folder / "train_ddp.py").write_text(TRAIN_DDP, encoding="utf-8")
    (folder / "measured.md").write_text(MEASURED, encoding="utf-8")
    for name, known in FILES.items():
        data = next(seed.data for seed in collected() if seed.format == known)
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (folder / "traces").mkdir()
    (folder / "traces" / "trace_rank-0.json").write_bytes(
        next(seed.data for seed in collected() if seed.format == "kineto")
    )
    (folder / "document.md").write_text(DOCUMENT, encoding="utf-8")
    (folder / "shared").mkdir()
    for name in (".envs", "tools"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(ROOT / ".envs" / "torch")
    for ranks in (1, 2, 4):
        record(folder, f"mpirun -n {ranks} rankscope run --out runs/train-{ranks} python train.py")
    record(folder, "mpirun -n 2 rankscope run --imports paths --out RUN python train.py")
    record(folder, "rankscope load document.md --out DOCUMENT_RUN")
    subprocess.run(["bash", "-ec", TWO_BRANCHES], cwd=folder, check=True, capture_output=True)
    for copy in ("runs/main-1", "runs/main-2", "runs/faster-1", "runs/faster-2", "before", "after", "runs/march"):
        shutil.copytree(folder / "runs" / "train-2", folder / copy, symlinks=True)
    for copy in ("march", "2026-11-15T10-00-00-train"):
        shutil.copytree(folder / "runs" / "train-2", folder / "rankscope-runs" / copy, symlinks=True)
    (folder / "rankscope-runs" / "latest").symlink_to("march")
    synthetic: list[str | Path] = [
        sys.executable,
        ROOT / "tools" / "synthetic_run.py",
        folder / "big-run",
        "--ranks",
        "64",
    ]
    subprocess.run([*synthetic, "--collectives", "50"], check=True, capture_output=True)


def record(folder: Path, command: str) -> None:
    subprocess.run(command.split(), cwd=folder, env=environment(), check=True, capture_output=True)


# ---------------------------------------------------------------------------------------------------------------------
# What single pages speak of besides.
def _own_study(folder: Path) -> None:
    """The study that docs/commands/study.md shows, with fewer values, and its program."""
    page = (ROOT / "docs" / "commands" / "study.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```toml\n(.+?)```", page, re.DOTALL)
    for wanted, fewer in {"repeat = 3": "repeat = 1", "[16, 64, 256]": "[16, 64]", "[1, 2, 4]": "[1, 2]"}.items():
        assert wanted in text
        text = text.replace(wanted, fewer)
    (folder / "batches.toml").write_text(text.replace('"python"', f'"{sys.executable}"'), encoding="utf-8")
    (folder / "train.py").write_text(BATCHES, encoding="utf-8")


def _late_rank(folder: Path) -> None:
    """A recorded training on two ranks, of which one waits for its loader: as RUN, and as the latest."""
    with tarfile.open(ROOT / "tests" / "runs" / "cpu_runs.tar.xz") as packed:
        packed.extractall(folder / "recorded", filter="data")
    shutil.rmtree(folder / "RUN")
    for copy in ("RUN", "rankscope-runs/straggler"):
        shutil.copytree(folder / "recorded" / "ddp_straggler", folder / copy)
    (folder / "rankscope-runs" / "latest").unlink()
    (folder / "rankscope-runs" / "latest").symlink_to("straggler")


FAILS_ONCE = """
import os, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(12):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    if step == 5 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os._exit(1)
"""  # without a process group: reaching each other again takes torch's ranks minutes where processors are few
TRAIN_RAY = """
import ray, torch

@ray.remote
class Trainer:
    def train(self, steps):
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()

ray.init(num_cpus=2, include_dashboard=False)
trainers = [Trainer.remote() for _ in range(2)]
ray.get([trainer.train.remote(20) for trainer in trainers])
"""


def _fails_once(folder: Path) -> None:
    """A training that fails in its first attempt."""
    (folder / "train.py").write_text(FAILS_ONCE, encoding="utf-8")


def _ray(folder: Path) -> None:
    (folder / "train_ray.py").write_text(TRAIN_RAY, encoding="utf-8")


def _jax(folder: Path) -> None:
    """The tests' own training, for four processes at a port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = (ROOT / "tests" / "programs" / "jax_training.py").read_text(encoding="utf-8")
    fixed = f"import sys\nsys.argv[2:] = ['4', '{port}', '--steps', '10']\n"
    (folder / "train_jax.py").write_text(fixed + program, encoding="utf-8")


LEFT_OUT = shutil.ignore_patterns(
    ".git", ".envs", ".venv", "build", "dist", "rankscope-runs", "__pycache__", ".*_cache"
)


def _checkout(folder: Path) -> None:
    """A checkout with the environments that make has set up."""
    shutil.copytree(ROOT, folder / "checkout", symlinks=True, ignore=LEFT_OUT)
    (folder / "checkout" / ".envs").symlink_to(ROOT / ".envs")
    (folder / "checkout" / ".venv").symlink_to(Path(sys.prefix))


def _to_install(folder: Path) -> None:
    """A checkout, a wheel made of it, and an environment of its own that has what both need already."""
    _checkout(folder)
    subprocess.run([sys.executable, "-m", "venv", folder / "installed"], check=True)
    [own] = (folder / "installed" / "lib").glob("python*/site-packages")
    (own / "of_the_tests.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    wheel: list[str | Path] = [folder / "installed" / "bin" / "pip", "wheel", "--quiet", "-w", "dist", "."]
    subprocess.run(wheel, cwd=folder / "checkout", env={**os.environ, **OFFLINE}, check=True, capture_output=True)
    # called like the one that make wheels compiles for an older libc
    [made] = (folder / "checkout" / "dist").glob("rankscope-*.whl")
    made.rename(made.with_name(made.name.replace("linux_x86_64", "manylinux_2_27_x86_64")))


OFFLINE = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # 0 means that there is none: pip reads it upside down
IN_A_CHECKOUT = re.compile(r"make |\.venv/bin/|pip install")  # how commands begin that are typed there
PAGES = {
    "README.md": _checkout,
    "CONTRIBUTING.md": _checkout,
    "docs/install.md": _to_install,
    "docs/commands/study.md": _own_study,
    "docs/commands/bench.md": _own_study,
    "docs/commands/whatif.md": _late_rank,
    "docs/commands/goodput.md": _fails_once,
    "docs/howto/launchers.md": _ray,
    "docs/howto/frameworks.md": _jax,
}


# ---------------------------------------------------------------------------------------------------------------------
@contextmanager
def dask_nodes(folder: Path, command: list[str]) -> Iterator[None]:
    """A scheduler where the pages have theirs, and one worker, started by this command in front."""
    log = (folder / "dask.log").open("wb")
    dask = [*command, sys.executable, "-m", "dask"]
    words = (["scheduler", "--port", "8786"], ["worker", "tcp://127.0.0.1:8786", "--nthreads", "1"])
    started = [subprocess.Popen([*dask, *one, "--no-dashboard"], cwd=folder, stdout=log, stderr=log) for one in words]
    try:
        for _ in range(600):
            if b"Registered to" in (folder / "dask.log").read_bytes():
                break
            time.sleep(0.1)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
        log.close()
