"""Small trainings on Gloo with one problem put into each: one_problem.py PROBLEM [--without] [--steps N].

Prints, for each rank, the seconds of its loop as JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH, BATCH = 64, 8
LATE_S, LOADER_S, STALL_S = 0.03, 0.03, 4.0
Given = argparse.Namespace
Step = Callable[[int, torch.Tensor], torch.Tensor]  # the step's number and its batch; its loss


class Rows(Dataset):  # type: ignore[type-arg]
    def __init__(self, rows: int, delay_s: float) -> None:
        self.rows, self.delay_s = rows, delay_s

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % BATCH == 0:
            time.sleep(self.delay_s)
        return torch.full((WIDTH,), float(index % 7) / 7)


def layers(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *between, nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def late(given: Given, rank: int) -> None:
    """The problem of all trainings whose collectives are to show it: one rank sleeps in its forward pass."""
    if given.on and dist.get_rank() == rank:
        time.sleep(LATE_S)


# ---------------------------------------------------------------- a model, and what it does in a step


def plain(given: Given) -> tuple[nn.Module, Step]:
    model = DistributedDataParallel(layers())
    return model, lambda step, batch: model(batch).square().mean()


def late_forward(given: Given) -> tuple[nn.Module, Step]:
    model = DistributedDataParallel(layers())

    def forward(step: int, batch: torch.Tensor) -> torch.Tensor:
        late(given, 1)
        return model(batch).square().mean()

    return model, forward


def buffers(given: Given) -> tuple[nn.Module, Step]:
    """The others wait for rank 0 in the broadcasts of BatchNorm's buffers, with which the forward pass begins."""
    model = DistributedDataParallel(layers(nn.BatchNorm1d(WIDTH)))

    def forward(step: int, batch: torch.Tensor) -> torch.Tensor:
        late(given, 0)
        return model(batch).square().mean()

    return model, forward


def tensor_parallel(given: Given) -> tuple[nn.Module, Step]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(layers(), layers())
    for part in model:
        parallelize_module(part, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    def forward(step: int, batch: torch.Tensor) -> torch.Tensor:
        late(given, 1)
        return model(batch).square().mean()

    return model, forward


def fully_sharded(given: Given) -> tuple[nn.Module, Step]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    shape = (dist.get_world_size() // 2, 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")) if shape[0] > 1 else None
    model = nn.Sequential(layers(), layers())
    for part in model:
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)

    def forward(step: int, batch: torch.Tensor) -> torch.Tensor:
        late(given, 1)
        return model(batch).square().mean()

    return model, forward


def uneven_batches(given: Given) -> tuple[nn.Module, Step]:
    """Rank 1 computes on samples six times as long."""
    model = DistributedDataParallel(nn.LSTM(WIDTH, WIDTH, batch_first=True))
    length = 240 if given.on and dist.get_rank() == 1 else 40

    def forward(step: int, batch: torch.Tensor) -> torch.Tensor:
        return model(batch[:, None, :].expand(-1, length, -1))[0].square().mean()

    return model, forward


def garbage(given: Given) -> tuple[nn.Module, Step]:
    """Every rank has a heap of objects, and collects all of it in each step."""
    model = DistributedDataParallel(layers())
    gc.collect()
    gc.freeze()  # what torch has made
    gc.disable()
    heap = [{"number": [number]} for number in range(60_000)]

    def forward(step: int, batch: torch.Tensor) -> torch.Tensor:
        if given.on and heap:
            gc.collect()
        return model(batch).square().mean()

    return model, forward


def checkpoints(given: Given) -> tuple[nn.Module, Step]:
    """Every rank saves the model after each fourth step."""
    model = DistributedDataParallel(layers())
    large = torch.zeros(12_000_000)
    folder = tempfile.mkdtemp()

    def forward(step: int, batch: torch.Tensor) -> torch.Tensor:
        if given.on and step % 4 == 3:
            torch.save({"model": model.state_dict(), "large": large}, os.path.join(folder, "saved.pt"))
        if step == given.steps - 1 and os.path.exists(os.path.join(folder, "saved.pt")):
            os.remove(os.path.join(folder, "saved.pt"))
        return model(batch).square().mean()

    return model, forward


def compiled(given: Given) -> tuple[nn.Module, Step]:
    """Shapes that change make torch compile again and again."""
    model = DistributedDataParallel(layers())
    run = torch.compile(model, backend="aot_eager", dynamic=False)

    def forward(step: int, batch: torch.Tensor) -> torch.Tensor:
        rows = 2 + step // 8 if given.on else BATCH
        return run(batch[:rows]).square().mean()

    return model, forward


def stall(given: Given) -> tuple[nn.Module, Step]:
    """One rank stands still once."""
    model = DistributedDataParallel(layers())

    def forward(step: int, batch: torch.Tensor) -> torch.Tensor:
        if given.on and step == given.steps // 2 and dist.get_rank() == 1:
            time.sleep(STALL_S)
        time.sleep(0.005)
        return model(batch).square().mean()

    return model, forward


def exposed(given: Given) -> tuple[nn.Module, Step]:
    """All ranks average a large tensor in each step, and nothing hides it."""
    model = DistributedDataParallel(layers())
    large = torch.zeros(4_000_000)

    def forward(step: int, batch: torch.Tensor) -> torch.Tensor:
        if given.on:
            dist.all_reduce(large)
        return model(batch).square().mean()

    return model, forward


def threads(given: Given) -> tuple[nn.Module, Step]:
    """More threads compute than there are CPUs."""
    torch.set_num_threads(4 if given.on else 1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, 1500), nn.ReLU(), nn.Linear(1500, WIDTH)))
    return model, lambda step, batch: model(batch.repeat(40, 1)).square().mean()


PROBLEMS = {
    "none": plain,
    "late_forward": late_forward,
    "loader": plain,
    "buffers": buffers,
    "tensor_parallel": tensor_parallel,
    "fully_sharded": fully_sharded,
    "uneven_batches": uneven_batches,
    "garbage": garbage,
    "checkpoints": checkpoints,
    "compiled": compiled,
    "stall": stall,
    "exposed": exposed,
    "threads": threads,
    "failing": plain,
}


def main() -> None:
    given = options()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, forward = PROBLEMS[given.problem](given)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    begun = time.perf_counter()
    for step, batch in enumerate(batches(given)):
        optimizer.zero_grad()
        forward(step, batch).backward()
        optimizer.step()
    dist.barrier()
    print(json.dumps({"rank": dist.get_rank(), "loop_s": time.perf_counter() - begun}), flush=True)
    dist.destroy_process_group()
    if given.problem == "failing" and given.on:
        sys.exit(1)
    # Past this torch 2.13 now and then aborts ("terminate called without an active exception"), recorded or not.
    sys.stdout.flush()
    os._exit(0)


def batches(given: Given) -> Iterator[torch.Tensor]:
    delay_s = LOADER_S if given.problem == "loader" and given.on else 0.0
    return iter(DataLoader(Rows(given.steps * BATCH, delay_s), batch_size=BATCH))


def options() -> Given:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("--without", dest="on", action="store_false", help="the same training without the problem")
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    main()
