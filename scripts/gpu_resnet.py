"""Turns of training steps of ResNet-50, written here, on synthetic images of 224 x 224 in bfloat16."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from gpu_worker import CUDA, DEVICE, serve, timed

BATCH, SIDE, STEPS = (256, 224, 3) if CUDA else (2, 64, 1)
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width and blocks


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU(True)

    def forward(self, x: Any) -> Any:
        return self.relu(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for number, (width, blocks) in enumerate(STAGES):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, 2 if number and not block else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def main() -> int:
    torch.manual_seed(0)
    model: Any = resnet50().to(DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(BATCH, 3, SIDE, SIDE, device=DEVICE).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (BATCH,), device=DEVICE)

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()

    def turn() -> dict[str, float]:
        steps(1)
        return timed(lambda: steps(STEPS), STEPS)

    serve(sys.argv[1] if len(sys.argv) > 1 else "bare", turn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
