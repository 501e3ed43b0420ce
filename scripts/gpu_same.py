"""gpu_same.py FOLDER: programs on a GPU, bare and recorded in several modes: the same output and exit code?

Leaves FOLDER/same.md (the table), FOLDER/same.json, and the recorded runs in FOLDER/runs. Standard library only.
`--only NAME,…` chooses programs, `--modes NAME,…` modes, `--seconds N` bounds the whole, `--at-once N` runs N beside
each other, each of them may then take twice as long.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "scripts" / "gpu_programs"
MODES: dict[str, list[str]] = {
    "default": [],
    "calls": ["--cuda-api", "all", "--trace"],
    "plain": ["--cuda-api", "none", "--imports", "off"],
    "imports": ["--imports", "calls"],
    "windows": ["--cuda", "windows"],
}
FEW = ("default", "calls", "windows")
ALL = tuple(MODES)
NO_TORCH = {"RANKSCOPE_TORCH": "0"}
OFTEN = {"RANKSCOPE_CUDA_SECOND_NS": "10000000", "RANKSCOPE_CUDA_SHARE": "10"}  # windows come and go all the time


@dataclass(frozen=True)
class Program:
    """A program, the modes it is recorded in, and variables it is recorded with."""

    name: str
    arguments: tuple[str, ...]
    modes: tuple[str, ...] = FEW
    seconds: int = 90


@dataclass
class Outcome:
    """What somebody who runs a program sees of it."""

    code: int
    output: str
    errors: str
    wall_s: float


PACKAGES = ("transformers", "lightning", "jax", "cupy", "triton", "accelerate")
PROGRAMS_TO_RUN = (
    Program("thread_state", ("thread_state.py",), ("plain", "default")),
    Program("loader_fork", ("loader_fork.py",), ALL),
    Program("graphs", ("graphs.py",), ALL),
    Program("profiler_inside", ("profiler_inside.py",), ALL),
    Program("processes", ("processes.py",), ALL),
    Program("compile_ddp", ("compile_ddp.py",), FEW, 200),
    *(Program(name, ("packages.py", name), ("default", "windows")) for name in PACKAGES),
)


def run(command: list[str], environment: dict[str, str], seconds: int) -> Outcome:
    """Runs it with caches of its own, so that each time is a first time; everything it started is ended with it."""
    cache = tempfile.mkdtemp(prefix="same-")
    caches = {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TRITON_CACHE_DIR": f"{cache}/triton"}
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=ROOT, env={**environment, **caches}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        errors += f"\n[killed after {seconds} s]"
    shutil.rmtree(cache, ignore_errors=True)
    return Outcome(process.returncode, output, errors, round(time.monotonic() - began, 1))


def recorded_command(program: list[str], mode: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "rankscope", "run", "--quiet", "--out", str(folder), *MODES[mode], "--", *program]


def recorded_environment(program: Program, mode: str) -> dict[str, str]:
    extra = NO_TORCH if program.name == "thread_state" and mode == "plain" else {}
    often = OFTEN if mode == "windows" else {}
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **extra, **often}


def judge(bare: Outcome, again: Outcome, recorded: Outcome) -> str:
    """Errors are compared only where two bare runs print the same: warnings carry times and process ids."""
    if recorded.code != bare.code:
        return f"DIFFERS: exit {bare.code} bare, {recorded.code} recorded"
    if recorded.output != bare.output:
        return "DIFFERS: output" if again.output == bare.output else "output differs between bare runs too"
    if recorded.errors != bare.errors and again.errors == bare.errors:
        return "DIFFERS: messages on stderr"
    return "same"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--modes", default="")
    parser.add_argument("--seconds", type=int, default=540)
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="programs that run beside each other")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    results = Results(options.folder, time.monotonic() + options.seconds - 20, 2 if options.at_once > 1 else 1)
    chosen = [program for program in PROGRAMS_TO_RUN if not options.only or program.name in options.only.split(",")]
    modes = options.modes.split(",") if options.modes else list(MODES)
    with ThreadPoolExecutor(options.at_once) as pool:
        longest_first = sorted(chosen, key=lambda program: -program.seconds)
        started = [(program, start(program, modes, results, pool)) for program in longest_first]
        for program, attempts in started:
            compare(program, attempts, results)
    return int(any(row[2].startswith("DIFFERS") for row in results.rows))


class Results:
    """Written anew whenever a mode of a program is compared: what was done is kept whatever comes."""

    def __init__(self, folder: Path, until: float, patience: int) -> None:
        self.folder, self.until, self.patience = folder, until, patience
        self.rows: list[tuple[str, ...]] = []
        self.details: dict[str, dict[str, object]] = {}

    def add(self, row: tuple[str, ...], outcomes: dict[str, Outcome]) -> None:
        self.rows.append(row)
        self.details.setdefault(row[0], {}).update({name: asdict(outcome) for name, outcome in outcomes.items()})
        print(*row, sep=" | ", flush=True)
        write(self.folder, self.rows, self.details)

    def is_time_up(self) -> bool:
        return time.monotonic() > self.until


BARE = ("bare", "bare again")


def start(program: Program, modes: list[str], results: Results, pool: Executor) -> dict[str, Future[Outcome | None]]:
    """Twice bare, and in each mode."""
    names = [*BARE, *(mode for mode in program.modes if mode in modes)]
    return {name: pool.submit(attempt, program, name, results) for name in names}


def attempt(program: Program, name: str, results: Results) -> Outcome | None:
    """None where the time is up."""
    if results.is_time_up():
        return None
    command = [sys.executable, str(PROGRAMS / program.arguments[0]), *program.arguments[1:]]
    seconds = program.seconds * results.patience
    if name in BARE:
        return run(command, dict(os.environ), seconds)
    target = results.folder / "runs" / f"{program.name}-{name}"
    return run(recorded_command(command, name, target), recorded_environment(program, name), seconds)


def compare(program: Program, attempts: dict[str, Future[Outcome | None]], results: Results) -> None:
    bare, again = (attempts[name].result() for name in BARE)
    for mode, future in attempts.items():
        if mode in BARE:
            continue
        outcome = future.result()
        if not bare or not again or not outcome:
            results.add((program.name, mode, "not run: the time was up", "", ""), {})
            continue
        files = sum(1 for _ in (results.folder / "runs" / f"{program.name}-{mode}").rglob("*.rank"))
        verdict = judge(bare, again, outcome)
        row = (program.name, mode, verdict, f"{bare.wall_s} / {outcome.wall_s}", str(files))
        results.add(row, {"bare": bare, "bare again": again, mode: outcome})
        if verdict.startswith("DIFFERS"):
            print(outcome.errors[-1500:], flush=True)


def write(folder: Path, rows: list[tuple[str, ...]], details: dict[str, dict[str, object]]) -> None:
    head = ("Program", "Mode", "Recorded against bare", "Seconds bare / recorded", "Rank files")
    lines = [head, tuple("---" for _ in head), *rows]
    (folder / "same.md").write_text("".join(f"| {' | '.join(line)} |\n" for line in lines), encoding="utf-8")
    (folder / "same.json").write_text(json.dumps(details, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
