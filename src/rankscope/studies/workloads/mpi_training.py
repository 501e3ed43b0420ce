"""Data-parallel training over MPI: a small dense network learns what another one does; gradients go layer by layer.

Before a layer's gradients are summed the ranks agree, in eight bytes, that all of them have computed theirs: what
frameworks call negotiation. Here it can be left out, or be done once for all layers of a step.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from typing import Any

import numpy
import reducers
import result

INPUTS, OUTPUTS = 64, 10
RATE = 0.05
SEED = 7


class DenseLayer:
    """Weights, the bias in the last row, and their gradients; arrays of numpy or tensors of torch alike."""

    def __init__(self, inputs: int, outputs: int, random: Any, place: Any) -> None:
        start = random.normal(0.0, (1.0 / inputs) ** 0.5, (inputs + 1, outputs)).astype(numpy.float32)
        start[-1] = 0.0
        self.weights = place(start)
        self.gradients = place(numpy.zeros_like(start))

    def forward(self, x: Any) -> Any:
        return x @ self.weights[:-1] + self.weights[-1]

    def backward(self, x: Any, error: Any) -> Any:
        self.gradients[:-1] = x.T @ error
        self.gradients[-1] = error.sum(0)
        return error @ self.weights[:-1].T


class Training:
    def __init__(self, options: argparse.Namespace, reducer: reducers.Reducer, place: Any) -> None:
        self.reducer, self.options = reducer, options
        random = numpy.random.default_rng([SEED, reducer.rank])  # others' weights come from rank 0
        widths = [INPUTS, *[options.hidden] * (options.layers - 1), OUTPUTS]
        self.layers = [DenseLayer(*pair, random, place) for pair in itertools.pairwise(widths)]
        teacher = numpy.random.default_rng(SEED).normal(0.0, 0.1, (INPUTS, OUTPUTS)).astype(numpy.float32)
        x = random.normal(0.0, 1.0, (options.batch, INPUTS)).astype(numpy.float32)
        self.x, self.y = place(x), place(numpy.tanh(x @ teacher))
        self.negotiate = options.negotiate
        self.slow_s = options.slow_ms / 1e3 if options.slow_rank == reducer.rank else 0.0
        for layer in self.layers:
            finish(options.device)
            reducer.broadcast(layer.weights)

    def step(self) -> float:
        """One step over the batches of all ranks; this rank's loss."""
        seen = [self.x]
        for layer in self.layers[:-1]:
            out = layer.forward(seen[-1])
            seen.append(out * (out > 0))
        off = self.layers[-1].forward(seen[-1]) - self.y
        error = off / (len(off) * self.reducer.world)
        time.sleep(self.slow_s)
        for number in reversed(range(len(self.layers))):
            layer, x = self.layers[number], seen[number]
            error = layer.backward(x, error) * (x > 0)
            if self.negotiate == "tensor":
                self.agreed(number)
                self.add_up(layer)
        if self.negotiate != "tensor":
            self.agreed(0) if self.negotiate == "step" else None
            for layer in reversed(self.layers):
                self.add_up(layer)
        for layer in self.layers:
            layer.weights -= RATE * layer.gradients
        return float((off * off).mean())

    def agreed(self, number: int) -> None:
        if self.reducer.agree(1 << number) != 1 << number:
            sys.exit("error: the ranks are not at the same tensor")

    def add_up(self, layer: DenseLayer) -> None:
        finish(self.options.device)
        self.reducer.add_up(layer.gradients)

    def epoch(self) -> tuple[float, list[float]]:
        """The loss over all ranks at its end, and the seconds of each step."""
        seconds, loss = [], 0.0
        for _ in range(self.options.steps):
            begin = time.perf_counter()
            loss = self.step()
            seconds.append(time.perf_counter() - begin)
        both = numpy.array([loss, 1.0])
        self.reducer.add_up(both)
        self.reducer.gather(len(seconds))
        return float(both[0] / both[1]), seconds

    def wrong(self, losses: list[float]) -> str:
        own_sum = float(sum(abs(layer.weights).sum() for layer in self.layers))
        both = numpy.array([own_sum, 1.0])
        self.reducer.add_up(both)
        if abs(both[0] - own_sum * self.reducer.world) > 1e-4 * both[0]:
            return f"the ranks' weights differ: {own_sum} here, {both[0] / self.reducer.world} on average"
        if not losses[-1] < losses[0] and len(losses) > 1:
            return f"nothing was learnt: the loss went from {losses[0]} to {losses[-1]}"
        return ""


def finish(device: str) -> None:
    """MPI does not know of streams: what it is to send must be there."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def placing(device: str, rank: int) -> Any:
    """From arrays of numpy to where the training computes."""
    if device == "cpu":
        return lambda array: array
    import torch

    if not torch.cuda.is_available():
        sys.exit("error: torch sees no CUDA device here: use --device cpu")
    torch.cuda.set_device(rank % torch.cuda.device_count())
    return lambda array: torch.from_numpy(array).cuda()


def main() -> None:
    options = parse()
    reducer = reducers.reducer_of(options.library)
    training = Training(options, reducer, placing(options.device, reducer.rank))
    losses, seconds = [], []
    for _ in range(options.epochs):
        loss, taken = training.epoch()
        losses.append(loss)
        seconds.append(taken)
    wrong = training.wrong(losses)
    parameters = sum(layer.weights.shape[0] * layer.weights.shape[1] for layer in training.layers)
    outcome = {"losses": losses, "seconds": seconds, "parameters": parameters, "batch": options.batch}
    result.leave(options.into, reducer.rank, **outcome, counted=reducer.counted, wrong=wrong)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", required=True)
    parser.add_argument("--library", choices=reducers.LIBRARIES, default="mpi4py")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=25, help="in an epoch")
    parser.add_argument("--batch", type=int, default=64, help="samples of each rank")
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--negotiate", choices=("tensor", "step", "no"), default="tensor")
    parser.add_argument("--slow-rank", type=int, default=-1, help="this rank sleeps in every step")
    parser.add_argument("--slow-ms", type=float, default=5.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
