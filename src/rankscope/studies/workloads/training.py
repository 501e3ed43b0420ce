"""Trains a model on random samples: so many steps to warm up, so many that are timed."""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import devices
import models
import result
import styles
import talking
import torch


class Training:
    """One rank's share."""

    def __init__(self, options: argparse.Namespace, world: int, device: str) -> None:
        torch.manual_seed(1)
        on_gpu = device != "cpu"
        shrink, image = options.shrink or (1 if on_gpu else 8), options.image or (224 if on_gpu else 64)
        self.kind, self.device = options.device, device
        self.task = models.MODELS[options.model](shrink, image)
        self.task.model.to(device)
        self.parameters = sum(parameter.numel() for parameter in self.task.model.parameters())
        self.style = styles.style_of(options.style, self.task.model, world)
        # one kernel for each parameter and operation, as the optimizers of the old documents had
        settings: dict[str, Any] = {"lr": 0.005, "momentum": 0.9, "weight_decay": 1e-4, "foreach": False}
        self.optimizer = torch.optim.SGD(self.style.model.parameters(), **settings)
        self.count = max(1, options.batch // world)  # the batch is that of all ranks together
        self.inputs, self.labels = self.task.samples(self.count)
        if on_gpu:
            self.inputs, self.labels = self.inputs.pin_memory(), self.labels.pin_memory()

    def step(self) -> float:
        with devices.named("iteration", self.kind):
            self.style.before()
            with devices.named("data", self.kind):
                inputs = self.inputs.to(self.device, non_blocking=True)
                labels = self.labels.to(self.device, non_blocking=True)
            with devices.named("forward", self.kind):
                loss = self.task.loss(self.style.model(inputs), labels)
            self.optimizer.zero_grad()
            with devices.named("backward", self.kind):
                loss.backward()
            with devices.named("optimizer", self.kind):
                self.style.after(self.optimizer)
            value = float(loss.item())
            devices.finish(self.kind)
        return value


def main() -> None:
    options = parse()
    world = talking.connected(devices.backend_of(options.device), options.into)
    device = "cpu" if options.device == "cpu" else f"cuda:{torch.cuda.current_device()}"
    training = Training(options, world.world, device)
    seconds: list[float] = []
    loss = 0.0
    for _ in range(options.warmup + options.steps):
        begin = time.perf_counter()
        loss = training.step()
        seconds.append(time.perf_counter() - begin)
    wrong = training.style.differs() if math.isfinite(loss) else f"the loss is {loss}"
    result.leave(
        options.into,
        world.rank,
        parameters=training.parameters,
        samples=training.count * world.world,
        warmup_seconds=seconds[: options.warmup],
        seconds=seconds[options.warmup :],
        loss=loss,
        wrong=wrong,
    )
    world.barrier()  # nobody leaves while another still talks
    talking.settle()
    del training  # what holds the group goes before it
    world.close()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", required=True)
    parser.add_argument("--model", choices=models.MODELS, required=True)
    parser.add_argument("--style", choices=styles.STYLES, required=True)
    parser.add_argument("--batch", type=int, required=True, help="of all ranks together")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--device", choices=devices.DEVICES, default="cpu")
    parser.add_argument("--shrink", type=int, default=0, help="0: 1 on a GPU, else 8")
    parser.add_argument("--image", type=int, default=0, help="edge in pixels; 0: 224 on a GPU, else 64")
    return parser.parse_args()


if __name__ == "__main__":
    main()
