"""Data-parallel training in numpy and mpi4py: a two-layer network learns to tell two spirals apart.

    mpirun -n 4 python examples/train_mpi4py.py
    mpirun -n 4 rankscope run python examples/train_mpi4py.py --slow-rank 2

Every rank holds a share of the samples; the gradients of each layer are summed over all ranks in every step.
"""

from __future__ import annotations

import argparse
import pickle
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

Array = Any  # the example must run without numpy's typing extras

WORLD = MPI.COMM_WORLD
SAMPLES = 24_576
UNSEEN_SAMPLES = 4_096
FREQUENCIES = 12
SEED = 7


@dataclass
class Layer:
    """A dense layer with gradients and momentum; weights and bias share one buffer, so one Allreduce sums both."""

    parameters: Array
    gradients: Array
    velocity: Array
    inputs: int

    @classmethod
    def make(cls, inputs: int, outputs: int, random: Any) -> Layer:
        parameters = random.normal(0.0, np.sqrt(2.0 / inputs), (inputs + 1, outputs))
        parameters[-1] = 0.0
        return cls(parameters, np.zeros_like(parameters), np.zeros_like(parameters), inputs)

    def forward(self, x: Array) -> Array:
        return x @ self.parameters[:-1] + self.parameters[-1]

    def backward(self, x: Array, error: Array) -> Array:
        self.gradients[:-1] = x.T @ error
        self.gradients[-1] = error.sum(axis=0)
        return error @ self.parameters[:-1].T

    def step(self, rate: float, momentum: float = 0.9) -> None:
        self.velocity *= momentum
        self.velocity -= rate * self.gradients
        self.parameters += self.velocity


def spirals(samples: int, seed: int) -> tuple[Array, Array]:
    """This rank's share of the samples of two interleaved, noisy spirals: features and labels."""
    random = np.random.default_rng(seed)
    labels = np.arange(samples) % 2
    turn = np.sqrt(random.uniform(0.02, 1.0, samples)) * 3.0 * np.pi
    angle = turn + np.pi * labels
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) / (3.0 * np.pi)
    seen = features(points + random.normal(0.0, 0.06, points.shape))
    return seen[WORLD.rank :: WORLD.size], labels[WORLD.rank :: WORLD.size]


def features(points: Array) -> Array:
    """Random Fourier features of the points, which make the spirals learnable in a few epochs."""
    waves = np.random.default_rng(SEED + 1).normal(0.0, 2.0, (2, FREQUENCIES))
    return np.concatenate([points, np.sin(points @ waves), np.cos(points @ waves)], axis=1)


def probabilities(scores: Array) -> Array:
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


def train_step(layers: list[Layer], x: Array, labels: Array, rate: float) -> float:
    """One step of gradient descent over the batches of all ranks; returns this rank's loss."""
    first, second = layers
    hidden = np.maximum(first.forward(x), 0.0)
    chance = probabilities(second.forward(hidden))
    rows = np.arange(len(labels))
    loss = -np.log(chance[rows, labels] + 1e-12).mean()
    error = chance
    error[rows, labels] -= 1.0
    error /= len(labels) * WORLD.size
    hidden_error = second.backward(hidden, error)
    WORLD.Allreduce(MPI.IN_PLACE, second.gradients, MPI.SUM)
    hidden_error[hidden <= 0.0] = 0.0
    first.backward(x, hidden_error)
    WORLD.Allreduce(MPI.IN_PLACE, first.gradients, MPI.SUM)
    for layer in layers:
        layer.step(rate)
    return float(loss)


def train_epoch(layers: list[Layer], x: Array, labels: Array, options: argparse.Namespace, random: Any) -> float:
    order = random.permutation(len(labels))
    losses = []
    for start in range(0, len(order) - options.batch + 1, options.batch):
        chosen = order[start : start + options.batch]
        losses.append(train_step(layers, x[chosen], labels[chosen], options.rate))
        if options.slow_rank == WORLD.rank:
            work_for(options.slow_ms / 1e3)
    mean = np.array([np.mean(losses)])
    WORLD.Allreduce(MPI.IN_PLACE, mean, MPI.SUM)
    return float(mean[0] / WORLD.size)


def work_for(seconds: float) -> None:
    """Keeps a core busy, like a rank with more data or a slower core."""
    block = np.ones((64, 64))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        block @ block


def accuracy(layers: list[Layer], x: Array, labels: Array) -> float:
    """The share of all ranks' samples that the network classifies correctly, on rank 0; 0 elsewhere."""
    hidden = np.maximum(layers[0].forward(x), 0.0)
    right = (layers[1].forward(hidden).argmax(axis=1) == labels).sum()
    mine, total = np.array([right, len(labels)], dtype="int64"), np.zeros(2, dtype="int64")
    WORLD.Reduce(mine, total, MPI.SUM, root=0)
    return float(total[0] / max(total[1], 1))


def checkpoint(layers: list[Layer], random: Any, path: Path | None) -> None:
    """Gathers on rank 0 what a restart needs: the parameters and every rank's random state."""
    states = WORLD.gather(random.bit_generator.state, root=0)
    if path is not None and states is not None:
        path.write_bytes(pickle.dumps(([layer.parameters for layer in layers], states)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch", type=int, default=64, help="samples per rank and step")
    parser.add_argument("--hidden", type=int, default=384, help="width of the hidden layer")
    parser.add_argument("--rate", type=float, default=0.01, help="learning rate")
    parser.add_argument("--slow-rank", type=int, metavar="R", help="this rank does extra work in every step")
    parser.add_argument("--slow-ms", type=float, default=3.0, help="extra work per step (default 3 ms)")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="rank 0 writes a checkpoint after each epoch")
    return parser.parse_args()


def main() -> None:
    options = parse()
    x, labels = spirals(SAMPLES, SEED)
    random = np.random.default_rng([SEED, WORLD.rank])
    layers = [Layer.make(x.shape[1], options.hidden, random), Layer.make(options.hidden, 2, random)]
    for layer in layers:
        WORLD.Bcast(layer.parameters, root=0)
    for epoch in range(1, options.epochs + 1):
        loss = train_epoch(layers, x, labels, options, random)
        if WORLD.rank == 0:
            print(f"epoch {epoch:2d}  loss {loss:.4f}", flush=True)
        checkpoint(layers, random, options.checkpoint)
    final = accuracy(layers, *spirals(UNSEEN_SAMPLES, SEED + 2))
    if WORLD.rank == 0:
        print(f"accuracy {final:.1%} on {UNSEEN_SAMPLES} unseen samples, {WORLD.size} ranks", flush=True)


if __name__ == "__main__":
    main()
