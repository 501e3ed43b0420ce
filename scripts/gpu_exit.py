"""How long a process takes to end after millions of GPU records: graph replays of 1,000 kernels, then the end.

gpu_exit.py measure OUT.jsonl RUNS     bare three times, recorded with 10 million kernels, and with few
gpu_exit.py KERNELS SECONDS            the program itself
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_driver import EMPTY, Driver

KERNELS_OF_A_GRAPH, REPLAYS_AT_ONCE = 1000, 20
MANY, FEW, MOST_S = 10_000_000, 200_000, 80


def work(kernels: int, seconds: float) -> None:
    """The last thing it says is when main was over."""
    driver = Driver()
    (kernel,) = driver.kernels(EMPTY.format(name="exit_tiny"), ["exit_tiny"])
    stream = driver.made("cuStreamCreate", 1)
    graph = driver.graph_of(stream, [kernel] * KERNELS_OF_A_GRAPH)
    done, began = 0, time.monotonic()
    while done < kernels and time.monotonic() - began < seconds:
        for _ in range(REPLAYS_AT_ONCE):
            driver("cuGraphLaunch", graph, stream)
        driver.synchronize()
        done += REPLAYS_AT_ONCE * KERNELS_OF_A_GRAPH
    told = {"kernels": done, "loop_s": time.monotonic() - began, "pid": os.getpid(), "main_over": time.time()}
    print(json.dumps(told), flush=True)


def measured(mode: str, kernels: int, runs: Path) -> dict[str, Any]:
    command, run = [sys.executable, __file__, str(kernels), str(MOST_S)], f"exit-{kernels}"
    if mode != "bare":
        command = [sys.executable, "-m", "rankscope", "run", "--quiet", "--out", str(runs / run), *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    code = process.wait()
    over = time.time()
    told = json.loads(line or "{}")
    return {"mode": mode, "run": run, **told, "exit": code, "exit_s": over - told["main_over"] if told else None}


def main() -> int:
    if sys.argv[1] != "measure":
        work(int(sys.argv[1]), float(sys.argv[2]))
        return 0
    plan = [("bare", FEW), ("recorded", FEW), ("bare", FEW), ("recorded", MANY), ("bare", FEW)]
    with Path(sys.argv[2]).open("a") as out:
        for mode, kernels in plan:
            out.write(json.dumps(measured(mode, kernels, Path(sys.argv[3]))) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
