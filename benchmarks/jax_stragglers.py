"""JAX on four CPU processes: are all steps and collectives found, is the late rank named, and what does recording cost?

    python benchmarks/jax_stragglers.py --late 60 --even 50 --rounds 10 --out benchmarks/results/jax.md

The program keeps count of its own steps, and counts the collectives of a step in what XLA has compiled. Collectives
over MPI need MPITRAMPOLINE_LIB (a libmpiwrapper.so for the MPI whose mpirun --mpirun names); without it they are left
out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]
PROGRAM = ROOT / "tests" / "programs" / "jax_training.py"
PROCESSES = 4
MODELS = ("mlp", "transformer")
LIMIT_S = 1500
TIMED_OUT = 124
BEFORE = 3  # steps of a stretch that are left out: the change itself


class TooSlow(Exception):
    """The machine was too busy for a job."""


@dataclass
class Case:
    """One stretch of steps of a job, and whom it makes late."""

    late: int = -1
    delay_ms: float = 0.0
    how: str = "sleep"
    named: int | None = None  # the rank that is called late

    @property
    def is_right(self) -> bool:
        return self.named == (self.late if self.late >= 0 else None)


@dataclass
class Job:
    """One training of many stretches, and what was seen of it."""

    model: str
    collectives: str
    cases: list[Case]
    steps_found: int = 0
    steps_true: int = 0
    collectives_found: int = 0
    collectives_true: int = 0
    step_ms: float = 0.0
    problems: list[str] = field(default_factory=list)


def main() -> None:
    options = parse()
    if options.launch:
        sys.exit(launch(options.launch, options.arguments))
    kinds = [(model, by) for by in backends() for model in MODELS]
    chance = random.Random(options.seed)
    jobs = [Job(*kind, planned(chance, options, len(kinds))) for kind in kinds]
    costs = [Cost(*kind) for kind in kinds]
    for job in jobs:
        try:
            run_job(job, options)
        except TooSlow:
            job.problems.append(f"left out: not done after {LIMIT_S} s")
        print(f"{job.model} {job.collectives}: {job}", flush=True)
        write(options, jobs, costs)
    for turn in range(options.rounds):
        for cost in costs:
            add_pair(cost, turn, options)
            write(options, jobs, costs)


def planned(chance: random.Random, options: argparse.Namespace, kinds: int) -> list[Case]:
    """The share of a job, in any order."""
    late = [
        Case(
            chance.randrange(PROCESSES), chance.choice((20.0, 40.0, 80.0)), chance.choice(("sleep", "compute", "input"))
        )
        for _ in range(-(-options.late // kinds))
    ]
    cases = late + [Case() for _ in range(-(-options.even // kinds))]
    chance.shuffle(cases)
    return cases


def write(options: argparse.Namespace, jobs: list[Job], costs: list[Cost]) -> None:
    text = "\n".join(document([one for one in jobs if one.steps_true], costs, options)) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    print(text, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--late", type=int, default=60, help="stretches of steps with a late rank, in all jobs together"
    )
    parser.add_argument("--even", type=int, default=50, help="stretches without one")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of a bare and a recorded job, for the cost")
    parser.add_argument("--steps", type=int, default=40, help="of a stretch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", type=Path, default=ROOT / ".envs" / "jax" / "bin" / "python", help="one with jax")
    parser.add_argument("--mpirun", default=str(ROOT / ".envs" / "mpich" / "bin" / "mpirun"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.python = options.python.absolute()
    return options


def backends() -> list[str]:
    return ["gloo", *(["mpi"] if os.environ.get("MPITRAMPOLINE_LIB") else [])]


# ---------------------------------------------------------------- running a job
def launch(folder: Path, command: list[str]) -> int:
    """Start the processes and write down when each has ended; {} stands for its number."""
    running = {}
    for number in range(PROCESSES):
        words = [word.replace("{}", str(number)) for word in command]
        running[subprocess.Popen(words).pid] = number
    ended, failed = {}, 0
    while running:
        pid, status = os.wait()
        if pid in running:
            ended[running.pop(pid)] = time.time_ns()
            failed += status != 0
    (folder / "ended.json").write_text(json.dumps(ended))
    return int(failed > 0)


def start(job: Job, truth: Path, run: Path | None, options: argparse.Namespace) -> str:
    """The job's output."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    environment |= {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}  # more ranks than CPUs
    record = [sys.executable, "-m", "rankscope", "run", "--out", str(run)] if run else []
    words = [f"--model={job.model}", f"--collectives={job.collectives}", f"--steps={options.steps}", f"--truth={truth}"]
    words.append(f"--plan={json.dumps([[one.late, one.delay_ms, one.how] for one in job.cases])}")
    program = [str(options.python), str(PROGRAM), "{}", str(PROCESSES), str(port), *words]
    if job.collectives == "gloo":
        command = [*record, sys.executable, __file__, "--launch", str(truth), "--", *program]
    else:
        script = shlex.join(program).replace("'{}'", "$PMI_RANK")
        command = [*record, options.mpirun, "-n", str(PROCESSES), "sh", "-c", f"exec {script}"]
    limited = ["timeout", str(LIMIT_S), *command]
    done = subprocess.run(limited, env=environment, capture_output=True, text=True, check=False, cwd=truth)
    if done.returncode == TIMED_OUT:
        raise TooSlow
    # jaxlib 0.10 frees its communicators after MPI_Finalize, for which MPICH ends it with 1: bare as well
    if done.returncode and not (job.collectives == "mpi" and all_written(truth)):
        sys.exit(
            f"{job.model} {job.collectives}: ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout


def all_written(folder: Path) -> bool:
    return all((folder / f"{at}.json").exists() for at in range(PROCESSES))


def truths(folder: Path) -> dict[int, dict[str, Any]]:
    return {at: json.loads((folder / f"{at}.json").read_text()) for at in range(PROCESSES)}


def run_job(job: Job, options: argparse.Namespace) -> None:
    import rankscope
    from rankscope.questions.steps.data import steps_of
    from rankscope.questions.stragglers.lateness import late_ranks

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start(job, folder, folder / "run", options)
        run = rankscope.open(folder / "run")
        compare_with_truth(job, run, truths(folder))
        steps = steps_of(run.store())
        job.step_ms = float(median(steps.ranks[0].length_ns)) / 1e6
        for at, case in enumerate(job.cases):
            # as the finding `straggler` and the table `causes` tell it of a whole run
            late = late_ranks(steps.between(at * options.steps + 1 + BEFORE, (at + 1) * options.steps))
            case.named = late[0].rank if late else None


STEPS = "SELECT rank, count(*) FROM steps JOIN ranks USING (process) WHERE role = 'rank' GROUP BY rank"
COLLECTIVES = """
    SELECT rank, sum(collectives)::BIGINT FROM groups JOIN ranks USING (process)
    WHERE role = 'rank' AND kind = 'process_group' GROUP BY rank"""  # the log keeps the newest only


def compare_with_truth(job: Job, run: Any, truth: dict[int, dict[str, Any]]) -> None:
    steps, collectives = dict(run.query(STEPS).rows), dict(run.query(COLLECTIVES).rows)
    for rank, one in truth.items():
        job.steps_true += one["steps"]
        job.steps_found += min(steps.get(rank, 0), one["steps"])
        job.collectives_true += round(one["steps"] * one["collectives_a_step"])
        job.collectives_found += collectives.get(rank, 0)
        if steps.get(rank, 0) > one["steps"]:
            job.problems.append(f"rank {rank}: {steps[rank]} steps of {one['steps']}")


# ---------------------------------------------------------------- what recording costs
@dataclass
class Cost:
    model: str
    collectives: str
    loop: list[float] = field(default_factory=list)  # recorded ÷ bare, each pair
    cpu: list[float] = field(default_factory=list)  # the same of the CPU time of all processes
    bare_exit_s: list[float] = field(default_factory=list)
    recorded_exit_s: list[float] = field(default_factory=list)
    same_output: bool = True


def add_pair(cost: Cost, turn: int, options: argparse.Namespace) -> None:
    """One job bare and one recorded, whichever first by turns."""
    loop, cpu, outputs = {}, {}, {}
    for recorded in (turn % 2 == 0, turn % 2 == 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            job = Job(cost.model, cost.collectives, [Case()] * 3)
            outputs[recorded] = lines_of(start(job, folder, folder / "run" if recorded else None, options))
            known = truths(folder)
            loop[recorded] = max(one["loop_s"] for one in known.values())
            cpu[recorded] = sum(one["loop_cpu_s"] for one in known.values())
            if cost.collectives == "gloo":
                ended = json.loads((folder / "ended.json").read_text())
                exits = [(ended[str(at)] - known[at]["left_ns"]) / 1e9 for at in known]
                (cost.recorded_exit_s if recorded else cost.bare_exit_s).append(max(exits))
    cost.same_output &= outputs[True] == outputs[False]
    cost.loop.append(loop[True] / loop[False])
    cost.cpu.append(cpu[True] / cpu[False])
    print(
        f"{cost.model} {cost.collectives}: {loop[False]:.3f} s bare, {loop[True]:.3f} s recorded; CPU {cpu}", flush=True
    )


def lines_of(output: str) -> list[str]:
    """Without Gloo's own, which processes write into each other."""
    return sorted(line for line in output.split("\n") if line.startswith("process "))


# ---------------------------------------------------------------- the document
def document(jobs: list[Job], costs: list[Cost], options: argparse.Namespace) -> list[str]:
    cases = [case for job in jobs for case in job.cases]
    late, even = [one for one in cases if one.late >= 0], [one for one in cases if one.late < 0]
    lines = [
        "# JAX on four CPU processes",
        f"`benchmarks/jax_stragglers.py --late {options.late} --even {options.even} --rounds {options.rounds} --steps "
        f"{options.steps} --seed {options.seed}`, {time.strftime('%d %B %Y')}, {os.cpu_count()} CPUs "
        f"({platform.machine()}), which other programs used, too; {versions(options)}.",
        "",
        f"Each job is a training in stretches of {options.steps} steps: in some a rank is late by 20, 40 or 80 ms a "
        "step (it sleeps, computes, or waits for input), in the others none is. The late rank was named in "
        f"**{sum(one.is_right for one in late)} of {len(late)}** stretches, by the estimate behind the finding "
        f"`straggler`; {sum(not one.is_right for one in even)} of {len(even)} stretches without one had a false alarm.",
        "",
        "| model | collectives | median step, ms | steps found / true | collectives found / true | late rank named | "
        "false alarms |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for job in jobs:
        with_late, without = [one for one in job.cases if one.late >= 0], [one for one in job.cases if one.late < 0]
        lines.append(
            f"| {job.model} | {job.collectives} | {job.step_ms:.1f} | {job.steps_found} / {job.steps_true} | "
            f"{job.collectives_found} / {job.collectives_true} | {sum(one.is_right for one in with_late)} / "
            f"{len(with_late)} | {sum(not one.is_right for one in without)} / {len(without)} |"
        )
    missed = [(job, one) for job in jobs for one in job.cases if not one.is_right]
    lines += ["", *(f"- not as put in: {job.model}, {job.collectives}: {one}" for job, one in missed)]
    lines += [f"- {job.model}, {job.collectives}: {problem}" for job in jobs for problem in job.problems]
    return lines + cost_lines([one for one in costs if one.loop])


def cost_lines(costs: list[Cost]) -> list[str]:
    if not costs:
        return []
    lines = [
        "",
        "## Cost",
        "Bare and recorded by turns. Recorded ÷ bare of each pair: median and quartiles, of the loop's wall time "
        "(which other programs disturb) and of the CPU time of all processes in it. Exit: from the program's last line "
        "to the end of its process, the slowest of the four, median.",
        "",
        "| model | collectives | pairs | wall time | CPU time | exit bare → recorded, s | output |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for one in costs:
        exits = f"{median(one.bare_exit_s):.2f} → {median(one.recorded_exit_s):.2f}" if one.bare_exit_s else "–"
        lines.append(
            f"| {one.model} | {one.collectives} | {len(one.loop)} | {spread(one.loop)} | {spread(one.cpu)} | {exits} | "
            f"{'the same' if one.same_output else 'DIFFERS'} |"
        )
    return lines


def spread(ratios: list[float]) -> str:
    ordered = sorted(ratios)
    low, high = ordered[len(ordered) // 4], ordered[min(len(ordered) - 1, (3 * len(ordered)) // 4)]
    return f"{median(ordered):.3f} ({low:.3f}–{high:.3f})"


def versions(options: argparse.Namespace) -> str:
    asked = "import jax, jaxlib; print('jax', jax.__version__, 'jaxlib', jaxlib.__version__)"
    return subprocess.run([str(options.python), "-c", asked], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
