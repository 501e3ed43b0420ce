"""How long does it take to export a trace of many events, and how much memory?

    python benchmarks/export.py --events 10000000 --ranks 4

The rank files are written here, with a full trace: calls of MPI within ranges of the program on one thread, kernels on
two streams, and a log of collectives.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from rankscope.rank_file import COLLECTIVE, EVENT, GroupKind, LayerNumber  # noqa: E402
from rankscope.rank_file_writer import RankFileWriter  # noqa: E402
from runs.small_run import SECOND, mpi_rank, write_run  # noqa: E402

CYCLE = 8  # events: a range, three calls within it, four kernels
EVERY_NS = 4_000  # from event to event
LOGGED = 10_000  # collectives of a rank


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000, help="of all ranks")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--forms", nargs="+", default=["perfetto", "chrome", "parquet"])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="the run is there, or is kept there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = (options.keep or Path(made)) / "run"
        if not folder.exists():
            write_big_run(folder, options.events, options.ranks)
        print("| form | events | wall s | CPU s | peak MB | size MB |\n|---|---:|---:|---:|---:|---:|", flush=True)
        for form in options.forms:
            print(measured(folder, form, options.events, Path(made) / f"out.{form}"), flush=True)


def write_big_run(folder: Path, events: int, ranks: int) -> None:
    for rank in range(ranks):  # one at a time: they are large
        write_run(folder, rank_file(rank, ranks, events // ranks), expected_ranks=ranks)


def rank_file(rank: int, ranks: int, events: int) -> RankFileWriter:
    made = mpi_rank(rank, ranks)
    world = made.group("MPI_COMM_WORLD", identity=1, size=ranks, my_rank=rank, kind=GroupKind.COMM)
    streams = [made.group(f"GPU 0 stream {at}", kind=GroupKind.STREAM) for at in (7, 8)]
    names = [made.string(name) for name in ("train_step", "MPI_Isend", "MPI_Irecv", "MPI_Waitall", "gemm", "relu")]
    made.cuda(started_ticks=1, started_ns=1, flushed_ticks=SECOND, flushed_ns=SECOND)
    at = np.arange(events)
    place = at % CYCLE
    rows = np.zeros(events, EVENT)
    rows["start_ticks"] = SECOND + at * EVERY_NS
    rows["name"] = np.array([names[0], *names[1:4], names[4], names[5], names[4], names[5]])[place]
    rows["layer"] = np.array([LayerNumber.TORCH] + [LayerNumber.MPI] * 3 + [LayerNumber.GPU] * 4)[place]
    rows["group"] = np.array([0, world, world, world, streams[0], streams[1], streams[0], streams[1]])[place]
    rows["bytes"] = np.where(place == 1, 4096, 0)
    rows["flags"] = 5
    durations = np.array([CYCLE * EVERY_NS - 10] + [EVERY_NS // 2] * 3 + [2 * EVERY_NS] * 4)[place]
    made.trace(rows, durations)
    made.collectives(collectives(made, world, names[3], min(LOGGED, events)))
    return made


def collectives(made: RankFileWriter, world: int, name: int, count: int) -> np.ndarray:
    rows = np.zeros(count, COLLECTIVE)
    rows["name"], rows["group"], rows["phase"], rows["root"] = made.string("MPI_Allreduce"), world, 5, -1
    rows["sequence"] = np.arange(1, count + 1)
    rows["enter_ticks"] = SECOND // 2 + np.arange(count) * 10_000
    rows["end_ticks"] = rows["enter_ticks"] + 5_000
    return rows


def measured(folder: Path, form: str, events: int, out: Path) -> str:
    command = [sys.executable, "-m", "rankscope", "export", str(folder), f"--{form}", "--out", str(out)]
    begun = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - begun
    if status:
        raise SystemExit(f"rankscope export --{form} failed: {said.decode()}")
    print(said.decode().strip(), file=sys.stderr)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) if out.is_dir() else out.stat().st_size
    cpu_s = used.ru_utime + used.ru_stime
    return f"| {form} | {events:,} | {wall_s:.1f} | {cpu_s:.1f} | {used.ru_maxrss / 1024:.0f} | {size / 1e6:.0f} |"


if __name__ == "__main__":
    main()
