"""What observing torch costs: per recorded range, per step, and of a small but real DDP training on two ranks.

    python benchmarks/observer.py [--rounds N] [--python PATH] [--rankscope PATH] [--save]

Ranges: chunks of empty ranges, with and without the recorder in turns; the difference of the best chunks. Step: the
best chunk of ends of steps. A tiny step of DistributedDataParallel and of FSDP2 on one rank, where nothing waits and
little is computed: what recording adds to it, in microseconds, is what it adds to any. Training: plain and recorded
runs in turns, the order turning too; of each run the median step and the tenth percentile after warm-up, and the median
over the rounds of the recorded one divided by the plain.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results"
BAR_RANGE_NS, BAR_SHARE = 1000.0, 0.01
CHUNK, CHUNKS, STEPS, WARMUP = 100, 2000, 150, 30
TINY = {"ddp": 10, "fsdp2": 5}  # steps in a chunk


def child(what: str) -> None:
    """Inside the measured process."""
    if what == "ranges":
        from torch.profiler import record_function

        best = min(timed(lambda: ranges(record_function)) for _ in range(CHUNKS))
        print(json.dumps({"ns": best / CHUNK}))
    elif what == "ends":
        sys.path.insert(0, str(ROOT / "src"))
        import rankscope

        rankscope.step()
        best = min(timed(lambda: ends(rankscope.step)) for _ in range(CHUNKS))
        print(json.dumps({"ns": best / CHUNK}))
    elif what in TINY:
        tiny_steps(what)
    else:
        train()


def timed(work: Any) -> int:
    begin = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - begin


def ranges(record_function: Any) -> None:
    for _ in range(CHUNK):
        with record_function("an empty range"):
            pass


def ends(step: Any) -> None:
    for _ in range(CHUNK):
        step()


def tiny_steps(how: str) -> None:
    """Four layers of 64 × 64 on one rank: the median chunk of steps."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    linear = [torch.nn.Linear(64, 64) for _ in range(4)]
    layers: Any = torch.nn.Sequential(*linear)
    if how == "fsdp2":
        mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
        for module in (*linear, layers):
            fully_shard(module, mesh=mesh)
    model = DistributedDataParallel(layers) if how == "ddp" else layers
    optimizer, batch = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.ones(64, 64)

    def steps() -> None:
        for _ in range(TINY[how]):
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(20):
        steps()
    chunks = [timed(steps) for _ in range(300)]
    print(json.dumps({"median_ns": statistics.median(chunks) / TINY[how]}), flush=True)
    os._exit(0)


