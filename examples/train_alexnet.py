"""AlexNet on random images of ImageNet's size: how do GPU time, optimizer and communication change with batch size?

    python examples/train_alexnet.py --batch 32
    rankscope run python examples/train_alexnet.py --ranks 4 --batch 128
    rankscope run torchrun --nproc-per-node 2 examples/train_alexnet.py --style data-parallel

Ranks may share one GPU. `--style ddp` sums gradients by all-reduce; `--style data-parallel` works like one process with
several GPUs: rank 0 sends its parameters to all before each step and reduces their gradients after it.
The batch size is over all ranks. Rank 0 prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ranks import World, join, leave, spawn

IMAGE_PIXELS = 224


def alexnet(classes: int) -> Any:
    """Five convolutions, three dense layers: 61 million parameters in 16 tensors."""
    features = nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(3, 2),
    )  # fmt: skip
    dense = nn.Sequential(
        nn.Dropout(), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(True),
        nn.Linear(4096, classes),
    )  # fmt: skip
    return nn.Sequential(features, nn.AdaptiveAvgPool2d((6, 6)), nn.Flatten(), dense)


class Job:
    """One rank's share of the training."""

    def __init__(self, world: World, options: argparse.Namespace) -> None:
        torch.manual_seed(1)
        self.world = world
        self.by_hand = options.style == "data-parallel" and world.size > 1
        self.model = alexnet(options.classes).to(world.device)
        if world.size > 1 and not self.by_hand:
            self.model = nn.parallel.DistributedDataParallel(self.model)
        # foreach=False: one kernel per parameter, as in the old torch of the study this is compared with
        settings = {"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-4, "foreach": False}
        self.optimizer = torch.optim.SGD(self.model.parameters(), **settings)
        self.criterion = nn.CrossEntropyLoss().to(world.device)
        images = max(1, options.batch // world.size)
        self.images = torch.randn(images, 3, IMAGE_PIXELS, IMAGE_PIXELS, pin_memory=world.on_gpu)
        self.labels = torch.randint(options.classes, (images,), pin_memory=world.on_gpu)

    def step(self) -> float:
        if self.by_hand:
            with self.world.range("broadcast"):
                self.send_parameters()
        with self.world.range("forward"):
            images = self.images.to(self.world.device, non_blocking=True)
            labels = self.labels.to(self.world.device, non_blocking=True)
            loss = self.criterion(self.model(images), labels)
        with self.world.range("backward"):
            self.optimizer.zero_grad()
            loss.backward()
        if self.by_hand:
            with self.world.range("reduce"):
                self.gather_gradients()
        if not self.by_hand or self.world.rank == 0:
            with self.world.range("optimizer"):
                self.optimizer.step()
        return float(loss.item())

    def send_parameters(self) -> None:
        for parameter in self.model.parameters():
            dist.broadcast(parameter.data, src=0)

    def gather_gradients(self) -> None:
        for parameter in self.model.parameters():
            dist.reduce(parameter.grad, dst=0)
            parameter.grad /= self.world.size


def train(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Runs all iterations and returns their times; the first one, which includes set-up, is separate."""
    job, times, loss = Job(world, options), [], 0.0
    for _ in range(options.iterations):
        begun = time.perf_counter()
        with world.range("iteration"):
            loss = job.step()
            world.synchronize()
        times.append(time.perf_counter() - begun)
    later = sorted(times[1:] or times)
    mean = sum(later) / len(later)
    images = job.images.shape[0] * world.size
    return {
        "program": "alexnet", "style": options.style, "backend": world.backend, "ranks": world.size, "batch": images,
        "iterations": options.iterations, "first_iteration_s": times[0], "iteration_s": mean,
        "median_iteration_s": later[len(later) // 2], "images_per_s": images / mean, "loss": loss,
    }  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="images per iteration, over all ranks (default 32)")
    parser.add_argument("--iterations", type=int, default=16)
    parser.add_argument("--ranks", type=int, default=1, help="number of ranks to start (not under torchrun)")
    parser.add_argument("--style", choices=("ddp", "data-parallel"), default="ddp")
    parser.add_argument("--classes", type=int, default=1000)
    return parser.parse_args()


def main() -> None:
    options = parse()
    spawn(options.ranks)
    world = join()
    result = train(world, options)
    if world.rank == 0:
        print(json.dumps(result) + "\n", end="", flush=True)  # one write: other ranks print too
    leave(world)


if __name__ == "__main__":
    main()
