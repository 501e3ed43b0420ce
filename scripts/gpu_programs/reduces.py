"""Two ranks of known all-reduces on NCCL, each enqueuing call timed, in turns that are asked for; they may share a GPU.

    reduces.py [--backend nccl]     reads `go COUNT [calls]` and `end` from its input, answers each with a line of JSON

Without torchrun, which would take seconds of a GPU's time for itself. `go` answers the microseconds of rank 0's calls,
with the plugin of `alternating_plugin.c` those of either side, and the nanoseconds that the plugins themselves took of
them. A side is chosen by chance for each batch of calls, as in a job all of them go the same way, or with `calls` for
each call, so that either side is out of the caches more often. `end` answers how many all-reduces each rank has made
that the plugin of `NCCL_PROFILER_PLUGIN` could see. Where a rank ends early the other is ended too, and the line says
how: `{"exit": -11}`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import socket
import subprocess
import sys
import time
from typing import Any

RANKS = 2
TOGETHER = 40  # what is enqueued must not wait for what was: then the device is waited for


def rank_main(backend: str) -> None:
    front = os.environ.get("ALTERNATING_PLUGIN")
    alternating = side = None
    if front:  # set here and not before: `rankscope run` would put it behind its own
        os.environ["ALTERNATING_BEHIND"] = os.environ["NCCL_PROFILER_PLUGIN"]
        os.environ["NCCL_PROFILER_PLUGIN"] = front
        alternating = ctypes.CDLL(front)
        side = ctypes.c_int.in_dll(alternating, "alternating_side")
    import torch
    import torch.distributed as distributed

    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    distributed.init_process_group(backend, device_id=device if backend == "nccl" else None)
    rows = torch.ones(1024, device=device)
    chosen, made = random.Random(0), 0

    def wait() -> None:
        if backend == "nccl":
            torch.cuda.synchronize()

    def of_plugins(count: int) -> dict[str, list[int]]:
        """What either plugin itself took of the operations since the last turn."""
        if alternating is None:
            return {}
        sides = {}
        for number, name in enumerate(("plugin_ns", "behind_plugin_ns")):
            kept = (ctypes.c_uint32 * count)()
            sides[name] = kept[: alternating.alternating_taken(number, kept, count)]
        return sides

    def turn(count: int, calls_a_side: int) -> dict[str, list[float]]:
        taken_us: dict[str, list[float]] = {"us": [], "behind_us": []}
        is_behind = False
        for number in range(count):
            if number % calls_a_side == 0:
                is_behind = side is not None and chosen.random() < 0.5
            if side is not None:
                side.value = is_behind
            begun = time.perf_counter_ns()
            distributed.all_reduce(rows)
            taken_us["behind_us" if is_behind else "us"].append((time.perf_counter_ns() - begun) / 1e3)
            if number % TOGETHER == TOGETHER - 1:
                wait()
        wait()
        return taken_us

    def answer(told: Any) -> None:
        print(json.dumps(told), flush=True)

    answer({"ready": os.getpid()})
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "end":
            break
        count = int(rest[0])
        taken_us = turn(count, 1 if rest[1:] == ["calls"] else TOGETHER)
        made += len(taken_us["behind_us" if side is not None else "us"])
        answer({**taken_us, **of_plugins(count)})
    wait()
    distributed.destroy_process_group()
    answer({"all_reduces": made, "pid": os.getpid()})


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start(rank: int, port: int, backend: str) -> subprocess.Popen[str]:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS, "MASTER_PORT": port}
    environment = {**os.environ, **{name: str(value) for name, value in place.items()}, "MASTER_ADDR": "127.0.0.1"}
    environment["NCCL_HOSTID"] = str(rank)  # so that ranks may share a GPU
    if "FOREIGN_OUT" in environment:
        environment["FOREIGN_OUT"] += f".{rank}"
    command = [sys.executable, __file__, "--backend", backend, "--as-rank"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answers(ranks: list[subprocess.Popen[str]], line: str) -> list[dict[str, Any]]:
    """Of every rank; ends all where one is gone."""
    for rank in ranks:
        if line and rank.stdin is not None:
            rank.stdin.write(line)
            rank.stdin.flush()
    told = [rank.stdout.readline() if rank.stdout else "" for rank in ranks]
    if all(told):
        return [json.loads(text) for text in told]
    gone = next(rank for rank, text in zip(ranks, told, strict=True) if not text)
    code = gone.wait()
    for rank in ranks:
        rank.kill()
    print(json.dumps({"exit": code}), flush=True)
    sys.exit(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="nccl", choices=["nccl", "gloo"])
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        rank_main(options.backend)
        return 0
    port = free_port()
    ranks = [start(rank, port, options.backend) for rank in range(RANKS)]
    print(json.dumps(answers(ranks, "")[0]), flush=True)
    for line in sys.stdin:
        told = answers(ranks, line)
        if line == "end\n":
            print(json.dumps({"ranks": told}), flush=True)
            break
        print(json.dumps(told[0]), flush=True)
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
