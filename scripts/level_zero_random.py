"""Random command sequences of Level Zero against a scripted driver: is what was recorded what was done, to the tick?

    python scripts/level_zero_random.py [--sequences N] [--seed N] [--table FILE]

Needs Level Zero's loader and headers (Debian: libze1, libze-dev; `make env-levelzero` unpacks them without root). Each
process runs some hundred sequences in one to four threads on two devices and their tiles: immediate and regular lists,
executed again, reset and destroyed, fences, events of the program, of other processes and none, copies in all
directions, errors, forks; it ends by destroying everything, by leaving, or by SIGKILL. It prints what it did, which is
compared with its rank file: calls and errors of every function, launches, device time and bytes of every kernel and
copy. The first that differs ends it, with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "tests" / "native" / "level_zero"
UNPACKED = ROOT / "build" / "level_zero" / "usr"
SYSTEM = Path("/usr")
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
import hatch_build  # noqa: E402
from rankscope.rank_file import ChunkKind  # noqa: E402
from rankscope.rank_files.chunks import open_rank_file  # noqa: E402
from rankscope.rank_files.read import read_rank_file  # noqa: E402

ENDS = ("", "", "exit", "kill", "fork", "abandon")
KILLED = ("kill", "abandon")
SEQUENCES = 250  # of one process


@cache
def installed() -> Path | None:
    """Where Level Zero's headers and loader are: the system's, or unpacked; None: nowhere."""
    found = (root for root in (UNPACKED, SYSTEM) if (root / "include/level_zero/ze_api.h").exists() and libraries(root))
    return next(found, None)


def libraries(root: Path) -> Path | None:
    return next((path.parent for path in sorted(root.glob("lib*/**/libze_loader.so.1"))), None)


def compile_c(target: Path, source: str, *flags: str) -> Path:
    root = installed()
    assert root is not None
    command = [*hatch_build.compiler(), "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{root}/include"]
    command += [str(SOURCES / source), "-o", str(target), *flags]
    subprocess.run(command, check=True)
    return target


def loader_flags() -> tuple[str, ...]:
    root = installed()
    folder = libraries(root) if root else None
    return (f"-L{folder}", "-l:libze_loader.so.1", f"-Wl,-rpath,{folder}", "-pthread")


@dataclass(frozen=True)
class Scripted:
    """The scripted driver and programs that use it."""

    folder: Path

    @property
    def driver(self) -> Path:
        path = self.folder / "libze_scripted.so"
        return path if path.exists() else compile_c(path, "scripted_driver.c", "-fPIC", "-shared")

    def program(self, name: str) -> Path:
        path = self.folder / name
        return path if path.exists() else compile_c(path, f"{name}.c", *loader_flags())

    def variables(self) -> dict[str, str]:
        """What makes the loader use this driver; the layers are loaded by name."""
        root = installed()
        assert root is not None
        folders = [str(libraries(root)), os.environ.get("LD_LIBRARY_PATH", "")]
        return {"ZE_ENABLE_ALT_DRIVERS": str(self.driver), "LD_LIBRARY_PATH": ":".join(filter(None, folders))}


# ---------------------------------------------------------------- what was recorded
@dataclass
class Recorded:
    """Sums of one rank file."""

    work: dict[str, list[int]] = field(default_factory=dict)  # name → calls, ns, bytes
    calls: dict[str, list[int]] = field(default_factory=dict)  # function → calls, errors
    launched: int = 0
    timed: int = 0
    untimed: int = 0
    lost: int = 0
    threads: int = 0


def recorded_in(path: Path) -> Recorded:
    reading, file, found = read_rank_file(path), open_rank_file(path), Recorded()
    columns: dict[str, Any] = reading.tally_columns
    threads = set()
    for at in range(len(columns["calls"])):
        layer, name = (columns[key].values[columns[key].codes[at]] for key in ("layer", "name"))
        calls, errors, size = (int(columns[key][at]) for key in ("calls", "errors", "bytes"))
        if layer == "gpu":
            _add(found.work.setdefault(name, [0, 0, 0]), calls, round(float(columns["total_ns"][at])), size)
        elif layer == "ze":
            _add(found.calls.setdefault(name, [0, 0]), calls, errors)
            threads.add(int(columns["thread"][at]))
    for part in file.parts(ChunkKind.RUNTIMES):
        for row in part.rows:
            found.launched, found.timed, found.untimed = (int(row[name]) for name in ("launched", "timed", "untimed"))
    found.lost, found.threads = reading.facts.lost_calls, len(threads)
    return found


def _add(sums: list[int], *more: int) -> None:
    for at, value in enumerate(more):
        sums[at] += value


def differences(truth: dict[str, Any], found: Recorded, is_abandoned: bool = False) -> list[str]:
    """What the recorder has otherwise than the program; abandoned work may still run, and is then in no sum."""
    told = []
    for name, (calls, _, _, errors) in truth["calls"].items():
        if found.calls.get(name) != [calls, errors]:
            told.append(f"{name}: {calls} calls, {errors} errors; recorded {found.calls.get(name)}")
    told += [f"{name} was never called; recorded {found.calls[name]}" for name in found.calls.keys() - truth["calls"]]
    under_way = found.launched - found.timed - found.untimed
    if found.launched != truth["launched"] or under_way < 0 or (under_way and not is_abandoned):
        told.append(f"{truth['launched']} launched; recorded {found.launched}: {found.timed} + {found.untimed}")
    if is_abandoned:
        seen = {name: calls for name, (calls, _, _) in found.work.items()}
        more = [name for name, calls in seen.items() if calls > truth["work"].get(name, [0])[0]]
        told += [f"{name}: more recorded than done" for name in more]
        told += [] if sum(seen.values()) == found.timed else [f"{found.timed} timed, {sum(seen.values())} in the sums"]
        return told
    if found.untimed != truth["untimed"]:
        told.append(f"{truth['untimed']} cannot be timed; recorded {found.untimed}")
    for name, (calls, ns, size, _) in truth["work"].items():
        if calls and found.work.get(name) != [calls, ns, size]:
            told.append(f"{name}: {calls} × , {ns} ns, {size} bytes; recorded {found.work.get(name)}")
    told += [f"{name} never ran; recorded {found.work[name]}" for name in found.work.keys() - truth["work"]]
    return told + ([f"{found.lost} calls lost"] if found.lost else [])


def run_random(built: Scripted, folder: Path, seed: int, sequences: int, threads: int, end: str) -> list[str]:
    """What differs in one process of random sequences."""
    library = hatch_build.NATIVE / "librankscope.so"
    folder.mkdir()
    environment = {**os.environ, **built.variables(), "LD_PRELOAD": str(library), "RANKSCOPE_DIR": str(folder)}
    environment["RANKSCOPE_FILE_BYTES"] = str(16 << 20)
    command = [str(built.program("random_work")), *map(str, (seed, sequences, threads)), end]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != (-signal.SIGKILL if end in KILLED else 0) or done.stderr:
        return [f"exit {done.returncode}: {done.stderr[-500:]}"]
    files = [path for path in folder.rglob("*.rank") if int(open_rank_file(path).header["parent_pid"]) == os.getpid()]
    if len(files) != 1:
        return [f"{len(files)} rank files"]
    return differences(json.loads(done.stdout), recorded_in(files[0]), end == "abandon")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", type=Path, help="write the result as a table")
    options = parser.parse_args()
    if installed() is None:
        print("no Level Zero here: make env-levelzero")
        return 1
    began, done, seed, ends = time.monotonic(), 0, options.seed, Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        built = Scripted(Path(scratch))
        while done < options.sequences:
            threads, end = 1 + seed % 4, ENDS[seed % len(ENDS)]
            told = run_random(built, Path(scratch) / str(seed), seed, SEQUENCES // threads, threads, end)
            if told:
                print(f"--seed {seed} differs:", *told, sep="\n  ")
                return 1
            done += SEQUENCES // threads * threads
            ends[end or "everything destroyed"] += 1
            seed += 1
    seconds = time.monotonic() - began
    print(f"{done:,} sequences in {seed - options.seed} processes, {seconds:.0f} s: counts and device time as done")
    if options.table:
        options.table.write_text(table(done, seed - options.seed, ends, seconds))
    return 0


def table(done: int, processes: int, ends: Counter[str], seconds: float) -> str:
    lines = [
        "# Level Zero: random sequences against the scripted driver",
        f"`scripts/level_zero_random.py --sequences {done}`, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} processors, "
        "Debian's libze1 1.8.12.",
        "",
        "| | |",
        "|---|---:|",
        f"| sequences | {done:,} |",
        f"| processes, of 1 to 4 threads | {processes} |",
        *(f"| ended by: {end} | {count} |" for end, count in sorted(ends.items())),
        "| processes whose counts, errors, device time (to the tick) or bytes differ | 0 |",
        "| crashes | 0 |",
        f"| seconds | {seconds:.0f} |",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
