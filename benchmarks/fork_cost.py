"""What a process with nothing to tell costs: fork + _exit and short programs, bare and recorded.

    python benchmarks/fork_cost.py [--forks N] [--rounds N] [--torch PYTHON] [--rankscope PATH] [--save]

Time: a C program forks children that leave at once and waits for each; bare and recorded in turns, the ratio of each
pair, and the median of the ratios, so that the load of the machine cancels. Recorded, the program has a rank file, as
every rank has. The same from a Python, and from one that has imported torch (--torch names an interpreter that can),
whose bare fork is dearer. Counts, which no load changes: system calls and page faults of a fork and its child, and what
short programs leave behind.
"""

import argparse
import json
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

RESULTS = Path(__file__).parent / "results"
BAR = 1.5
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words)
{
    struct timespec begin, end;
    struct rusage usage;
    int forks = count > 1 ? atoi(words[1]) : 1;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < forks; i++) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        waitpid(child, NULL, 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    getrusage(RUSAGE_CHILDREN, &usage);
    printf("{\"us\": %f, \"faults\": %f}\n",
           ((end.tv_sec - begin.tv_sec) * 1e6 + (end.tv_nsec - begin.tv_nsec) / 1e3) / forks,
           (double)usage.ru_minflt / forks);
    return 0;
}
"""
PYTHON = """
import json, os, resource, sys, time
{imports}
forks = int(sys.argv[1])
begin = time.perf_counter()
for _ in range(forks):
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
took = time.perf_counter() - begin
faults = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
print(json.dumps({{"us": took / forks * 1e6, "faults": faults / forks}}))
"""
SHORT = {
    "300 x true from sh": ["sh", "-c", "for i in $(seq 300); do /bin/true; done"],
    "300 x true from Python": [
        sys.executable,
        "-c",
        "import subprocess\nfor _ in range(300): subprocess.run(['true'])",
    ],
    "gcc of a small file from sh": ["sh", "-c", "echo 'int main(void) { return 0; }' > a.c; gcc -O2 a.c -o a && ./a"],
}


class Bench:
    """Where it runs, and what records."""

    def __init__(self, folder: Path, rankscope: str) -> None:
        self.folder = folder
        self.rankscope = rankscope
        self.runs = 0

    def recorded(self, command: list[str]) -> list[str]:
        self.runs += 1
        return [self.rankscope, "run", "--quiet", "--out", str(self.folder / f"run{self.runs}"), *command]

    def told(self, command: list[str]) -> dict[str, float]:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found

    def compare(self, command: list[str], rounds: int) -> str:
        """A row: bare and recorded in turns."""
        pairs = [(self.told(command), self.told(self.recorded(command))) for _ in range(rounds)]
        bare, ours = ([pair[which]["us"] for pair in pairs] for which in (0, 1))
        ratio = statistics.median(b / a for a, b in zip(bare, ours, strict=True))
        faults = [statistics.median(pair[which]["faults"] for pair in pairs) for which in (0, 1)]
        return (
            f"{statistics.median(bare):.0f} | {statistics.median(ours):.0f} | **{ratio:.2f}** "
            f"| {min(ours) / min(bare):.2f} | {faults[0]:.1f} | {faults[1]:.1f} |"
        )

    def calls(self, command: list[str], forks: int) -> float:
        """System calls of one fork, its child and the wait: the difference of two numbers of forks."""
        totals = [self.total_calls([*command, str(number)]) for number in (forks, 2 * forks)]
        return (totals[1] - totals[0]) / forks

    def total_calls(self, command: list[str]) -> int:
        log = self.folder / "calls"
        subprocess.run(
            ["strace", "-f", "-c", "-o", str(log), *command], cwd=self.folder, capture_output=True, check=True
        )
        found = re.findall(r"^100\.00 +\S+ +\S* *?(\d+) +(?:\d+ +)?total$", log.read_text(), re.MULTILINE)
        return int(found[0])

    def left(self, command: list[str]) -> tuple[int, int]:
        """Rank files and the bytes they take on disk."""
        words = self.recorded(command)
        subprocess.run(words, cwd=self.folder, capture_output=True, check=True)
        files = list(Path(words[4]).glob("ranks/*/*.rank"))
        return len(files), sum(path.stat().st_blocks * 512 for path in files)


def measure(bench: Bench, forks: int, rounds: int, torch: str) -> list[str]:
    program = bench.folder / "forks"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise SystemExit("no C compiler: it makes the program that forks")
    subprocess.run([compiler, "-O2", "-x", "c", "-", "-o", str(program)], input=PROGRAM, text=True, check=True)
    rows = [f"| C program | {forks} | {bench.compare([str(program), str(forks)], rounds)}"]
    plain = [sys.executable, "-c", PYTHON.format(imports=""), str(forks)]
    rows.append(f"| Python | {forks} | {bench.compare(plain, rounds)}")
    if torch:
        fewer = max(1, forks // 10)
        rows.append(
            f"| Python with torch | {fewer} | "
            + bench.compare([torch, "-c", PYTHON.format(imports="import torch"), str(fewer)], max(3, rounds // 3))
        )
    lines = [
        "| fork + `_exit` + wait from a | forks a round | bare, µs | recorded, µs | median of ratios | of the best "
        "| page faults, bare | recorded |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *rows,
        "",
        f"The bar is {BAR} in the median.",
        "",
    ]
    if shutil.which("strace"):
        bare = bench.calls([str(program)], 100)
        ours = bench.calls(bench.recorded([str(program)]), 100)
        lines += [
            f"System calls of one fork, its child and the wait (strace -f -c): {bare:.1f} bare, {ours:.1f} recorded.",
            "",
        ]
    lines += ["| short programs | rank files | on disk |", "|---|---:|---:|"]
    for name, command in SHORT.items():
        files, size_bytes = bench.left(command)
        lines.append(f"| {name} | {files} | {size_bytes / 1024:.0f} KiB |")
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--torch", default="", help="an interpreter that can import torch")
    parser.add_argument("--rankscope", default=str(Path(sys.executable).parent / "rankscope"))
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/fork_cost.md")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        table = measure(Bench(Path(place), options.rankscope), options.forks, options.rounds, options.torch)
    told = [
        "# fork + `_exit`, and programs with nothing to tell",
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} CPUs, Linux {platform.release()}, Python "
        f"{platform.python_version()}, {options.rounds} rounds in turns, load {load:.2f} before. "
        "`python benchmarks/fork_cost.py`",
        "",
        *table,
    ]
    text = "\n".join(told)
    print(text, end="")
    if options.save:
        (RESULTS / "fork_cost.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
