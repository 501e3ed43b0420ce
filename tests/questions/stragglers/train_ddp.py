"""A small DDP training on Gloo in which, window by window of its steps, one thing is wrong with one rank.

    CASE_SEED=1 CASE_COUNT=4 CASE_STEPS=50 torchrun --nproc-per-node 4 train_ddp.py

What would compute on a real machine mostly sleeps here, so that many ranks fit on few cores. The rank with the cause
writes to CASE_TRUTH how long it was really held up: a sleep is never exactly as long as it was asked for.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import torch
import torch.distributed as dist
from schedule import Window, windows_of
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SEED, CASES, STEPS = (int(os.environ.get(f"CASE_{name}", "1")) for name in ("SEED", "COUNT", "STEPS"))
TRUTH = os.environ.get("CASE_TRUTH", "")
HOG = "import time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: sum(range(10000))"


HOGS = 3
WORK_MS, WORK_BESIDE_HOG_MS = 0.3, 2.5


class Now:
    """The window that goes on, and how long this rank was held up in it."""

    window = Window(0, 0, "", -1, 0.0)
    held_s = 0.0


def here(cause: str) -> bool:
    """Whether this rank is the one with that cause."""
    return cause == Now.window.cause and dist.get_rank() == Now.window.rank


def hold_up(cause: str) -> None:
    if here(cause):
        begun = time.perf_counter()
        time.sleep(pace() * Now.window.delay_ms / 1e3)
        Now.held_s += time.perf_counter() - begun


def pace() -> float:
    """How much slower all goes with more ranks, so that their cores are not the bottleneck."""
    return max(1.0, dist.get_world_size() / 3)


def usually(milliseconds: float) -> None:
    """What a part takes on every rank: never exactly the same."""
    time.sleep(pace() * milliseconds / 1e3 * random.lognormvariate(0, 0.05))


class Samples(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            usually(1.0)
            hold_up("data")
            yield torch.randn(64)


class Slow(torch.autograd.Function):
    """Takes its time in both directions."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        usually(3.0)
        hold_up("forward")
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        usually(5.0)
        hold_up("backward")
        return gradient


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        work_for(WORK_BESIDE_HOG_MS if Now.window.cause == "hog" else WORK_MS)  # on all ranks alike
        return self.second(Slow.apply(hidden))  # type: ignore[no-any-return]


def work_for(milliseconds: float) -> None:
    """Uses so much CPU time, however long that takes."""
    end = time.thread_time() + milliseconds / 1e3
    while time.thread_time() < end:
        sum(range(1000))


class Optimizer(torch.optim.SGD):
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        usually(1.0)
        hold_up("optimizer")
        super().step()


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def storm(kept: list[Knot]) -> None:
    """Collections that take about the delay: each goes through thousands of objects that are kept."""
    if not here("gc"):
        return
    if not kept:
        gc.freeze()
        kept += [Knot() for _ in range(10_000)]
    begun = time.perf_counter()
    while time.perf_counter() < begun + pace() * Now.window.delay_ms / 1e3:
        gc.collect()
    Now.held_s += time.perf_counter() - begun


class Hog:
    """Other programs on the one CPU that this rank may use while it has that cause."""

    def __init__(self) -> None:
        self.cpus = os.sched_getaffinity(0)
        self.processes: list[subprocess.Popen[bytes]] = []

    def come_or_go(self) -> None:
        if here("hog") == bool(self.processes):
            return
        if self.processes:
            for process in self.processes:
                process.kill()
                process.wait()
            self.processes = []
            os.sched_setaffinity(0, self.cpus)
            return
        os.sched_setaffinity(0, {random.choice(sorted(self.cpus))})
        clean = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "PYTHONPATH")}
        command = [sys.executable, "-S", "-c", HOG]
        self.processes = [subprocess.Popen(command, env=clean) for _ in range(HOGS)]


def busy_ns() -> int:
    """The time that all CPUs of this machine were not idle so far."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(word) for word in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def tell(window: Window, busy_before_ns: int) -> None:
    """The truth of a window: by the rank that was held up for how long, by rank 0 how busy the machine was."""
    steps = window.last - window.first + 1
    if TRUTH and window.cause and dist.get_rank() == window.rank:
        with open(f"{TRUTH}.{window.first}", "w", encoding="utf-8") as file:
            json.dump({"held_ns": Now.held_s * 1e9 / steps}, file)
    if TRUTH and dist.get_rank() == 0:
        with open(f"{TRUTH}.busy.{window.first}", "w", encoding="utf-8") as file:
            json.dump({"busy_ns": busy_ns() - busy_before_ns}, file)
    Now.held_s = 0.0


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    random.seed(SEED * 100 + dist.get_rank())
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = Optimizer(model.parameters(), lr=0.01)
    beside = Hog()
    kept: list[Knot] = []
    batches = iter(DataLoader(Samples(), batch_size=1))
    begun = time.perf_counter()
    with suppress(KeyboardInterrupt):
        for window in windows_of(SEED, dist.get_world_size(), CASES, STEPS, float(os.environ.get("CASE_NONE", "0.25"))):
            Now.window = window
            beside.come_or_go()
            busy_before_ns = busy_ns()
            for _ in range(STEPS):
                batch = next(batches)
                storm(kept)
                loss = model(batch).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            tell(window, busy_before_ns)
    Now.window = Window(0, 0, "", -1, 0.0)
    beside.come_or_go()
    if dist.get_rank() == 0:
        print(f"{CASES * STEPS} steps in {time.perf_counter() - begun:.3f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
