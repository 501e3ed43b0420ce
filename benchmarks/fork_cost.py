"""What a process with nothing to tell costs: fork + _exit and short programs, bare and recorded.

    python benchmarks/fork_cost.py [--forks N] [--rounds N] [--torch PYTHON] [--rankscope PATH] [--save]

Time: a C program forks children that leave at once and waits for each; bare and recorded in turns, the ratio of each
pair, and the median of the ratios, so that the load of the machine cancels; the CPU time
of both processes beside it, which a busy machine changes less. Recorded, the program has a rank file, as
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
static double cpu_us(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}
int main(int count, char **words)
{
    struct timespec begin, end;
    struct rusage usage;
    int forks = count > 1 ? atoi(words[1]) : 1;
    double cpu_before = cpu_us(RUSAGE_SELF);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < forks; i++) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        waitpid(child, NULL, 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    getrusage(RUSAGE_CHILDREN, &usage);
    printf("{\"us\": %f, \"cpu_us\": %f, \"faults\": %f}\n",
           ((end.tv_sec - begin.tv_sec) * 1e6 + (end.tv_nsec - begin.tv_nsec) / 1e3) / forks,
           (cpu_us(RUSAGE_SELF) + cpu_us(RUSAGE_CHILDREN) - cpu_before) / forks,
           (double)usage.ru_minflt / forks);
    return 0;
}
"""
PYTHON = """
import json, os, resource, sys, time
{imports}
forks = int(sys.argv[1])
begin, cpu = time.perf_counter(), sum(os.times()[:2])
for _ in range(forks):
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
took = time.perf_counter() - begin
children = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = sum(os.times()[:2]) - cpu + children.ru_utime + children.ru_stime
print(json.dumps({{"us": took / forks * 1e6, "cpu_us": cpu / forks * 1e6, "faults": children.ru_minflt / forks}}))
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
        middle = {
            name: [statistics.median(pair[which][name] for pair in pairs) for which in (0, 1)]
            for name in ("us", "cpu_us", "faults")
        }
        ratio, cpu_ratio = (statistics.median(b[name] / a[name] for a, b in pairs) for name in ("us", "cpu_us"))
        bare, ours = zip(*middle.values(), strict=True)
        return (
            f"{bare[0]:.0f} | {ours[0]:.0f} | **{ratio:.2f}** | {bare[1]:.0f} | {ours[1]:.0f} | **{cpu_ratio:.2f}** "
            f"| {bare[2]:.1f} | {ours[2]:.1f} |"
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
        "| fork + `_exit` + wait from a | forks a round | wall bare, µs | recorded | median of ratios "
        "| CPU bare, µs | recorded | median of ratios | page faults bare | recorded |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
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
    load, torch = os.getloadavg()[0], os.path.abspath(options.torch) if options.torch else ""
    with tempfile.TemporaryDirectory() as place:
        table = measure(Bench(Path(place), options.rankscope), options.forks, options.rounds, torch)
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
