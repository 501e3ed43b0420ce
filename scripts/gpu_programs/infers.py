"""infers.py SECONDS [--threads]: a small transformer that only infers, a value at a time, each of which the host waits
for; with --threads while other threads of the process keep calling CUDA (threads.py). There is no optimizer, so nobody
can tell where a step ends. Prints how many values each half second had, which gpu_infers_report.py reads."""

from __future__ import annotations

import sys
import threading
import time

import torch
from problems import transformer
from threads import copy, multiply

SLICE_S = 0.5


def main() -> int:
    seconds = float(sys.argv[1])
    over = threading.Event()
    others = [threading.Thread(target=work, args=(over,)) for work in (multiply, copy) if "--threads" in sys.argv]
    model, x = transformer(128, 4), torch.randn(4, 64, 128, device="cuda")
    for other in others:
        other.start()
    begun = sliced = time.monotonic()
    values = 0
    with torch.no_grad():
        while time.monotonic() < begun + seconds:
            model(x).amax().item()
            values += 1
            if (now := time.monotonic()) >= sliced + SLICE_S:
                print(f"slice {time.time():.3f} {now - sliced:.6f} {values}", flush=True)
                sliced, values = now, 0
    over.set()
    for other in others:
        other.join()
    print("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
