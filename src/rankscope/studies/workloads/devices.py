"""Where a rank computes, and what it does there, in named ranges that a profile shows."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import place
import torch

DEVICES = ("cpu", "cuda")


def backend_of(device: str) -> str:
    """The library that moves data between such devices; made ready for several ranks that share one."""
    if device == "cpu":
        return "gloo"
    if not torch.cuda.is_available():
        sys.exit("error: torch sees no CUDA device here: use --device cpu")
    place.share_devices(torch.cuda.device_count())
    return "nccl"


@contextlib.contextmanager
def named(name: str, device: str) -> Iterator[None]:
    """A range of torch's own kind, and of NVTX's where there is a GPU."""
    if device == "cuda":
        torch.cuda.nvtx.range_push(name)
    with torch.profiler.record_function(name):
        yield
    if device == "cuda":
        torch.cuda.nvtx.range_pop()


def finish(device: str) -> None:
    """Wait for what the device still has to do."""
    if device == "cuda":
        torch.cuda.synchronize()
