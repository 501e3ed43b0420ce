"""problems.py PROBLEM: a training on the GPU with one problem put in, or without it (PROBLEM none-NAME).

launch: a small transformer of many short kernels (none-launch: one CUDA graph does all of it).
data: a loader that takes 20 ms a batch (none-data: it takes nothing).
resnet: ResNet-50 in bfloat16, batches of 64 images, with a loader that takes 60 ms a batch (none-resnet: nothing).
item: loss.item() in every step of a model that begins with many short kernels and ends with few long ones: a host that
does not wait launches the short ones of a step while the device still computes the long ones of the step before.
pageable: 64 MB a step from pageable memory (none-pageable: the data are on the device).
compute: large matrices, nothing to find. ddp and fsdp: under torchrun, a model that computes little and sends all of
its gradients, or shards all of its parameters (none-ddp, none-fsdp: one process alone with its model).
Prints seconds of the measured steps, which come after twenty others. --turns N: before them, steps with the problem and
without it, N times by turns of --turn-steps, of which a recorder records nothing: what removing the problem saves, in
the process that is recorded then. (Processes of the same program differ by some per cent for as long as they live.)
With --profiler the measured steps run under torch.profiler, whose trace goes to FILE.RANK.json.gz, which
gpu_profiler_parts.py reads.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

WARMUP = 20


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.wide = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.wide(self.second(x))


def transformer(width: int, layers: int) -> torch.nn.Module:
    return torch.nn.Sequential(*(Block(width) for _ in range(layers))).cuda()


class Slow(torch.utils.data.Dataset):
    def __init__(self, seconds: float, shape: tuple[int, ...]) -> None:
        self.seconds, self.row = seconds, torch.full(shape, 0.5)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return self.row


def plain(
    width: int, layers: int, shape: tuple[int, ...]
) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
    return step_of(transformer(width, layers)), torch.randn(shape, device="cuda")


def step_of(model: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """Forward, backward, optimizer."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def measure(steps: int, one: Callable[[], None]) -> None:
    for _ in range(WARMUP):
        one()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    with profiled() as step_done:
        for _ in range(steps):
            one()
            step_done()
        torch.cuda.synchronize()
    seconds = slowest(time.perf_counter() - begun)
    if os.environ.get("RANK", "0") == "0":
        print(f"seconds {seconds:.4f} steps {steps}", flush=True)


def slowest(seconds: float) -> float:
    """Of all ranks: without communication each has its own pace, and a job has that of the last."""
    if torch.distributed.is_initialized():
        most = torch.tensor([seconds], device="cuda", dtype=torch.float64)
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
        return most.item()
    return seconds


def pause(paused: bool) -> None:
    """Where this process is recorded: nothing is from here on, or again."""
    recorder = ctypes.CDLL(None)
    if hasattr(recorder, "rankscope_pause"):
        recorder.rankscope_pause(int(paused))


@contextmanager
def profiled() -> Iterator[Callable[[], None]]:
    """What to call after each step, so that torch.profiler, if asked for, knows them."""
    if not PROFILER:
        yield lambda: None
        return
    with torch.profiler.profile() as profiler:
        yield profiler.step
    profiler.export_chrome_trace(f"{PROFILER[0]}.{os.environ.get('RANK', 0)}.json.gz")


def launch(with_problem: bool, steps: int) -> None:
    model = transformer(128, 4)
    x = torch.randn(4, 64, 128, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True, capturable=True)

    def work() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        optimizer.step()

    if with_problem:
        measure(steps, work)
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    measure(steps, graph.replay)


def data(with_problem: bool, steps: int) -> None:
    step, _ = plain(1024, 4, (8, 256, 1024))
    loader = iter(torch.utils.data.DataLoader(Slow(0.02 if with_problem else 0.0, (8, 256, 1024)), batch_size=None))
    measure(steps, lambda: (step(next(loader).cuda()), None)[1])


def resnet(with_problem: bool, steps: int) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from gpu_resnet import resnet50

    model = resnet50().to("cuda", memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    labels = torch.randint(1000, (64,), device="cuda")
    images = Slow(0.06 if with_problem else 0.0, (64, 3, 224, 224))
    images.row = images.row.to(memory_format=torch.channels_last).pin_memory()
    loader = iter(torch.utils.data.DataLoader(images, batch_size=None))

    def one() -> None:
        batch = next(loader).cuda(non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()

    measure(steps, one)


def item(with_problem: bool, steps: int) -> None:
    rows = torch.nn.Flatten(0, 1)  # 2,048 of them
    wide = torch.nn.Sequential(rows, torch.nn.Linear(128, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 8192))
    step = step_of(torch.nn.Sequential(transformer(128, 8), wide.cuda()))
    x = torch.randn(32, 64, 128, device="cuda")
    seen = []

    def one() -> None:
        loss = step(x)
        if with_problem:
            seen.append(loss.item())

    measure(steps, one)


def pageable(with_problem: bool, steps: int) -> None:
    step, x = plain(1024, 2, (8, 256, 1024))
    batch = torch.randn(64, 256, 1024)

    def one() -> None:
        step(batch.cuda()[:8] if with_problem else x)

    measure(steps, one)


def compute(with_problem: bool, steps: int) -> None:
    step, x = plain(2048, 8, (16, 512, 2048))
    measure(steps, lambda: (step(x), None)[1])


def ddp(with_problem: bool, steps: int) -> None:
    parallel(steps, torch.nn.parallel.DistributedDataParallel if with_problem else None)


def fsdp(with_problem: bool, steps: int) -> None:
    parallel(steps, sharded if with_problem else None)


def sharded(model: torch.nn.Module) -> torch.nn.Module:
    from torch.distributed.fsdp import fully_shard

    for block in model.children():
        fully_shard(block)
    fully_shard(model)
    return model


def parallel(steps: int, spread: Callable[[torch.nn.Module], torch.nn.Module] | None) -> None:
    """Ranks that share the one GPU: each is a host of its own for NCCL."""
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ["NCCL_HOSTID"] = f"host{os.environ.get('RANK', 0)}"
    if not torch.distributed.is_initialized():  # once: a second start of NCCL in one process hangs here
        torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(0)
    model = transformer(256, 4)
    model = spread(model) if spread else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(8, 64, 256, device="cuda")

    def one() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    measure(steps, one)


PROBLEMS = {
    "launch": launch,
    "data": data,
    "resnet": resnet,
    "item": item,
    "pageable": pageable,
    "compute": compute,
    "ddp": ddp,
    "fsdp": fsdp,
}
PROFILER: list[str] = []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--turns", type=int, default=0, metavar="N")
    parser.add_argument("--turn-steps", type=int, default=60)
    parser.add_argument("--profiler", default="", metavar="FILE")
    arguments = parser.parse_args()
    name = arguments.problem.removeprefix("none-")
    if name not in PROBLEMS:
        parser.error(f"choose from {', '.join(PROBLEMS)}, or none- and one of them")
    torch.manual_seed(0)
    by_turns(name, arguments.turns, arguments.turn_steps)
    PROFILER.extend([arguments.profiler] if arguments.profiler else [])
    PROBLEMS[name](name == arguments.problem, arguments.steps)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return 0


def by_turns(name: str, turns: int, steps: int) -> None:
    pause(bool(turns))
    for turn in range(turns):
        for with_problem in (True, False) if turn % 2 else (False, True):
            if os.environ.get("RANK", "0") == "0":
                print("with" if with_problem else "without", end=" ", flush=True)
            PROBLEMS[name](with_problem, steps)
            torch.cuda.empty_cache()
    pause(False)


if __name__ == "__main__":
    sys.exit(main())
