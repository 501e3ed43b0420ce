"""One of several programs that take turns on a GPU (gpu_turns.py): does its piece when told to and says how long.

Those that are not at work wait for a line, so that they cost the others nothing, and all see the same moods of the
machine.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def synchronize() -> None:
    if CUDA:
        torch.cuda.synchronize()


def timed(work: Callable[[], None], pieces: int) -> dict[str, float]:
    """Wall time, CPU time of this thread and of all threads, each by piece, in us."""
    synchronize()
    wall, cpu, process = time.perf_counter_ns(), time.thread_time_ns(), time.process_time_ns()
    work()
    synchronize()
    wall, cpu, process = (
        time.perf_counter_ns() - wall, time.thread_time_ns() - cpu, time.process_time_ns() - process,
    )  # fmt: skip
    return {name: ns / pieces / 1e3 for name, ns in (("wall_us", wall), ("cpu_us", cpu), ("process_us", process))}


def serve(mode: str, turn: Callable[[], dict[str, float]]) -> None:
    """A turn for every line `go`; anything else ends it."""
    turn()
    profiler: Any = contextlib.nullcontext()
    if mode == "profiler":
        kinds = torch.profiler.ProfilerActivity
        profiler = torch.profiler.profile(activities=[kinds.CUDA if CUDA else kinds.CPU])
    with profiler:
        turn()
        pin()
        gc.collect()
        gc.disable()
        say({"ready": mode, "pid": os.getpid()})
        for line in sys.stdin:
            if line.strip() != "go":
                break
            say(turn())
        began = time.perf_counter()
    say({"mode": mode, "stop_s": time.perf_counter() - began})


def pin() -> None:
    """This thread only, to the last core: the threads of CUDA and of CUPTI keep all of them."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def say(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)
