"""Trains small models of the kinds named, one for each sampled step; prints as JSON what torch counts of each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

SAMPLED = (2, *range(8, 8 * 16, 8))  # with RANKSCOPE_FLOPS_EVERY=8
WIDTH, HEADS, TOKENS, BATCH = 64, 4, 16, 4


class Attention(torch.nn.Module):
    def __init__(self, is_plain: bool = False) -> None:
        super().__init__()
        self.into = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.is_plain = is_plain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        if self.is_plain:
            made = torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, -1) @ v
        else:
            made = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(made.transpose(1, 2).reshape(x.shape))  # type: ignore[no-any-return]


class Block(torch.nn.Module):
    def __init__(self, is_plain: bool = False, is_saving: bool = False) -> None:
        super().__init__()
        self.attention = Attention(is_plain)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.is_saving = is_saving

    def both(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.both, x, use_reentrant=False) if self.is_saving else self.both(x)  # type: ignore[no-any-return]


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.LSTM(WIDTH, 48, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[0]  # type: ignore[no-any-return]


def residual() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 7, stride=2, padding=3),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, padding="same", dilation=2, bias=False),
        torch.nn.ConvTranspose2d(32, 8, 2, stride=2),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 10),
    )


class Grouped(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Conv1d(8, 16, 3, groups=4)
        self.three = torch.nn.Conv3d(1, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.three(self.one(x).view(x.shape[0], 1, 4, 4, -1)).mean()


tokens = torch.randn(BATCH, TOKENS, WIDTH)
MODELS: dict[str, tuple[Callable[[], torch.nn.Module], torch.Tensor]] = {
    "mlp": (
        lambda: torch.nn.Sequential(torch.nn.Linear(WIDTH, 96), torch.nn.ReLU(), torch.nn.Linear(96, 10)),
        torch.randn(BATCH, WIDTH),
    ),
    "gpt": (lambda: torch.nn.Sequential(Block(), Block()), tokens),
    "plain_attention": (lambda: Block(is_plain=True), tokens),
    "checkpointed": (lambda: torch.nn.Sequential(Block(is_saving=True), Block()), tokens),
    "residual": (residual, torch.randn(BATCH, 3, 32, 32)),
    "grouped": (Grouped, torch.randn(BATCH, 8, 34)),
    "lstm": (Recurrent, tokens),
    "encoder": (lambda: torch.nn.TransformerEncoderLayer(WIDTH, HEADS, batch_first=True), tokens),
    "autocast": (lambda: Block(), tokens),
    "accumulated": (lambda: Block(), tokens),
    "two_optimizers": (lambda: torch.nn.Sequential(Block(), Block()), tokens),
    "compiled": (lambda: Block(), tokens),
    "custom": (lambda: Block(), tokens),
    "double": (lambda: Block().double(), tokens.double()),
}


@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * 2)


aten = torch.ops.aten
FOR_CPU = {  # torch counts attention by these on GPUs only
    aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda gradient, q, k, v, *_, **__: (
        sdpa_backward_flop_count(gradient, q, k, v)
    ),
}


class Training:
    def __init__(self, kind: str) -> None:
        make, self.x = MODELS[kind]
        self.kind, self.model = kind, make()
        parts = [self.model.parameters()]
        if kind == "two_optimizers":
            parts = [layer.parameters() for layer in self.model.children()]
        self.optimizers = [torch.optim.SGD(part, lr=1e-4) for part in parts]
        self.used = torch.compile(self.model) if kind == "compiled" else self.model

    def losses(self, model: Callable[[torch.Tensor], torch.Tensor]) -> None:
        for _ in range(2 if self.kind == "accumulated" else 1):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.kind == "autocast"):
                loss = model(self.x).float().pow(2).mean()
            loss.backward()
            if self.kind == "custom":
                twice(self.x)

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.losses(self.used)
        for optimizer in self.optimizers:
            optimizer.step()

    def flops(self) -> int:
        with FlopCounterMode(display=False, custom_mapping=FOR_CPU) as counter:
            self.losses(self.model)
        return counter.get_total_flops()


def main(kinds: list[str]) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    told, kept, steps = {}, [], 0
    for kind, sampled in zip(kinds, SAMPLED, strict=False):
        training = Training(kind)
        kept.append(training)  # an optimizer of another kind at its address would be taken for it
        # the first step with another optimizer belongs to the step before
        while steps - len(kept) < sampled + 1:
            training.step()
            steps += 1
        told[sampled] = {"kind": kind, "flops": training.flops()}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])
