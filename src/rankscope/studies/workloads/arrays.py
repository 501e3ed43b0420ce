"""Buffers of float32, by numpy or by torch: whichever the library that is measured takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Repeated = tuple[Sequence[float], int]  # values of one period, and how many values there are in all
SPOILT = -1.0


class NumpyArrays:
    def __init__(self) -> None:
        import numpy

        self.numpy = numpy

    def filled(self, pieces: Sequence[Repeated]) -> Any:
        """The pieces, one after the other."""
        float32 = self.numpy.float32
        arrays = [self.numpy.resize(self.numpy.array(values, float32), count) for values, count in pieces]
        return self.numpy.concatenate([*arrays, self.numpy.zeros(0, float32)])

    def copy(self, to: Any, source: Any) -> None:
        self.numpy.copyto(to, source)

    def spoil(self, buffer: Any) -> None:
        buffer.fill(SPOILT)

    def unequal(self, one: Any, other: Any) -> int | None:
        """The first place where they differ."""
        if one.shape != other.shape:
            return min(len(one), len(other)) - 1
        return None if self.numpy.array_equal(one, other) else int(self.numpy.argmax(one != other))

    def value(self, buffer: Any, at: int) -> float:
        return float(buffer[at])


class TorchArrays:
    def __init__(self, device: str) -> None:
        import torch

        self.torch, self.device = torch, device

    def filled(self, pieces: Sequence[Repeated]) -> Any:
        tensors = [self.torch.zeros(0, device=self.device)]
        for values, count in pieces:
            period = self.torch.tensor(values, dtype=self.torch.float32, device=self.device)
            tensors.append(period.repeat(count // len(values) + 1)[:count])
        return self.torch.cat(tensors)

    def copy(self, to: Any, source: Any) -> None:
        to.copy_(source)

    def spoil(self, buffer: Any) -> None:
        buffer.fill_(SPOILT)

    def unequal(self, one: Any, other: Any) -> int | None:
        if one.shape != other.shape:
            return min(len(one), len(other)) - 1
        return None if self.torch.equal(one, other) else int((one != other).to(self.torch.uint8).argmax())

    def value(self, buffer: Any, at: int) -> float:
        return float(buffer[at])
