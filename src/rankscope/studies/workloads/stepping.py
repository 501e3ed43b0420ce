"""A training step as each backend's programs do it: a small model of torch, or plain averaging of gradients."""

from __future__ import annotations

from typing import Any

LAYERS = 4
WIDTH = 256
BATCH = 32


def trainer(name: str, backend: Any) -> Any:
    """What does the steps; building it may itself send something."""
    if name.startswith("horovod"):
        return HorovodStep(backend)
    return DataParallelStep(backend) if hasattr(backend, "distributed") else PlainStep(backend)


class PlainStep:
    """Gradients of so many layers are averaged; there is no framework that would compute them."""

    WHAT = f"average of {LAYERS} gradients"

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.weights = [backend.buffer(WIDTH * WIDTH, 0.0) for _ in range(LAYERS)]

    def step(self) -> None:
        for weights in self.weights:
            gradient = self.backend.buffer(len(weights), float(self.backend.rank + 1))
            self.backend.allreduce(gradient)
            weights -= gradient / self.backend.world

    def wrong(self) -> str:
        """The weights go down by the mean gradient in every step."""
        mean = (self.backend.world + 1) / 2
        got = float(self.weights[-1][-1])
        return "" if got == -2 * mean else f"after two steps a weight is {got:g}, not {-2 * mean:g}"


class TorchStep:
    """Forward, backward and optimizer of a small model of torch."""

    WHAT = ""

    def __init__(self, backend: Any) -> None:
        torch, device = backend.torch, getattr(backend, "device", "cpu")
        self.backend, self.torch = backend, torch
        torch.manual_seed(backend.rank)  # so that ranks begin alike only where the library sees to it
        layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(LAYERS)]
        self.model = torch.nn.Sequential(*layers).to(device)
        self.data = torch.randn(BATCH, WIDTH, device=device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.data).square().mean().backward()
        self.optimizer.step()

    def wrong(self) -> str:
        """After two steps all ranks must have the same weights: their sum over ranks is theirs times so many."""
        weights = next(iter(self.model.parameters())).detach()[0].clone().contiguous()
        added = weights.clone()
        self.backend.allreduce(added)
        far = float((added / self.backend.world - weights).abs().max())
        return "" if far < 1e-6 else f"after two steps the weights of the ranks differ by {far:g}"


class DataParallelStep(TorchStep):
    WHAT = f"DistributedDataParallel, {LAYERS} layers of {WIDTH}"

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self.model = self.torch.nn.parallel.DistributedDataParallel(self.model)


class HorovodStep(TorchStep):
    WHAT = f"hvd.DistributedOptimizer, {LAYERS} layers of {WIDTH}"

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        backend.hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        named = self.model.named_parameters()
        self.optimizer = backend.hvd.DistributedOptimizer(self.optimizer, named_parameters=named)
