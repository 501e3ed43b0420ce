"""PyTorch with known work: long matrix multiplications timed by CUDA events, and a graph of arctangents replayed.

Prints as json what a recorder must have seen; torch itself does more, but nothing else of these names.
"""

from __future__ import annotations

import json
import os
import sys

import torch

MATMULS, WIDTH, REPLAYS = 60, 8192, 25  # 1.1e12 operations each: about a millisecond and a half


def matmuls() -> float:
    """Their time by CUDA events, in ns."""
    left, right = (torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    for _ in range(3):
        torch.matmul(left, right, out=out)
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(MATMULS):
        torch.matmul(left, right, out=out)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e6


def arctangents() -> None:
    x = torch.randn(4096, device="cuda")
    torch.atan(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.atan(torch.atan(torch.atan(x)))
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    del y


def main() -> int:
    loop_ns = matmuls()
    arctangents()
    told = {"matmuls": MATMULS, "warm": 3, "matmul_loop_ns": loop_ns, "atan_kernels": 1 + 3 * REPLAYS}
    print(json.dumps({**told, "graph_launches": REPLAYS, "pid": os.getpid(), "torch": torch.__version__}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
