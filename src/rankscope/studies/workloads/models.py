"""AlexNet, ResNet-50 and a small transformer. `shrink` divides their widths, for machines without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

CLASSES = 1000
WORDS = 64  # of one sequence
LAYERS = 4  # of the transformer
HEADS = 4


@dataclass
class Task:
    """A model and the random samples that it is trained on."""

    model: Any
    sample: tuple[int, ...]  # shape of one input
    whole_numbers: bool  # inputs are words, and there is a label for each

    def samples(self, count: int) -> tuple[Any, Any]:
        shape = (count, *self.sample)
        if self.whole_numbers:
            return torch.randint(CLASSES, shape), torch.randint(CLASSES, shape)
        return torch.randn(shape), torch.randint(CLASSES, (count,))

    def loss(self, logits: Any, labels: Any) -> Any:
        return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def alexnet(shrink: int, image: int) -> Task:
    """Five convolutions and three dense layers: 61 million parameters in 16 tensors at full width."""
    first, second, third, fourth = (width // shrink for width in (64, 192, 384, 256))
    dense = 4096 // shrink
    model = nn.Sequential(
        nn.Conv2d(3, first, 11, stride=4, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(first, second, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(second, third, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(third, fourth, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(fourth, fourth, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.AdaptiveAvgPool2d((6, 6)), nn.Flatten(),
        nn.Dropout(), nn.Linear(fourth * 36, dense), nn.ReLU(True),
        nn.Dropout(), nn.Linear(dense, dense), nn.ReLU(True), nn.Linear(dense, CLASSES),
    )  # fmt: skip
    return Task(model, (3, image, image), False)


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Narrow, convolve, widen; added to what came in."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.inner = nn.Sequential(
            *convolution(inputs, width, 1), nn.ReLU(True),
            *convolution(width, width, 3, stride), nn.ReLU(True),
            *convolution(width, outputs, 1),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        self.around = nn.Identity() if same else nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, x: Any) -> Any:
        return torch.relu(self.inner(x) + self.around(x))


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> tuple[Any, Any]:
    layer = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
    return layer, nn.BatchNorm2d(outputs)


def resnet50(shrink: int, image: int) -> Task:
    """Sixteen bottlenecks in four stages: 25.6 million parameters in 161 tensors at full width."""
    width = 64 // shrink
    parts: list[Any] = [*convolution(3, width, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            parts.append(Bottleneck(inputs, width << stage, 2 if stage and not block else 1))
            inputs = 4 * (width << stage)
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))
    return Task(model, (3, image, image), False)


class Block(nn.Module):  # type: ignore[misc]
    """Attention to the words before, then two dense layers, each added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        count, words, width = x.shape
        projected = self.projections(self.before(x)).view(count, words, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*projected, is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).reshape(count, words, width))
        return x + self.dense(self.between(x))


class Transformer(nn.Module):  # type: ignore[misc]
    """Predicts the next word of sequences."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(CLASSES, width), nn.Embedding(WORDS, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CLASSES))

    def forward(self, words: Any) -> Any:
        places = torch.arange(words.shape[1], device=words.device)
        return self.head(self.blocks(self.words(words) + self.places(places)))


def transformer(shrink: int, image: int) -> Task:
    """Four blocks of 512 wide at full width, sequences of 64 words out of 1,000: 13.7 million parameters."""
    return Task(Transformer(512 // shrink), (WORDS,), True)


MODELS: dict[str, Callable[[int, int], Task]] = {"alexnet": alexnet, "resnet50": resnet50, "transformer": transformer}