def train() -> None:
    """A three-layer network of 1.3 million weights, batches of 64, on Gloo."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512), torch.nn.ReLU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(512, 512)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    lengths, last = [], time.perf_counter_ns()
    for (batch,) in DataLoader(TensorDataset(torch.randn(64 * STEPS, 512)), batch_size=64):
        optimizer.zero_grad()
        (model(batch) - batch).square().mean().backward()
        optimizer.step()
        now = time.perf_counter_ns()
        lengths.append(now - last)
        last = now
    rank = dist.get_rank()
    dist.destroy_process_group()
    if rank == 0:
        kept = sorted(lengths[WARMUP:])
        print(json.dumps({"median_ns": statistics.median(kept), "p10_ns": kept[len(kept) // 10]}))


def measured(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """What the child printed."""
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return dict(json.loads(done.stdout.decode().strip().splitlines()[-1]))


def measure(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """All figures of one machine."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    here, load = [options.python, __file__, "--child"], os.getloadavg()[0]
    torchrun = [
        str(Path(options.python).parent / "torchrun"),
        "--standalone",
        "--nproc-per-node=2",
        __file__,
        "--child",
    ]
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(options.rounds):
        cases = {
            "ranges plain": (False, [*here, "ranges"], ""),
            "ranges recorded": (True, [*here, "ranges"], ""),
            "ranges in Python": (True, [*here, "ranges"], "python"),
            "ends": (True, [*here, "ends"], ""),
            **{f"{how} plain": (False, [*here, how], "") for how in TINY},
            **{f"{how} recorded": (True, [*here, how], "") for how in TINY},
            "training plain": (False, [*torchrun, "train"], ""),
            "training recorded": (True, [*torchrun, "train"], ""),
        }
        for name, (recorded, command, way) in list(cases.items())[:: 1 if number % 2 else -1]:
            run = [options.rankscope, "run", "--quiet", "--out", f"{folder}/{name}-{number}"] if recorded else []
            found.setdefault(name, []).append(measured(run + command, environment | {"RANKSCOPE_TORCH": way}))
    best = {name: min(one["ns"] for one in runs) for name, runs in found.items() if "ns" in runs[0]}
    added = {
        how: statistics.median(
            with_it["median_ns"] - without["median_ns"]
            for with_it, without in zip(found[f"{how} recorded"], found[f"{how} plain"], strict=True)
        )
        for how in TINY
    }
    ratios = {
        key: statistics.median(
            with_it[key] / without[key]
            for with_it, without in zip(found["training recorded"], found["training plain"], strict=True)
        )
        for key in ("median_ns", "p10_ns")
    }
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpus": os.cpu_count(),
        "load_before": round(load, 2),
        "rounds": options.rounds,
        "range_ns": round(best["ranges recorded"] - best["ranges plain"]),
        "range_in_python_ns": round(best["ranges in Python"] - best["ranges plain"]),
        "bare_range_ns": round(best["ranges plain"]),
        "end_of_step_ns": round(best["ends"]),
        "tiny_step_added_ns": {how: round(ns) for how, ns in added.items()},
        "tiny_step_ns": {
            how: round(statistics.median(one["median_ns"] for one in found[f"{how} plain"])) for how in TINY
        },
        "training_step_ns": round(min(one["median_ns"] for one in found["training plain"])),
        "training_added_share_median": round(ratios["median_ns"] - 1, 4),
        "training_added_share_p10": round(ratios["p10_ns"] - 1, 4),
    }


def as_markdown(result: dict[str, Any]) -> str:
    tiny = "".join(
        f"| a tiny step on one rank, {how} (bare: {result['tiny_step_ns'][how] / 1e3:.0f} µs) | {ns / 1e3:.1f} µs | |\n"
        for how, ns in result["tiny_step_added_ns"].items()
    )
    return f"""\
# What observing torch costs
{result["date"]}, {result["cpus"]} CPUs, load {result["load_before"]} before, {result["rounds"]} rounds.

| | added | bar |
|---|---:|---:|
| a range (bare: {result["bare_range_ns"]} ns), C++ observer | {result["range_ns"]} ns | {BAR_RANGE_NS:g} ns |
| a range, hooks in Python | {result["range_in_python_ns"]} ns | |
| the end of a step | {result["end_of_step_ns"]} ns | |
{tiny}| a DDP step of {result["training_step_ns"] / 1e6:.1f} ms on 2 ranks, medians | \
{result["training_added_share_median"]:+.2%} | {BAR_SHARE:.0%} |
| the same, tenth percentiles | {result["training_added_share_p10"]:+.2%} | |
"""


def main() -> int:
    """Print the figures; exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--python", default=str(ROOT / ".envs" / "torch" / "bin" / "python"))
    parser.add_argument("--rankscope", default=str(Path(sys.executable).parent / "rankscope"))
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/observer.md and .json")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, folder)
    print(as_markdown(result), end="")
    if options.save:
        (RESULTS / "observer.md").write_text(as_markdown(result))
        (RESULTS / "observer.json").write_text(json.dumps(result, indent=1) + "\n")
    return int(result["range_ns"] > BAR_RANGE_NS or result["training_added_share_median"] > BAR_SHARE)


if __name__ == "__main__":
    sys.exit(main())
