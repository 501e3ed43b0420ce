"""DDP and torch.compile of a small GPT on two NCCL ranks: Inductor's compile workers are forked after CUDA's start."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import ranks

WIDTH, HEADS, LAYERS, TOKENS, WORDS, BATCH, STEPS = 128, 4, 2, 64, 512, 8, 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        parts = self.mix(self.first(x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.narrow(F.gelu(self.widen(self.second(x))))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.end, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.end(self.blocks(x)))


def main() -> None:
    ranks.spawn(2)
    world = ranks.join()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Gpt().to(world.device), device_ids=[0] if world.on_gpu else None)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        torch.manual_seed(1000 * world.rank + step)
        tokens = torch.randint(WORDS, (BATCH, TOKENS), device=world.device)
        loss = F.cross_entropy(compiled(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if world.rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    ranks.leave(world)


if __name__ == "__main__":
    main()
