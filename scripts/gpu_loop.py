"""Turns of tiny kernel launches, the harshest work for a recorder; `aside`: all at once, under torch.profiler."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch

from gpu_worker import CUDA, DEVICE, serve, synchronize, timed

LAUNCHES = int(os.environ.get("TURN_LAUNCHES", "2000"))
WARM = LAUNCHES // 10  # the first ones after another program's turn are slower


def launching() -> Callable[[], dict[str, float]]:
    """A turn; when this returns, CUDA has started and run its first kernel."""
    x = torch.zeros(16, device=DEVICE)
    synchronize()

    def launch(count: int) -> None:
        for _ in range(count):
            x.add_(1)

    def turn() -> dict[str, float]:
        launch(WARM)
        return timed(lambda: launch(LAUNCHES), LAUNCHES)

    return turn


def main() -> int:
    mode = sys.argv[1] if len(sys.argv) > 1 else "bare"
    turn = launching()
    if mode == "aside":
        kind = torch.profiler.ProfilerActivity.CUDA if CUDA else torch.profiler.ProfilerActivity.CPU
        turn()
        with torch.profiler.profile(activities=[kind]):
            turn()
        print("done")
        return 0
    serve(mode, turn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
