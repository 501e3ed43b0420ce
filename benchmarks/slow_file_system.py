"""What one `import torch` asks of a file server with each kind of client cache, and what many at once make of it.

    python benchmarks/slow_file_system.py [--save] [--latency-us N] [--rate N] [--nodes LIST]

Counts: a cold import of .envs/torch through a fresh mount of the slow file system, without latency; exact. Beside them
what questions/imports/projection.py says of the same import's path operations (strace), and a native replay of those.
Times: the same import with a latency on every metadata operation.
Scale: replays by several nodes (mounts with caches of their own) on one server of a limited rate, and the projection.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rankscope.formats import path_operations
from rankscope.formats.source import Source
from rankscope.model.imports import PathOperation
from rankscope.questions.imports.projection import FileServer, counts_of, lookups, projected
from rankscope.slowfs.mount import CACHES, Slowness, parsed, program, reason_against_running
from rankscope.slowfs.replay import ReplayPlan, mapped, replay

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SHOWN = ("lookup", "getattr", "open", "opendir", "readdir", "read", "missing", "metadata")
IMPORT = ["bin/python", "-c", "import torch"]


def cold_import(environment: Path, slowness: Slowness) -> tuple[float, dict[str, int]]:
    """Seconds and counters of an import through a mount that knows nothing yet."""
    with tempfile.TemporaryDirectory() as folder:
        counters = Path(folder) / "counters"
        words = [
            program(),
            "run",
            *slowness.flags(),
            f"--counters={counters}",
            str(environment),
            str(environment),
            "--",
        ]
        begin = time.monotonic()
        subprocess.run([*words, str(environment / IMPORT[0]), *IMPORT[1:]], check=True)
        return time.monotonic() - begin, parsed(counters.read_text())


def recorded(environment: Path) -> list[PathOperation]:
    """The path operations of the same import, on the environment itself."""
    with tempfile.NamedTemporaryFile("r") as log:
        words = ["strace", "-f", "-o", log.name, str(environment / IMPORT[0]), *IMPORT[1:]]
        subprocess.run(words, check=True)
        found, _ = path_operations.read_strace(Source(Path(log.name)))
    return mapped(found, str(environment), str(environment))


def counts(environment: Path, operations: list[PathOperation]) -> str:
    lines = [
        "| cache | " + " | ".join(SHOWN) + " | lookups as computed | lookups of the replay |",
        "|---|" + "---:|" * (len(SHOWN) + 2),
    ]
    for cache in CACHES:
        _, found = cold_import(environment, Slowness(cache=cache))
        computed = lookups(operations, str(environment), cache) if operations else 0
        plan = ReplayPlan(environment, reads=False, slowness=Slowness(cache=cache))
        again = replay(operations, plan) if operations else None
        replayed = again.counters["lookup"] if again and again.counters else 0
        cells = [f"{found[name]:,}" for name in SHOWN]
        lines.append(f"| {cache} | {' | '.join(cells)} | {computed:,} | {replayed:,} |")
    return "\n".join(lines)


def times(environment: Path, latency_us: int) -> str:
    lines = ["| cache | latency of each | metadata operations | import |", "|---|---:|---:|---:|"]
    for cache in CACHES:
        for each_us in (0, latency_us):
            seconds, found = cold_import(environment, Slowness(cache=cache, latency_ns=each_us * 1000))
            lines.append(f"| {cache} | {each_us} µs | {found['metadata']:,} | {seconds:.1f} s |")
    return "\n".join(lines)


def scale(environment: Path, operations: list[PathOperation], nodes: list[int], rate: int) -> str:
    """Median time of a client, by nodes of two ranks each, and what the projection says at most."""
    known, server = counts_of(operations, str(environment)), FileServer(rate, 200_000)
    lines = [
        f"Server: {rate:,} operations a second; latency 200 µs; 2 ranks on each node.",
        "",
        "| cache | nodes | operations seen | slowest client | operations projected | projected |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for cache, kind in (("negative", "node"), ("none", "walk")):
        for count in nodes if cache == "negative" else nodes[:3]:
            slowness = Slowness(cache=cache, latency_ns=200_000, operations_per_second=rate)
            done = replay(operations, ReplayPlan(environment, 2, count, False, slowness))
            seen = done.counters["metadata"] if done.counters else 0
            seconds = float(np.max(done.clients[:, 1] - done.clients[:, 0])) / 1e9
            bound = projected(known, kind, count, 2, server)
            between = f"{bound.time_ns / 1e9:.1f} – {bound.at_most_ns / 1e9:.1f} s" if bound else "–"
            told = f"{bound.server_operations:,} | {between}" if bound else "– | –"
            lines.append(f"| {cache} | {count} | {seen:,} | {seconds:.1f} s | {told} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/slow_file_system.md")
    parser.add_argument("--latency-us", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--nodes", default="1,2,4,8,16")
    options = parser.parse_args()
    environment = (ROOT / ".envs" / "torch").resolve()
    reason = reason_against_running() or (None if environment.is_dir() else ".envs/torch is missing: run make envs")
    if reason:
        print(f"rankscope: {reason}", file=sys.stderr)
        return 0
    load = os.getloadavg()[0]
    operations = recorded(environment) if shutil.which("strace") else []
    nodes = [int(word) for word in options.nodes.split(",")]
    parts = [
        "# `import torch` on the slow file system",
        f"{time.strftime('%Y-%m-%d')}, 2-core {platform.machine()} virtual machine, Linux {platform.release()[:4]}, "
        f"Python {platform.python_version()}, load {load:.1f} before; `python benchmarks/slow_file_system.py --save`.",
        "## What one cold import asks",
        counts(environment, operations),
        "`none`: what came with a lookup may not be kept, so that each stat asks for the attributes again.",
        "## What latency makes of it",
        times(environment, options.latency_us),
    ]
    if operations:
        parts += ["## Many nodes on one server (replayed)", scale(environment, operations, nodes, options.rate)]
    text = "\n\n".join(parts) + "\n"
    print(text)
    if options.save:
        (RESULTS / "slow_file_system.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
