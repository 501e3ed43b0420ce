"""Times of a pass by metric, in milliseconds: by the clock of the device, where there is one."""

from __future__ import annotations

import time
from typing import Any

import torch

# the names that the document has, its spelling included
BATCH = "batch_level_metric,batch_all"
FORWARD = "foward_metric,forward_pass"
BACKWARD = "backward_metric,backward"
HOOK = "hook_future_metric"
STRAGGLER = "server_metric,straggler"
AVERAGE = "server_metric,first_arrival_to_average"


class Timings:
    """Appended to by several threads; read when a pass is over."""

    def __init__(self, device: str) -> None:
        self.device, self.on_gpu = device, device != "cpu"
        self.taken: list[tuple[str, Any, Any]] = []

    def now(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        with torch.cuda.device(self.device):  # answers of servers come in threads that know of none
            event.record()
        return event

    def end(self, name: str, begin: Any) -> None:
        self.taken.append((name, begin, self.now()))

    def milliseconds(self) -> dict[str, list[float]]:
        """By metric, and nothing is kept."""
        if self.on_gpu:
            torch.cuda.synchronize()
        times: dict[str, list[float]] = {}
        for name, begin, end in self.taken:
            times.setdefault(name, []).append(begin.elapsed_time(end) if self.on_gpu else 1e3 * (end - begin))
        self.taken = []
        return times
