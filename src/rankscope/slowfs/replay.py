"""Recorded path operations done again by many clients, natively, on a folder as it is or slowed down."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.model.imports import PathOperation
from rankscope.slowfs.mount import NATIVE, Slowness, Unavailable, last_line, of_server, program

Array = Any
LETTERS = {"stat": "s", "open": "o", "exec": "o", "access": "a", "readlink": "r", "list": "l"}
TIMES = np.dtype([("operation_ns", "<u8"), ("read_ns", "<u8")])
START_UP_S = 0.5  # for the mounts and the clients to be there, before all begin at once
START_UP_PER_CLIENT_S = 0.005


@dataclass(frozen=True)
class ReplayPlan:
    """Who replays, where."""

    folder: Path
    clients: int = 1  # of each node
    nodes: int = 1  # each with a mount, and so a cache, of its own
    reads: bool = True
    slowness: Slowness | None = None  # None: the folder as it is


@dataclass(frozen=True)
class Replayed:
    """What came out, for each client and operation."""

    operations: Sequence[PathOperation]
    times: Array  # clients × operations of TIMES
    clients: Array  # clients × (begin_ns, end_ns, failed, otherwise, reads, bytes)
    counters: dict[str, int] | None  # of the slow file system


def mapped(operations: Sequence[PathOperation], recorded: str, folder: str) -> list[PathOperation]:
    """Those below the recorded folder, as they are called below another."""
    prefix = recorded.rstrip("/")
    below = [
        operation for operation in operations if operation.path == prefix or operation.path.startswith(f"{prefix}/")
    ]
    return [
        PathOperation(
            operation.operation,
            folder.rstrip("/") + operation.path[len(prefix) :],
            operation.result,
            operation.times,
            operation.bytes,
        )
        for operation in below
    ]


def in_rounds(operations: Sequence[PathOperation]) -> list[PathOperation]:
    """Each as often as it was made: all once, then all that came twice, and so on, for the order was not kept."""
    rounds: list[PathOperation] = []
    left = list(operations)
    done = 0
    while left:
        rounds += left
        done += 1
        left = [operation for operation in left if operation.times > done]
    return rounds


def replay(operations: Sequence[PathOperation], plan: ReplayPlan) -> Replayed:
    """Do them all, by every client, beginning at one moment."""
    every = in_rounds(operations)
    with tempfile.TemporaryDirectory(prefix="rankscope-replay-") as name:
        folder = Path(name)
        (folder / "operations").write_bytes(b"".join(map(_record, every)))
        slowness = plan.slowness.sharing(plan.slowness.server or folder / "server") if plan.slowness else None
        before = _counters(slowness)
        clients = _run_nodes(plan, slowness, folder)
        after = _counters(slowness)
        times = [np.fromfile(folder / f"times{node}", TIMES).reshape(plan.clients, -1) for node in range(plan.nodes)]
    counted = {name: after[name] - before.get(name, 0) for name in after} if slowness else None
    return Replayed(every, np.concatenate(times), clients, counted)


def _record(path_operation: PathOperation) -> bytes:
    end = "+" if path_operation.result == "ok" else "-" if path_operation.result else "?"
    return f"{LETTERS[path_operation.operation]}{end}".encode() + os.fsencode(path_operation.path) + b"\0"


def _counters(slowness: Slowness | None) -> dict[str, int]:
    return of_server(slowness.server) if slowness and slowness.server and slowness.server.exists() else {}


def _run_nodes(plan: ReplayPlan, slowness: Slowness | None, folder: Path) -> Array:
    start_s = START_UP_S + START_UP_PER_CLIENT_S * plan.nodes * plan.clients
    start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(start_s * 1e9)
    commands = [_command(plan, slowness, folder, node, start_ns) for node in range(plan.nodes)]
    with _started(commands) as processes:
        outputs = [process.communicate() for process in processes]
    for process, (_, problem) in zip(processes, outputs, strict=True):
        if process.returncode != 0:
            raise Unavailable(last_line(problem) or f"rankscope-replay ended with {process.returncode}")
    lines = [line.split()[1:] for text, _ in outputs for line in text.splitlines()]
    return np.array(lines, np.int64)


@contextlib.contextmanager
def _started(commands: Sequence[list[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """All of them at once; none is left behind when something goes wrong."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for command in commands:
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
                process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def _command(plan: ReplayPlan, slowness: Slowness | None, folder: Path, node: int, start_ns: int) -> list[str]:
    replayer = NATIVE / "rankscope-replay"
    if not replayer.is_file():
        raise Unavailable("rankscope-replay was not built: run hatch_build.py")
    files = [f"--operations={folder / 'operations'}", f"--times={folder / f'times{node}'}"]
    words = [str(replayer), f"--clients={plan.clients}", f"--start-ns={start_ns}", *files]
    words += [] if plan.reads else ["--no-reads"]
    if slowness is None:
        return words
    return [program(), "run", *slowness.flags(), str(plan.folder), str(plan.folder), "--", *words]
