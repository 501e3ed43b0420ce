"""500 random kills and 50 full disks: no completed call is lost, no exit code changes.

    python scripts/kills_and_disks.py [--kills N] [--disks N] [--mpi NAME…] [--seed N]

A kill: a job of 2 to 4 ranks (C, every fifth mpi4py) that counts its own calls in shared memory; a random rank is
killed with SIGKILL after a random number of calls, which may be none; then for every process and function: returned <=
recorded <= entered. The kills are shared out among the MPIs.

A disk: a tmpfs of a random size, some of it taken already; the same job, which ends by itself, recorded there and bare:
equal exit code and output; for every rank file that came to be: returned <= recorded + counted as lost.
Mounting needs root. The first that does not hold ends it, with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
from mpis import Mpi, find_mpi  # noqa: E402
from programs import jobs, recorded  # noqa: E402
from robust import self_counts, test_kill  # noqa: E402

test_kill.DEADLINE_S = 600  # a busy machine is no failure
SMALLEST, LARGEST = 8, 600  # KiB: from less than one file needs to enough for all


def programs(mpi: Mpi, built: Path, turn: int) -> list[str | Path]:
    if turn % 5 == 4:
        return [mpi.python, jobs.PROGRAMS / "counts_itself.py"]
    return [jobs.build_with_mpi(mpi, built, "counts_itself")]


@contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def one_disk(mpi: Mpi, program: list[str | Path], folder: Path, chance: random.Random) -> str:
    """What came of the files."""
    folder.mkdir()
    size_kib, ending = chance.randrange(SMALLEST, LARGEST), chance.choice(("finalize", "_exit", "finalize"))
    ends = []
    with small_disk(folder / "disk", size_kib) as disk:
        taken_kib = chance.choice((0, 0, size_kib // 2))
        (disk / "ballast").write_bytes(bytes(taken_kib << 10))
        for run in (None, disk / "run"):
            counts = folder / ("bare" if run is None else "recorded")
            counts.mkdir()
            ends.append(jobs.run(mpi, 2, run, *program, counts, ending))
        bare, ours = ((end.code, re.sub(r"\d+", "N", end.out)) for end in ends)  # a launcher tells process ids
        if bare != ours:
            raise SystemExit(f"bare {ends[0]}, recorded {ends[1]}")
        files = {path.stem: path for path in recorded.rank_files(disk / "run")}
        counted = self_counts.read_all(folder / "recorded")
        for process in counted:
            if str(process.pid) in files:
                check(files[str(process.pid)], process)
    return f"{len(files)} of {len(counted)} files"


def check(path: Path, process: self_counts.SelfCounts) -> None:
    reading = recorded.read(path)
    found = Counter(recorded.calls_by_name(reading))
    ours = sum(calls for name, calls in found.items() if name.removesuffix("_c") in process.entered)
    told = ours + reading.facts.lost_calls
    if not sum(process.returned.values()) <= told:
        raise SystemExit(f"{path}: {sum(process.returned.values())} returned, {told} recorded or counted as lost")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--disks", type=int, default=50)
    parser.add_argument("--mpi", nargs="+", default=["mpich", "openmpi", "impi"])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    mpis, chance, begun = [find_mpi(name) for name in options.mpi], random.Random(options.seed), time.monotonic()
    print(f"seed {options.seed}, {', '.join(mpi.name for mpi in mpis)}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        folder, seen = Path(place), Counter[str]()
        for turn in range(options.kills):
            mpi = mpis[turn % len(mpis)]
            test_kill.one_kill(mpi, programs(mpi, folder, turn // len(mpis)), folder / f"kill{turn}", chance)
            if (turn + 1) % 25 == 0 or turn + 1 == options.kills:
                print(
                    f"{turn + 1} kills: every completed call is recorded ({time.monotonic() - begun:.0f} s)", flush=True
                )
        for turn in range(options.disks):
            mpi = mpis[turn % len(mpis)]
            seen[one_disk(mpi, programs(mpi, folder, turn // len(mpis)), folder / f"disk{turn}", chance)] += 1
        print(
            f"{options.disks} full disks: exit codes and outputs as bare; {dict(seen)} "
            f"({time.monotonic() - begun:.0f} s)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
