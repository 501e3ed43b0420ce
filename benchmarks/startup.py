"""What `rankscope run true` costs more than `true`: wall time and file-system calls.

    python benchmarks/startup.py [--rounds N] [--rankscope PATH] [--save]

Time: rounds of (true, rankscope run true, python -c pass) in turns; the median of the differences within a round, so
that drift cancels. The load of the machine before it began is printed too: a busy machine gives larger figures.
Calls: strace -f over both; exact. Also shown: Python's own share, by the same interpreter running nothing.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
BAR_MS, BAR_CALLS = 60.0, 300
# System calls that name a file, list a folder or change one. The status of a file that is already open (fstat, or
# newfstatat with an empty path) is counted apart: it asks no metadata server.
FILE_CALLS = frozenset(
    """open openat openat2 creat stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents
    getdents64 mkdir mkdirat rmdir symlink symlinkat link linkat rename renameat renameat2 unlink unlinkat chdir getcwd
    truncate ftruncate fallocate statfs execve execveat utimensat chmod fchmodat getxattr lgetxattr""".split()
)


def wall_ms(command: list[str], folder: str) -> float:
    """Time of one run in a new folder: two runs of one second in one folder would look for a free name first."""
    here = tempfile.mkdtemp(dir=folder)
    start_ns = time.perf_counter_ns()
    subprocess.run(command, cwd=here, check=True, stderr=subprocess.DEVNULL)
    return (time.perf_counter_ns() - start_ns) / 1e6


def added_ms(commands: list[list[str]], rounds: int, folder: str) -> list[list[float]]:
    """For every command but the first, its sorted differences from the first of the same round.

    The commands take turns and the order turns too, so that a busy moment of the machine hits all of them alike.
    """
    differences: list[list[float]] = [[] for _ in commands[1:]]
    for number in range(-1, rounds):  # round -1 warms the caches
        order = [(number + index) % len(commands) for index in range(len(commands))]
        times = {index: wall_ms(commands[index], folder) for index in order}
        for index, found in enumerate(differences, start=1):
            found.extend([times[index] - times[0]] if number >= 0 else [])
    return [sorted(found) for found in differences]


def file_calls(command: list[str], folder: str) -> tuple[int, int] | None:
    """Calls that name a file and calls for the status of an open one, or None where strace cannot be used."""
    here = tempfile.mkdtemp(dir=folder)
    with tempfile.NamedTemporaryFile("r") as log:
        strace = ["strace", "-f", "-o", log.name, *command]
        if not shutil.which("strace") or subprocess.run(strace, cwd=here, stderr=subprocess.DEVNULL).returncode:
            return None
        lines = log.read().splitlines()
    calls = [line for line in lines if "(" in line and line.split("(")[0].split()[-1] in FILE_CALLS | {"fstat"}]
    on_open_file = [line for line in calls if "AT_EMPTY_PATH" in line or " fstat(" in line]
    return len(calls) - len(on_open_file), len(on_open_file)


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def measure(rankscope: str, rounds: int) -> dict[str, object]:
    """All figures of one machine."""
    bare, wrapped = ["true"], [rankscope, "run", "true"]
    python = [interpreter_of(rankscope), "-c", "pass"]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        times, python_times = added_ms([bare, wrapped, python], rounds, folder)
        calls = [file_calls(command, folder) for command in (bare, wrapped, python)]
        recorded = all(any(run.glob("ranks/*/*.rank")) for run in Path(folder).glob("*/rankscope-runs/2*"))
    bare_calls, wrapped_calls, python_calls = (call or (None, None) for call in calls)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "rounds": rounds,
        "load_before": round(load, 2),
        "recorded": recorded,
        "added_ms_median": round(statistics.median(times), 2),
        "added_ms_best": round(times[0], 2),
        "added_ms_p90": round(times[int(0.9 * (len(times) - 1))], 2),
        "python_alone_ms_median": round(statistics.median(python_times), 2),
        "added_file_calls": difference(wrapped_calls[0], bare_calls[0]),
        "added_fstat_calls": difference(wrapped_calls[1], bare_calls[1]),
        "python_alone_file_calls": difference(python_calls[0], bare_calls[0]),
        "python_alone_fstat_calls": difference(python_calls[1], bare_calls[1]),
    }


def difference(more: int | None, less: int | None) -> int | None:
    return more - less if more is not None and less is not None else None


def interpreter_of(script: str) -> str:
    """The Python in the first line of the installed script."""
    first = Path(script).read_bytes().split(b"\n")[0]
    return os.fsdecode(first[2:]).strip().split()[0] if first.startswith(b"#!") else sys.executable


def as_markdown(result: dict[str, object]) -> str:
    calls = result["added_file_calls"]
    return f"""\
# `rankscope run true` against `true`
{result["date"]}, {result["cpu"]} ({result["cpus"]} CPUs), Linux {result["kernel"]}, Python {result["python"]}, \
{result["rounds"]} rounds, load {result["load_before"]} before; \
{"every run left its rank file" if result["recorded"] else "NO rank file was written: without the recorder"}.

| | added by rankscope run | of that Python alone (`python -c pass`) | bar |
|---|---:|---:|---:|
| wall time, median of differences | {result["added_ms_median"]} ms | {result["python_alone_ms_median"]} ms \
| {BAR_MS:g} ms |
| wall time, best and 90th percentile | {result["added_ms_best"]} – {result["added_ms_p90"]} ms | | |
| file-system calls | {calls if calls is not None else "not counted: strace is missing or refused"} \
| {result["python_alone_file_calls"]} | {BAR_CALLS} |
| status of open files (fstat) | {result["added_fstat_calls"]} | {result["python_alone_fstat_calls"]} | |

File-system calls, counted by `strace -f`: {", ".join(sorted(FILE_CALLS))}.
"""


def main() -> int:
    """Print the figures; exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--rankscope", default=str(Path(sys.executable).parent / "rankscope"))
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/startup.md and .json")
    options = parser.parse_args()
    result = measure(options.rankscope, options.rounds)
    print(as_markdown(result), end="")
    if options.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "startup.md").write_text(as_markdown(result))
        (RESULTS / "startup.json").write_text(json.dumps(result, indent=1) + "\n")
    calls = result["added_file_calls"]
    slow = float(str(result["added_ms_median"])) > BAR_MS
    return int(slow or (calls is not None and int(str(calls)) > BAR_CALLS))


if __name__ == "__main__":
    sys.exit(main())
