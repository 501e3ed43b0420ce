"""DistributedDataParallel modelled on a known benchmark: an embedding bag, ten dense layers, 2 ranks, two passes.

    rankscope run python examples/train_ddp_003.py
    rankscope run python examples/train_ddp_003.py --profiler kernels.json
    rankscope run torchrun --nproc-per-node 2 examples/train_ddp_003.py

A pass has 16 batches with 3 all-reduces each (1 in the very first, before DDP knows the order of the gradients). The
first pass is warm-up, the second is measured; NVTX ranges (`warmup`, `measured`, and within them `batch` with
`forward`, `backward`, `optimizer`) mark them. Every rank prints a line of JSON per pass. PyTorch runs the backward
pass in a separate thread, outside the ranges of the first one; with --one-thread it does not, and all kernels of a
pass are launched inside its range. With --profiler, torch.profiler records everything from the model's creation on:
rank R writes its counts to FILE with .R before the suffix, and a trace of the GPU with .R.trace.json.gz.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ranks import World, join, leave, spawn

EMBEDDINGS, WIDTH, LAYERS, WORDS = 2000, 512, 10, 100
BUCKET_MB = 5  # gradients then fit in three all-reduces
PARTS = ("forward", "backward", "optimizer", "batch")
TRACED = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "user_annotation"}
TRACED_ARGUMENTS = {"correlation", "device", "stream", "bytes"}


def build(world: World) -> Any:
    torch.manual_seed(0)
    dense = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU(True))]
    model = nn.Sequential(nn.EmbeddingBag(EMBEDDINGS, WIDTH), *dense).to(world.device)
    if world.size == 1:
        return model
    return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB)


@contextlib.contextmanager
def named(world: World, name: str, seconds: dict[str, list[float]] | None = None) -> Iterator[None]:
    """An NVTX range, timed on the host; also a range of torch.profiler while that runs, because it ignores NVTX."""
    begun = time.perf_counter()
    if world.on_gpu:
        torch.cuda.nvtx.range_push(name)
    with torch.profiler.record_function(name) if torch.autograd._profiler_enabled() else contextlib.nullcontext():
        yield
    if world.on_gpu:
        torch.cuda.nvtx.range_pop()
    if seconds is not None:
        seconds[name].append(time.perf_counter() - begun)


class Job:
    """One rank: model, optimizer, and random batches that are the same in both passes."""

    def __init__(self, world: World, options: argparse.Namespace) -> None:
        self.world = world
        self.slow_s = options.slow_ms / 1e3 if options.slow_rank == world.rank else 0.0
        self.model = build(world)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, foreach=False)
        self.criterion = nn.CrossEntropyLoss()
        random = torch.Generator().manual_seed(world.rank)
        words = (options.batches, options.batch, WORDS)
        self.words = torch.randint(EMBEDDINGS, words, generator=random)
        self.labels = torch.randint(WIDTH, words[:2], generator=random)

    def one_batch(self, number: int, seconds: dict[str, list[float]]) -> None:
        with named(self.world, "batch", seconds):
            words = self.words[number].to(self.world.device)
            labels = self.labels[number].to(self.world.device)
            with named(self.world, "forward", seconds):
                time.sleep(self.slow_s)
                loss = self.criterion(self.model(words), labels)
            with named(self.world, "backward", seconds):
                self.optimizer.zero_grad()
                loss.backward()
            with named(self.world, "optimizer", seconds):
                self.optimizer.step()
            self.world.synchronize()

    def run_pass(self, name: str) -> dict[str, list[float]]:
        seconds: dict[str, list[float]] = {part: [] for part in PARTS}
        with named(self.world, name):
            for number in range(len(self.words)):
                self.one_batch(number, seconds)
        return seconds


@contextlib.contextmanager
def profiled(world: World, target: Path | None) -> Iterator[None]:
    """Runs the body under torch.profiler; writes its counts by kernel to a file and the trace beside it."""
    if target is None:
        yield
        return
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if world.on_gpu else [])
    with profile(activities=activities, acc_events=True) as profiler:
        yield
        world.synchronize()
    device = torch.autograd.DeviceType.CUDA if world.on_gpu else torch.autograd.DeviceType.CPU
    counted: dict[str, list[float]] = {}
    for event in profiler.events() or ():
        if event.device_type == device and not getattr(event, "is_user_annotation", False):
            sums = counted.setdefault(event.name, [0, 0.0])
            sums[0] += 1
            sums[1] += event.time_range.elapsed_us()
    rows = [{"name": name, "calls": int(calls), "total_us": us} for name, (calls, us) in sorted(counted.items())]
    target.with_suffix(f".{world.rank}{target.suffix}").write_text(json.dumps(rows, indent=0), encoding="utf-8")
    write_trace(profiler, target.with_suffix(f".{world.rank}.trace.json.gz"))


def write_trace(profiler: Any, target: Path) -> None:
    """The part of the profiler's trace that ran on the GPU or launched work there: small enough to keep."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(whole))
        trace = json.loads(whole.read_text(encoding="utf-8", errors="replace"))
    trace["traceEvents"] = [slim(event) for event in trace["traceEvents"] if event.get("cat") in TRACED]
    with gzip.open(target, "wt", encoding="utf-8") as file:
        json.dump(trace, file)


def slim(event: dict[str, Any]) -> dict[str, Any]:
    arguments = {name: value for name, value in event.get("args", {}).items() if name in TRACED_ARGUMENTS}
    return {**event, "args": arguments}


def summary(world: World, options: argparse.Namespace, name: str, seconds: dict[str, list[float]]) -> str:
    means = {f"{part}_ms": 1e3 * sum(times) / len(times) for part, times in seconds.items()}
    facts = {"program": "ddp_003", "pass": name, "rank": world.rank, "ranks": world.size, "backend": world.backend}
    return json.dumps({**facts, "batches": options.batches, "profiler": bool(options.profiler), **means})


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks to start (not under torchrun)")
    parser.add_argument("--batch", type=int, default=32, help="samples per rank and batch")
    parser.add_argument("--batches", type=int, default=16, help="batches in a pass")
    parser.add_argument(
        "--measured", type=int, default=1, metavar="N", help="measured passes (`measured 1` … if several)"
    )
    parser.add_argument("--slow-rank", type=int, default=-1, metavar="R", help="this rank sleeps in each forward pass")
    parser.add_argument("--slow-ms", type=float, default=20, metavar="MS", help="for this long")
    parser.add_argument("--one-thread", action="store_true", help="run backward in the forward pass's thread")
    parser.add_argument("--profiler", type=Path, metavar="FILE", help="run under torch.profiler and write its counts")
    return parser.parse_args()


def main() -> None:
    options = parse()
    spawn(options.ranks)
    world = join()
    torch.autograd.set_multithreading_enabled(not options.one_thread)
    several = options.measured > 1
    names = ["warmup"] + [f"measured {i + 1}" if several else "measured" for i in range(options.measured)]
    with profiled(world, options.profiler):
        job = Job(world, options)
        passes = {name: job.run_pass(name) for name in names}
    for name, seconds in passes.items():
        print(summary(world, options, name, seconds) + "\n", end="", flush=True)  # one write: other ranks print too
    leave(world)


if __name__ == "__main__":
    main()
