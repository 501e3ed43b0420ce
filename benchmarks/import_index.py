"""What the import index saves of `import torch`: system calls, time on a fast disk, operations and time on a slow one.

    python benchmarks/import_index.py [--python PYTHON] [--statement 'import torch'] [--rounds N] [--save]

Calls: `strace -f -c`, exact. Time: rounds of (without, index of the statement, index of everything) in turns; the
median of each, wall and processor, and the median of the ratios within a round. Slow file system: `rankscope slowfs
run` over the environment with no client cache, first counting, then with 1 ms for each metadata operation; timed
inside, so that neither mounting nor `rankscope` itself is in it. Without is always the bare Python, without rankscope.
"""

from __future__ import annotations

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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
AGENT = ROOT / "src" / "rankscope" / "agent" / "start"
COMMAND = [sys.executable, "-c", "import sys; from rankscope.cli import main; sys.exit(main())"]
OURS = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
AUDITOR = ROOT / "src" / "rankscope" / "native" / "librankscope_libraries.so"
FOLDERS = 60
BARS = {"calls": 6, "opens": 5, "stats": 20, "metadata": 20, "slow_s": 10}
TIMED = "import subprocess, sys, time; t = time.perf_counter(); subprocess.run(sys.argv[2:], check=True); " + (
    "open(sys.argv[1], 'w').write(str(time.perf_counter() - t))"
)

Row = dict[str, float]


class Bench:
    """One Python, one statement, and the indexes that were built for it."""

    def __init__(self, python: str, statement: str, folder: Path) -> None:
        self.command = [python, "-c", statement]
        self.environment = Path(python).parents[1].resolve()
        self.folder = folder
        self.variables: dict[str, dict[str, str]] = {"without": {}}
        for name, options in {"index of the statement": ["--statement", statement], "index of everything": []}.items():
            path = folder / f"{len(self.variables)}.rsindex"
            subprocess.run([*COMMAND, "index", python, "--out", str(path), *options], env=OURS, check=True)
            self.variables[name] = {"PYTHONPATH": str(AGENT), "RANKSCOPE_INDEX": str(path)}

    def job(self, name: str) -> dict[str, str]:
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("RANKSCOPE", "PYTHONPATH"))}
        return {**plain, **self.variables[name]}

    def calls(self, name: str, more: dict[str, str] | None = None) -> Row:
        """Counted by strace, which itself does not get what is told to the dynamic loader."""
        log = self.folder / "strace"
        told = [word for key, value in (more or {}).items() for word in ("-E", f"{key}={value}")]
        command = ["strace", "-f", "-c", "-o", str(log), *told, *self.command]
        subprocess.run(command, env=self.job("without" if more else name), cwd=self.folder, check=True)
        counted = {line.split()[-1]: int(line.split()[3]) for line in log.read_text().splitlines() if is_row(line)}
        stats = sum(counted.get(one, 0) for one in ("newfstatat", "stat", "lstat", "fstat", "statx"))
        return {"calls": counted["total"], "opens": counted.get("openat", 0) + counted.get("open", 0), "stats": stats}

    def seconds(self, name: str) -> tuple[float, float]:
        """Wall and processor time."""
        begun, before = time.perf_counter(), os.times()
        subprocess.run(self.command, env=self.job(name), cwd=self.folder, check=True)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        return time.perf_counter() - begun, used

    def slow(self, name: str, *options: str) -> Row:
        """On the slow file system, which alone this command sees."""
        took = self.folder / "took"
        inner = [sys.executable, "-c", TIMED, str(took), *self.command]
        variables = [f"{key}={value}" for key, value in self.variables[name].items()]
        job = ["env", "-u", "PYTHONPATH", *variables, *inner]
        slow = [*COMMAND, "slowfs", "run", str(self.environment), "--cache", "none", *options, "--", *job]
        done = subprocess.run(slow, env=OURS, cwd=self.folder, capture_output=True, text=True, check=False)
        found = re.search(r"^metadata +([\d,]+)$", done.stderr + done.stdout, re.MULTILINE)
        if done.returncode or not found:
            raise SystemExit(f"the slow file system cannot be used here: {done.stderr.strip()[-300:]}")
        return {"metadata": int(found[1].replace(",", "")), "slow_s": float(took.read_text())}


def searching(bench: Bench, python: str, statement: str) -> dict[str, Row]:
    """Calls where LD_LIBRARY_PATH has many folders: without, with an index, and with its map of libraries."""
    folders = [bench.folder / f"libraries{number}" for number in range(FOLDERS)]
    for folder in folders:
        folder.mkdir()
    path = {"LD_LIBRARY_PATH": ":".join(map(str, folders))}
    index = bench.folder / "searching.rsindex"
    words = [*COMMAND, "index", python, "--out", str(index), "--statement", statement, "--libraries"]
    subprocess.run(words, env={**OURS, **path}, check=True, stdout=subprocess.DEVNULL)
    job = {"PYTHONPATH": str(AGENT), "RANKSCOPE_INDEX": str(index)}
    audited = {"LD_AUDIT": str(AUDITOR), "RANKSCOPE_LIBRARIES": str(index.with_suffix(".libraries"))}
    kinds: dict[str, dict[str, str]] = {
        "without": {},
        "index": job,
        "index and its map of libraries": {**job, **audited},
    }
    rows = {}
    for name, variables in kinds.items():
        rows[name] = bench.calls(name, {**path, **variables})
    return rows


