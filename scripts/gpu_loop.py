"""A loop of tiny kernel launches, timed; `profiler`: under torch.profiler; `forever`: until killed, saying how far."""

from __future__ import annotations

import json
import sys
import time

import torch

LAUNCHES, ROUNDS = 50_000, 5


def launch(x: torch.Tensor, count: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        x.add_(1)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count * 1e6


def main() -> int:
    mode = sys.argv[1] if len(sys.argv) > 1 else "bare"
    x = torch.zeros(16, device="cuda")
    launch(x, 1000)
    done = 1000
    while mode == "forever":
        launch(x, 1000)
        done += 1000
        print(done, flush=True)
    if mode == "profiler":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
            times = [launch(x, LAUNCHES) for _ in range(ROUNDS)]
            began = time.perf_counter()
        stop_s = time.perf_counter() - began
    else:
        times, stop_s = [launch(x, LAUNCHES) for _ in range(ROUNDS)], 0.0
    told = {"mode": mode, "best_us": min(times), "all_us": times, "stop_s": stop_s, "done_at": time.time()}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
