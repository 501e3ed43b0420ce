"""threads.py STEPS: a training while other threads of the process keep calling CUDA: kernels on a stream of their own,
pinned copies, queries of events. Recorders that attach and leave must not mind."""

from __future__ import annotations

import sys
import threading

import torch
from problems import transformer


def multiply(over: threading.Event) -> None:
    stream = torch.cuda.Stream()
    a = torch.randn(256, 256, device="cuda")
    with torch.cuda.stream(stream):
        while not over.is_set():
            for _ in range(20):
                torch.mm(a, a)
            stream.synchronize()


def copy(over: threading.Event) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        while not over.is_set():
            batch = torch.empty(1 << 16, pin_memory=True).cuda(non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            while not event.query():
                pass
            del batch


def main() -> int:
    steps = int(sys.argv[1])
    model, x = transformer(128, 2), torch.randn(4, 64, 128, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    over = threading.Event()
    others = [threading.Thread(target=work, args=(over,)) for work in (multiply, copy)]
    for other in others:
        other.start()
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    over.set()
    for other in others:
        other.join()
    print(f"done {steps}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
