"""Trains a model of the kind named on a GPU; prints as JSON what torch, its flop counter and NVML say of it.

`--cpu` tries the program where there is no GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

HEADS, WIDTH, TOKENS, BATCH = 16, 1024, 512, 8


class Block(torch.nn.Module):
    def __init__(self, is_checkpointed: bool) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.is_checkpointed = is_checkpointed

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (p.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for p in self.into(self.norm(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(x)))  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_checkpointed:
            return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]
        return self.inner(x)


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[0]  # type: ignore[no-any-return]


def convolutions() -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for before, after in ((3, 64), (64, 128), (128, 256)):
        layers += [torch.nn.Conv2d(before, after, 3, stride=2, padding=1), torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(256, 1000))


def made(kind: str, device: torch.device) -> tuple[torch.nn.Module, torch.Tensor]:
    if kind == "conv":
        return convolutions().to(device), torch.randn(64, 3, 128, 128, device=device)
    if kind == "lstm":
        return Recurrent().to(device), torch.randn(BATCH, TOKENS, WIDTH, device=device)
    blocks = [Block(kind == "checkpointed") for _ in range(4)]
    return torch.nn.Sequential(*blocks).to(device), torch.randn(BATCH, TOKENS, WIDTH, device=device)


class Energy:
    """NVML's counter of the GPU that this process uses, in mJ."""

    def __init__(self) -> None:
        self.library: Any = None
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        self.handle = ctypes.c_void_p()
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
        if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(self.handle)) == 0:
            self.library = library

    def read_mj(self) -> int | None:
        value = ctypes.c_ulonglong()
        if self.library is None:
            return None
        done = self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(value))
        return value.value if done == 0 else None


def mean_us(asked: Callable[[], Any], times: int = 100) -> float:
    begun = time.perf_counter()
    for _ in range(times):
        asked()
    return (time.perf_counter() - begun) / times * 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("bf16", "tf32", "fp32", "checkpointed", "conv", "lstm", "graph", "compiled"))
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    device = torch.device("cpu" if given.cpu else "cuda")
    torch.manual_seed(1)
    if given.kind == "tf32":
        torch.set_float32_matmul_precision("high")
    model, x = made(given.kind, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    used = torch.compile(model) if given.kind == "compiled" else model
    has_autocast = given.kind in ("bf16", "checkpointed", "graph", "compiled")

    def losses(forward: Any) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=has_autocast):
            loss = forward(x).float().pow(2).mean()
        loss.backward()

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    graph = None
    if given.kind == "graph":
        losses(used)
        optimizer.zero_grad()
        wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses(used)
    energy = Energy() if device.type == "cuda" else None
    begun, begun_unix, first_mj, steps = time.perf_counter(), 0.0, None, 0
    while time.perf_counter() - begun < given.seconds and steps < given.steps:
        if graph is not None:
            graph.replay()
        else:
            optimizer.zero_grad()
            losses(used)
        optimizer.step()
        steps += 1
        if steps % 8 == 0:
            wait()  # so that the host does not run ahead for seconds
        if steps == 8:
            begun_unix, first_mj = time.time(), energy.read_mj() if energy else None
    wait()
    ended_unix, last_mj = time.time(), energy.read_mj() if energy else None
    told: dict[str, Any] = {"kind": given.kind, "steps": steps, "begun_s": begun_unix, "ended_s": ended_unix}
    if device.type == "cuda":
        stats = torch.cuda.memory_stats()
        for key in ("allocated_bytes", "reserved_bytes"):
            told[f"{key}_peak"] = stats[f"{key}.all.peak"]
        told |= {"retries": stats["num_alloc_retries"], "ooms": stats["num_ooms"]}
        told["device"] = torch.cuda.get_device_name()
        told["stats_us"] = mean_us(lambda: torch._C._cuda_memoryStats(0))
        told["nvml_us"] = mean_us(energy.read_mj) if energy else None
    told["energy_mj"] = last_mj - first_mj if last_mj is not None and first_mj is not None else None
    with FlopCounterMode(display=False) as counter:
        losses(model)
    wait()
    told["flops"] = counter.get_total_flops()
    if given.kind == "lstm" and not told["flops"]:  # the counter does not know cuDNN's layers
        weights = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 2)
        told["flops"] = 3 * 2 * BATCH * TOKENS * weights
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
