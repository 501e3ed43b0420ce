"""What recording costs a short torch job in CPU time, and which part of it costs what.

    python benchmarks/torch_startup.py [--rounds N] [--python PATH] [--rankscope PATH] [--program NAME …] [--save]

Programs: `import` (one process that imports torch), `one` (a rank of DistributedDataParallel on Gloo, three steps) and
`two` (two such ranks under torchrun: three processes). Each is run bare and recorded in turns, and recorded with parts
switched off. Figures are user and system time of all its processes (getrusage), as the median of the differences within
a round. Wall time is not looked at: a busy machine says nothing there. `--callgrind` counts the instructions of the
rank itself instead, bare and recorded once each (three minutes), which no other program changes.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
TRIES = 3  # torch 2.13 aborts at its end once in some thirty jobs of two ranks, bare as well ("terminate called …")
BAR_MS = 50.0  # of one rank, over a bare one
IMPORT = "import torch\n"
TRAINING = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
PROCESSES = {"import": 1, "one": 1, "two": 3}
# what is switched off, and how: options of run, variables
WAYS: dict[str, tuple[list[str], dict[str, str]]] = {
    "recorded": ([], {}),
    "no times of imports": (["--imports", "off"], {}),
    "hooks in Python": ([], {"RANKSCOPE_TORCH": "python"}),
    "no agent": ([], {"RANKSCOPE_TORCH": "0"}),
    "no agent, no imports": (["--imports", "off"], {"RANKSCOPE_TORCH": "0"}),
    "preloaded, idle": ([], {"RANKSCOPE_DIR": ""}),
}


def command_of(program: str, python: Path, script: Path) -> list[str]:
    if program == "two":
        return [str(python.with_name("torchrun")), "--standalone", "--nproc-per-node=2", str(script)]
    return [str(python), str(script)]


def cpu_ms(command: list[str], environment: dict[str, str]) -> float:
    """User and system time of the command and of everything it waited for."""
    for _ in range(TRIES):
        pid = os.posix_spawnp(
            command[0],
            command,
            environment,
            file_actions=[(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)],
        )
        _, status, usage = os.wait4(pid, 0)
        if not status:
            return (usage.ru_utime + usage.ru_stime) * 1000
        print(f"again, it ended with status {status}: {' '.join(command)}", file=sys.stderr)
    raise SystemExit(f"{command}: failed {TRIES} times")


def measured(program: str, options: argparse.Namespace, ways: list[str]) -> dict[str, list[float]]:
    """For every way, the differences from the bare runs of the same round; of `bare` the times themselves."""
    found: dict[str, list[float]] = {way: [] for way in ["bare", *ways]}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text(IMPORT if program == "import" else TRAINING)
        words = command_of(program, options.python, script)
        plain = {key: value for key, value in os.environ.items() if not key.startswith("RANKSCOPE_")}
        plain |= {"OMP_NUM_THREADS": "1", "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
        plain |= {"MASTER_PORT": "0"} if program == "one" else {}
        if program != "one":
            plain = {key: value for key, value in plain.items() if key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
        for number in range(-1, options.rounds):  # round -1 warms the caches
            order = ["bare", *ways]
            order = order[number % len(order) :] + order[: number % len(order)]
            times = {way: cpu_ms(*of_way(way, words, plain, folder, options.rankscope)) for way in order}
            for way in order if number >= 0 else []:
                found[way].append(times[way] - (times["bare"] if way != "bare" else 0.0))
    return found


def of_way(
    way: str, words: list[str], plain: dict[str, str], folder: str, rankscope: str
) -> tuple[list[str], dict[str, str]]:
    if way == "bare":
        return words, plain
    if way == "preloaded, idle":
        return words, {**plain, "LD_PRELOAD": str(ROOT / "src/rankscope/native/librankscope.so")}
    options, variables = WAYS[way]
    return [rankscope, "run", "--out", f"{folder}/run", *options, *words], {**plain, **variables}


def instructions(python: Path, rankscope: str) -> dict[str, int]:
    """Of one rank with three steps, bare and recorded, counted by valgrind; `rankscope run` itself is not in it."""
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text(TRAINING)
        plain = {key: value for key, value in os.environ.items() if not key.startswith("RANKSCOPE_")}
        plain |= {"OMP_NUM_THREADS": "1", "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
        plain |= {"MASTER_PORT": "0", "PYTHONHASHSEED": "0"}
        valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(python), str(script)]
        for way, before in {"bare": [], "recorded": [rankscope, "run", "--out", f"{folder}/run"]}.items():
            done = subprocess.run([*before, *valgrind], env=plain, capture_output=True, text=True, check=True)
            (counted,) = re.findall(r"Collected : (\d+)", done.stderr)
            counts[way] = int(counted)
    return counts


def as_markdown(results: dict[str, dict[str, list[float]]]) -> str:
    lines = ["| program | way | CPU ms more than bare | a process | quartiles |", "|---|---|---|---|---|"]
    for program, found in results.items():
        for way, values in found.items():
            low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
            each = "" if way == "bare" else f"{middle / PROCESSES[program]:.0f}"
            shown = f"{middle:.0f} in all" if way == "bare" else f"{middle:.0f}"
            lines.append(f"| {program} | {way} | {shown} | {each} | {low:.0f} … {high:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--python", type=Path, default=ROOT / ".envs" / "torch" / "bin" / "python")
    parser.add_argument("--rankscope", default=str(ROOT / ".venv" / "bin" / "rankscope"))
    parser.add_argument("--program", nargs="+", choices=PROCESSES, default=list(PROCESSES))
    parser.add_argument("--way", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--callgrind", action="store_true", help="count instructions of a rank instead")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/torch_startup.md")
    options = parser.parse_args()
    options.python = Path(os.path.abspath(options.python))
    subprocess.run([options.rankscope, "doctor", "--prepare", "--python", str(options.python)], check=True)
    if options.callgrind:
        counts = instructions(options.python, options.rankscope)
        more = counts["recorded"] - counts["bare"]
        print(f"{counts['bare']:,} bare, {counts['recorded']:,} recorded: {more:,} more ({more / counts['bare']:.2%})")
        return 0
    load = os.getloadavg()[0]
    results = {program: measured(program, options, options.way) for program in options.program}
    text = as_markdown(results)
    print(text)
    if options.save:
        machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
        said = f"`benchmarks/torch_startup.py --rounds {options.rounds}`: {machine}, load before {load:.1f}."
        head = f"# Start-up of torch jobs\n{said} Bar: {BAR_MS:.0f} ms for each process.\n\n"
        (RESULTS / "torch_startup.md").write_text(head + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