def as_second_table(rows: dict[str, Row]) -> str:
    lines = [f"\nWith {FOLDERS} empty folders in `LD_LIBRARY_PATH`:\n", "| | system calls | opens | stat family |"]
    lines.append("|---|---:|---:|---:|")
    for name, row in rows.items():
        lines.append(f"| {name} | {row['calls']:,.0f} | {row['opens']:,.0f} | {row['stats']:,.0f} |")
    return "\n".join(lines) + "\n"


def is_row(line: str) -> bool:
    words = line.split()
    return len(words) >= 5 and words[3].isdigit()


def measure(bench: Bench, rounds: int) -> tuple[dict[str, Row], dict[str, list[float]]]:
    """The rows of the table, and the ratios of wall and processor time of each index to none."""
    rows: dict[str, Row] = {name: bench.calls(name) for name in bench.variables}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in bench.variables}
    for number in range(-1, rounds):  # round -1 warms the caches
        names = list(bench.variables)
        for index in range(len(names)):
            name = names[(number + index) % len(names)]
            took = bench.seconds(name)
            times[name] += [took] if number >= 0 else []
    for name, row in rows.items():
        row["wall_s"], row["cpu_s"] = (statistics.median(taken) for taken in zip(*times[name], strict=True))
        row |= {"metadata": bench.slow(name)["metadata"], "slow_s": bench.slow(name, "--latency", "1ms")["slow_s"]}
    ratios = {name: [middle_ratio(times[name], times["without"], one) for one in (0, 1)] for name in times}
    return rows, ratios


def middle_ratio(ours: list[tuple[float, float]], theirs: list[tuple[float, float]], which: int) -> float:
    return statistics.median(one[which] / other[which] for one, other in zip(ours, theirs, strict=True))


def as_markdown(rows: dict[str, Row], ratios: dict[str, list[float]], statement: str, rounds: int, load: float) -> str:
    lines = [
        f"# `{statement}` with the import index",
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()}-core {platform.machine()} virtual machine, Linux "
        f"{'.'.join(platform.release().split('.')[:2])}, Python {platform.python_version()}, {rounds} rounds, "
        f"load {load:.1f} before. `python benchmarks/import_index.py --save`",
        "",
        "| | system calls | opens | stat family | wall, fast disk | processor "
        "| metadata operations, slow file system "
        "| wall at 1 ms per operation |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        cells = [f"{row[key]:,.0f}" for key in ("calls", "opens", "stats")]
        cells += [
            f"{row['wall_s']:.2f} s",
            f"{row['cpu_s']:.2f} s",
            f"{row['metadata']:,.0f}",
            f"{row['slow_s']:.1f} s",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for name in list(rows)[1:]:
        shares = [f"1/{rows['without'][key] / rows[name][key]:.1f}" for key in ("calls", "opens", "stats")]
        shares += [f"{one:.2f} ×" for one in ratios[name]]
        shares += [f"1/{rows['without']['metadata'] / rows[name]['metadata']:.1f}"]
        shares.append(f"{rows['without']['slow_s'] / rows[name]['slow_s']:.1f} × faster")
        lines.append(f"| *{name}, against without* | {' | '.join(shares)} |")
    lines.append("| *to be shown* | 1/6 | 1/5 | 1/20 | 1 × | | 1/20 | 10 × faster |")
    lines += ["", "Ratios of times are medians of the ratios within a round. The slow file system has no client cache."]
    return "\n".join(lines) + "\n"


def missed(rows: dict[str, Row]) -> list[str]:
    """What the index of the statement does not reach."""
    without, ours = rows["without"], rows["index of the statement"]
    return [key for key, factor in BARS.items() if ours[key] * factor > without[key]]


def main() -> int:
    """Print the figures; exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(ROOT / ".envs" / "torch" / "bin" / "python"))
    parser.add_argument("--statement", default="import torch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/import_index.md")
    options = parser.parse_args()
    if not shutil.which("strace") or not Path(options.python).exists():
        print(f"needs strace and {options.python} (make envs)", file=sys.stderr)
        return 0
    load = os.getloadavg()[0]
    python = str(Path(options.python).parents[1].resolve() / "bin" / "python")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(python, options.statement, Path(folder))
        rows, ratios = measure(bench, options.rounds)
        searched = searching(bench, python, options.statement)
    text = as_markdown(rows, ratios, options.statement, options.rounds, load) + as_second_table(searched)
    print(text, end="")
    if options.save:
        (RESULTS / "import_index.md").write_text(text)
    for key in missed(rows):
        print(f"missed: {key}", file=sys.stderr)
    return int(bool(missed(rows)))


if __name__ == "__main__":
    sys.exit(main())
