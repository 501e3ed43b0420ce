"""A small training loop on Gloo that knows what it does: prints its steps and the time they took, as JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH, BATCH = 128, 16


class Rows(Dataset):  # type: ignore[type-arg]
    def __init__(self, rows: int, delay_s: float) -> None:
        self.rows, self.delay_s = rows, delay_s

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % BATCH == 0:
            time.sleep(self.delay_s)
        return torch.full((WIDTH,), float(index % 7))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--optimizers", type=int, default=1)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--spawn", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="one process, no process group")
    parser.add_argument("--scaler", action="store_true", help="a gradient scaler that leaves out every third step")
    parser.add_argument("--count", default="", help="write the number of finished steps to this file and a rank")
    parser.add_argument("--sleep-ms", type=float, default=0, help="after the model, before backward")
    parser.add_argument("--sleeper", default="", help="the one rank that sleeps (default: all)")
    return parser.parse_args()


def train(given: argparse.Namespace) -> dict[str, object]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    plain = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, WIDTH))
    model = plain if given.alone else DistributedDataParallel(plain, bucket_cap_mb=0.03)
    parts = (
        [list(plain[0].parameters()), list(plain[2].parameters())] if given.optimizers == 2 else [model.parameters()]
    )
    optimizers = [torch.optim.SGD(part, lr=1e-4) for part in parts]
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0) if given.scaler else None
    batches = iter(DataLoader(Rows(given.steps * given.micro_batches * BATCH, given.delay_ms / 1e3), batch_size=BATCH))
    moments = [time.perf_counter()]
    for step in range(given.steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for micro in range(given.micro_batches):
            last = micro == given.micro_batches - 1
            with contextlib.nullcontext() if last or given.alone else model.no_sync():
                loss = model(next(batches)).square().mean()
                if given.sleeper in ("", os.environ.get("RANK")):
                    time.sleep(given.sleep_ms / 1e3)
                backward(loss, scaler, infinite=step % 3 == 2)
        for optimizer in optimizers:
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
        if scaler is not None:
            scaler.update(1.0)
        finished(given, step + 1)
        moments.append(time.perf_counter())
    if not given.alone:
        total = torch.ones(3)
        dist.all_reduce(total, group=dist.new_group())
        dist.barrier()
    return {"steps": given.steps, "seconds": moments, "loss": round(loss.item(), 6)}


def backward(loss: torch.Tensor, scaler: torch.amp.GradScaler | None, infinite: bool) -> None:
    if scaler is None:
        loss.backward()
    else:
        scaler.scale(loss * (float("inf") if infinite else 1.0)).backward()


def finished(given: argparse.Namespace, steps: int) -> None:
    if given.count:
        with open(f"{given.count}.{os.environ.get('RANK', '0')}", "r+b" if steps > 1 else "wb") as file:
            file.write(f"{steps:9d}".encode())


def worker(rank: int, given: argparse.Namespace, world: int) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    run(given)


def run(given: argparse.Namespace) -> None:
    if not given.alone:
        dist.init_process_group("gloo")
    told = train(given)
    if not given.alone:
        dist.destroy_process_group()
    print(json.dumps({"rank": int(os.environ.get("RANK", 0)), **told}) + "\n", end="", flush=True)  # in one piece


if __name__ == "__main__":
    asked = options()
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        os.environ["RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
        os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]
    if asked.spawn:
        mp.spawn(worker, (asked, asked.spawn), nprocs=asked.spawn)
    else:
        run(asked)
