"""Two actors of Ray that train together: ray_training.py actors | train."""

from __future__ import annotations

import socket
import sys
from typing import Any

import ray
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from trial import Trial, loss_of


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def train(rank: int, size: int) -> float:
    """The loop; the process group is there."""
    trial = Trial()
    model = DistributedDataParallel(trial.model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loss = torch.zeros(())
    for batch in trial.loader():
        optimizer.zero_grad()
        loss = loss_of(model(batch))
        loss.backward()
        optimizer.step()
        trial.step_ended()
    dist.barrier()
    trial.done(float(loss.detach()), rank)
    return float(loss.detach())


@ray.remote(num_cpus=1)
class Trainer:
    def __init__(self, rank: int, size: int, port: int, words: list[str]) -> None:
        sys.argv = words
        self.rank, self.size = rank, size
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)

    def fit(self) -> float:
        return train(self.rank, self.size)


def main() -> None:
    given: Any = Trial().given
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    port = free_port()
    actors = [Trainer.remote(rank, 2, port, sys.argv) for rank in range(2)]
    losses = ray.get([actor.fit.remote() for actor in actors])
    sys.stdout.write(f"{given.kind}: losses {losses[0]:.5f} {losses[1]:.5f}\n")
    ray.shutdown()


if __name__ == "__main__":
    main()
