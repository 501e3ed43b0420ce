"""How long does it take to match, put on one clock and split the collectives of a large run?

    python benchmarks/waiting.py [--ranks 64] [--records 16384] [--hosts 16]

Writes a synthetic run (clocks ±2 s and ±50 ppm apart, one late rank) into a temporary folder and times each stage.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from rankscope.questions.collectives.clock_offsets import clock_offsets
from rankscope.questions.collectives.clocks import clocks
from rankscope.questions.collectives.collectives import collectives
from rankscope.questions.collectives.matching import match
from rankscope.questions.collectives.wait_and_transfer import split
from rankscope.questions.collectives.wait_map import waiting_parts
from rankscope.questions.collectives.waiting import waiting
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs.simulated import MILLI, Skew, train, write


def main() -> None:
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = simulate(Path(folder), options)
        before = peak_bytes()
        times: dict[str, float] = {}
        run = timed(times, "read", lambda: open_run(made, read_rank_file))
        log = timed(times, "match", lambda: match(run))
        known = timed(times, "clocks", lambda: clock_offsets(log))
        timed(times, "split", lambda: [split(log, known, group) for group in log.groups])
        tables = (collectives, waiting, waiting_parts, clocks)
        timed(times, "all four tables, once more from the start", lambda: [table(run) for table in tables])
    told = {"ranks": options.ranks, "records": options.records, "hosts": options.hosts, "matched": log.collectives}
    seconds = {f"{name} (s)": round(one, 3) for name, one in times.items()}
    print(json.dumps({**told, **seconds, "memory (MiB)": round((peak_bytes() - before) / 2**20)}, indent=1))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ranks", type=int, default=64)
    made.add_argument("--records", type=int, default=16384)
    made.add_argument("--hosts", type=int, default=16)
    return made


def simulate(folder: Path, options: argparse.Namespace) -> Path:
    random = np.random.default_rng(0)
    truth = train(random, options.ranks, options.records, late={5: 2.0 * MILLI}, jitter=0.2)
    host_of = [rank * options.hosts // options.ranks for rank in range(options.ranks)]
    offsets = [0.0, *random.uniform(-2e9, 2e9, options.hosts - 1)]
    drifts = [0.0, *random.uniform(-50e-6, 50e-6, options.hosts - 1)]
    return write(folder / "run", truth, Skew(host_of, offsets, drifts))


def timed(times: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
    begun = time.perf_counter()
    result = work()
    times[name] = time.perf_counter() - begun
    return result


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
