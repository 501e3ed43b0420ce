"""What one look of `rankscope top` costs: full rank files of many ranks, read again and again.

python benchmarks/top.py [RANKS ...]
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rankscope.api.watching import Watched
from rankscope.cli.top import RECORDS, View
from rankscope.rankfile import COLLECTIVE, State, TickSource
from rankscope.rankfile_writer import RankFileWriter
from rankscope.store.folder import Job

LOGGED = 16_384  # the default ring, full
TALLIES = 200
LOOKS = 7


def write(folder: Path, rank: int, ranks: int) -> None:
    """A rank in the middle of its work: the ring is full and it stands in an all-reduce."""
    now_ns = time.time_ns()
    loaded = {"ticks": 1, "monotonic_ns": 1, "realtime_ns": now_ns - 60_000_000_000}
    facts = {"anchor": {"ticks": 60_000_000_000, "monotonic_ns": 60_000_000_000, "realtime_ns": now_ns}}
    jiffies = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    file = RankFileWriter(rank=rank, world_size=ranks, pid=os.getpid(), host=socket.gethostname().encode())
    file.set(state=State.RUNNING, tick_source=TickSource.MONOTONIC, start_jiffies=jiffies, phase=5)
    file.set(loaded=loaded, facts=facts)
    world = file.group("MPI_COMM_WORLD", identity=1, size=ranks, my_rank=rank, collectives=LOGGED)
    for number in range(TALLIES):
        file.tally(f"MPI_Routine_{number}", 1000, 1_000_000, group=world)
    rows = np.zeros(LOGGED, COLLECTIVE)
    rows["enter_ticks"] = np.arange(LOGGED) * 3_000_000 + rank * 1000
    rows["end_ticks"] = rows["enter_ticks"] + 2_000_000
    rows["end_ticks"][-1] = 0
    rows["sequence"], rows["group"], rows["root"] = np.arange(1, LOGGED + 1), world, -1
    rows["name"] = file.string("MPI_Allreduce")
    file.collectives(rows)
    file.write(folder / "ranks" / "host" / f"{rank}.rank")


def measure(ranks: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rank in range(ranks):
            write(folder, rank, ranks)
        view = View(Watched(folder, Job()), 0)
        reading, frames, cpu = [], [], time.process_time()
        for _ in range(LOOKS):
            view.look()
            began = time.perf_counter()
            view.text(120, 40)
            frames.append(time.perf_counter() - began)
            reading.append(view.reading_s)
        cpu = (time.process_time() - cpu) / LOOKS
    told = (statistics.median(reading) * 1e3, statistics.median(frames) * 1e3, cpu * 1e3)
    return f"{ranks} ranks: reading {told[0]:.0f} ms, frame {told[1]:.0f} ms, CPU time {told[2]:.0f} ms a look"


def main() -> int:
    print(f"newest {RECORDS} of {LOGGED} collectives, {TALLIES} tallies a rank; median of {LOOKS} looks")
    for ranks in [int(word) for word in sys.argv[1:]] or [4, 64, 256, 1024]:
        print(measure(ranks), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
