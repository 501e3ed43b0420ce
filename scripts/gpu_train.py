"""A training to be killed: after each step it has waited for, it notes the step and the time in a file.

Each step launches one kernel of a name of its own, so that a recorder's count of steps can be held against the file's.
"""

from __future__ import annotations

import os
import struct
import sys
import time

import torch
from torch import nn

from gpu_driver import EMPTY, Driver

CUDA = torch.cuda.is_available()
WIDTH, LAYERS, BATCH = (2048, 8, 512) if CUDA else (64, 2, 8)


def main() -> int:
    device = "cuda" if CUDA else "cpu"
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(BATCH, WIDTH, device=device)
    driver = Driver() if CUDA else None
    kernel = driver.kernels(EMPTY.format(name="train_step"), ["train_step"])[0] if driver else None
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    step = 0
    while True:
        step += 1
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if driver and kernel:
            driver.launch(kernel)
            driver.synchronize()
        os.write(file, struct.pack("=QQ", step, time.time_ns()))
        if not CUDA:
            time.sleep(0.002)


if __name__ == "__main__":
    sys.exit(main())
