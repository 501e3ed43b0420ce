"""JAX on CPU processes: are all steps and collectives found, is the late rank named, and what does recording cost?

    python benchmarks/jax_stragglers.py --late 60 --even 50 --rounds 10 --out benchmarks/results/jax.md

The program keeps count of its own steps, and counts the collectives of a step in what XLA has compiled. Collectives
over MPI need MPITRAMPOLINE_LIB (a libmpiwrapper.so for the MPI whose mpirun --mpirun names); without it they are left
out. Every job that is done is a line beside --out (.jsonl), so that a stopped benchmark goes on where it was;
--limit-s chooses how much of it.
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
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]
PROGRAM = ROOT / "tests" / "programs" / "jax_training.py"
MODELS = ("mlp", "transformer")
LIMIT_S = 1500
TIMED_OUT = 124
BEFORE = 3  # steps of a stretch that are left out: the change itself
WARMUP = 10  # steps that are not timed


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
    processes: int
    steps_found: int = 0
    steps_true: int = 0
    collectives_found: int = 0
    collectives_true: int = 0
    step_ms: float = 0.0
    load: float = 0.0
    problems: list[str] = field(default_factory=list)


def main() -> None:
    options = parse()
    if options.launch:
        sys.exit(launch(options.launch, options.processes, options.arguments))
    every = [(model, by) for by in backends() for model in MODELS]
    chance = random.Random(options.seed)
    kinds = [kind for kind in every if not options.only or ":".join(kind) in options.only]
    jobs = [Job(*kind, planned(chance, options, len(every)), options.processes) for kind in kinds]
    until = time.monotonic() + options.limit_s
    kept = options.out.with_suffix(".jsonl")
    for job in jobs if options.late + options.even else []:
        if time.monotonic() < until and not any(like(job, row) for row in rows_of(kept, "job")):
            try:
                run_job(job, options)
            except TooSlow:
                job.problems.append(f"left out: not done after {LIMIT_S} s")
            keep(kept, "job", asdict(job))
    for turn, kind in [(turn, kind) for turn in range(options.rounds) for kind in kinds]:
        pair = Pair(*kind, turn, options.processes)
        if time.monotonic() < until and not any(like(pair, row) for row in rows_of(kept, "pair")):
            measure(pair, options)
            keep(kept, "pair", asdict(pair))
    text = "\n".join(document(list(jobs_of(kept)), [Pair(**row) for row in rows_of(kept, "pair")], options)) + "\n"
    options.out.write_text(text, encoding="utf-8")
    print(text, flush=True)


def rows_of(path: Path, what: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row["of"] for row in rows if row["what"] == what]


def keep(path: Path, what: str, row: dict[str, Any]) -> None:
    print(what, json.dumps(row), flush=True)
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"what": what, "of": row}) + "\n")


def like(one: Job | Pair, row: dict[str, Any]) -> bool:
    """Whether that job, or that turn, is done."""
    mine = asdict(one)
    return all(row[name] == mine[name] for name in ("model", "collectives", "processes", "turn") if name in mine)


def jobs_of(path: Path) -> Iterator[Job]:
    for row in rows_of(path, "job"):
        if row["steps_true"]:
            yield Job(**(row | {"cases": [Case(**case) for case in row["cases"]]}))


def planned(chance: random.Random, options: argparse.Namespace, kinds: int) -> list[Case]:
    """The share of a job, in any order."""
    late = [
        Case(
            chance.randrange(options.processes),
            chance.choice((20.0, 40.0, 80.0)),
            chance.choice(("sleep", "compute", "input")),
        )
        for _ in range(-(-options.late // kinds))
    ]
    cases = late + [Case() for _ in range(-(-options.even // kinds))]
    chance.shuffle(cases)
    return cases


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--late", type=int, default=60, help="stretches of steps with a late rank, in all jobs together"
    )
    parser.add_argument("--even", type=int, default=50, help="stretches without one")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of a bare and a recorded job, for the cost")
    parser.add_argument("--steps", type=int, default=40, help="of a stretch")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="MODEL:COLLECTIVES", help="mlp:gloo, transformer:mpi …"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", type=Path, default=ROOT / ".envs" / "jax" / "bin" / "python", help="one with jax")
    parser.add_argument("--mpirun", default=str(ROOT / ".envs" / "mpich" / "bin" / "mpirun"))
    parser.add_argument("--limit-s", type=float, default=1e9, help="begin no job later than this")
    parser.add_argument("--cost-steps", type=int, default=600, help="of each job that is timed")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "jax.md")
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.python = options.python.absolute()
    return options


def backends() -> list[str]:
    return ["gloo", *(["mpi"] if os.environ.get("MPITRAMPOLINE_LIB") else [])]


# ---------------------------------------------------------------- running a job
def launch(folder: Path, processes: int, command: list[str]) -> int:
    """Start the processes and write down when each has ended; {} stands for its number."""
    running = {}
    for number in range(processes):
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


def start(job: Job, steps: int, truth: Path, run: Path | None, options: argparse.Namespace) -> str:
    """The output of a job of so many steps, or of so many for each of its cases."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    environment["PADDING"] = "x" * random.randrange(4096)  # where the stack begins is luck, of bare jobs as well
    environment |= {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}  # more ranks than CPUs
    record = [sys.executable, "-m", "rankscope", "run", "--out", str(run)] if run else []
    words = [f"--model={job.model}", f"--collectives={job.collectives}", f"--steps={steps}", f"--truth={truth}"]
    if job.cases:
        words.append(f"--plan={json.dumps([[one.late, one.delay_ms, one.how] for one in job.cases])}")
    program = [str(options.python), str(PROGRAM), "{}", str(job.processes), str(port), *words]
    if job.collectives == "gloo":
        command = [*record, sys.executable, __file__, f"--launch={truth}", f"--processes={job.processes}"]
        command += ["--", *program]
    else:
        script = shlex.join(program).replace("'{}'", "$PMI_RANK")
        command = [*record, options.mpirun, "-n", str(job.processes), "sh", "-c", f"exec {script}"]
    limited = ["timeout", str(LIMIT_S), *command]
    done = subprocess.run(limited, env=environment, capture_output=True, text=True, check=False, cwd=truth)
    if done.returncode == TIMED_OUT:
        raise TooSlow
    # jaxlib 0.10 frees its communicators after MPI_Finalize, for which MPICH ends it with 1: bare as well
    if done.returncode and not (job.collectives == "mpi" and all_written(truth, job.processes)):
        sys.exit(
            f"{job.model} {job.collectives}: ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout


def all_written(folder: Path, processes: int) -> bool:
    return all((folder / f"{at}.json").exists() for at in range(processes))


def truths(folder: Path, processes: int) -> dict[int, dict[str, Any]]:
    return {at: json.loads((folder / f"{at}.json").read_text()) for at in range(processes)}


def run_job(job: Job, options: argparse.Namespace) -> None:
    import rankscope
    from rankscope.questions.steps.data import steps_of
    from rankscope.questions.stragglers.lateness import late_ranks

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start(job, options.steps, folder, folder / "run", options)
        job.load = round(os.getloadavg()[0], 1)
        run = rankscope.open(folder / "run")
        compare_with_truth(job, run, truths(folder, job.processes))
        steps = steps_of(run.store())
        job.step_ms = float(median(steps.ranks[0].length_ns)) / 1e6
        for at, case in enumerate(job.cases):
            # as the finding `straggler` and the table `causes` tell it of a whole run
            late = late_ranks(steps.between(at * options.steps + 1 + BEFORE, (at + 1) * options.steps))
            case.named = int(late[0].rank) if late else None


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
class Pair:
    """The same job bare and recorded, right after each other."""

    model: str
    collectives: str
    turn: int
    processes: int
    step_ms: list[float] = field(default_factory=list)  # bare, recorded: median over the steady steps of all processes
    loop_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)  # of all processes in their loops
    exit_s: list[float] = field(default_factory=list)  # from the last line of a program to its end: the slowest
    same_output: bool = True
    load: float = 0.0


def measure(pair: Pair, options: argparse.Namespace) -> None:
    """Whichever first by turns."""
    known: dict[bool, tuple[float, float, float, float]] = {}
    outputs = {}
    for recorded in (pair.turn % 2 == 0, pair.turn % 2 == 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            job = Job(pair.model, pair.collectives, [], pair.processes)
            run = folder / "run" if recorded else None
            outputs[recorded] = lines_of(start(job, options.cost_steps, folder, run, options))
            known[recorded] = times_of(truths(folder, pair.processes), folder / "ended.json")
    pair.step_ms, pair.loop_s, pair.cpu_s, pair.exit_s = (
        [known[False][at], known[True][at]] for at in range(len(known[True]))
    )
    pair.same_output, pair.load = outputs[True] == outputs[False], round(os.getloadavg()[0], 1)


def times_of(known: dict[int, dict[str, Any]], ended_file: Path) -> tuple[float, float, float, float]:
    """Of one job: step, loop, CPU and exit; when processes that mpirun starts have ended is not known."""
    lengths = [b - a for one in known.values() for a, b in pairwise(one["begins_ns"][WARMUP:])]
    ended = json.loads(ended_file.read_text()) if ended_file.exists() else {}
    exits = [(ended[str(at)] - known[at]["left_ns"]) / 1e9 for at in known if str(at) in ended]
    loop_s = max(one["loop_s"] for one in known.values())
    cpu_s = sum(one["loop_cpu_s"] for one in known.values())
    return median(lengths) / 1e6, loop_s, cpu_s, max(exits, default=0.0)


def lines_of(output: str) -> list[str]:
    """Without Gloo's own, which processes write into each other."""
    return sorted(line for line in output.split("\n") if line.startswith("process "))


# ---------------------------------------------------------------- the document
def document(jobs: list[Job], pairs: list[Pair], options: argparse.Namespace) -> list[str]:
    cases = [case for job in jobs for case in job.cases]
    late, even = [one for one in cases if one.late >= 0], [one for one in cases if one.late < 0]
    lines = [
        "# JAX on several CPU processes",
        f"`benchmarks/jax_stragglers.py --late {options.late} --even {options.even} --rounds {options.rounds} --steps "
        f"{options.steps} --seed {options.seed}`, {time.strftime('%d %B %Y')}, {os.cpu_count()} CPUs "
        f"({platform.machine()}), load {loads(jobs, pairs)}, of which 2 to 4 are the jobs' own; "
        f"{versions(options)}.",
        "",
        f"Each job is a training in stretches of {options.steps} steps: in some a rank is late by 20, 40 or 80 ms a "
        "step (it sleeps, computes, or waits for input), in the others none is. The late rank was named in "
        f"**{sum(one.is_right for one in late)} of {len(late)}** stretches, by the estimate behind the finding "
        f"`straggler`; {sum(not one.is_right for one in even)} of {len(even)} stretches without one had a false alarm.",
        "",
        "| model | collectives | processes | median step, ms | steps found / true | collectives found / true | late "
        "rank named | false alarms |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for job in jobs:
        with_late, without = [one for one in job.cases if one.late >= 0], [one for one in job.cases if one.late < 0]
        named, false = sum(one.is_right for one in with_late), sum(not one.is_right for one in without)
        lines.append(
            f"| {job.model} | {job.collectives} | {job.processes} | {job.step_ms:.1f} | {job.steps_found} / "
            f"{job.steps_true} | {job.collectives_found} / {job.collectives_true} | {named} / {len(with_late)} | "
            f"{false} / {len(without)} |"
        )
    missed = [(job, one) for job in jobs for one in job.cases if not one.is_right]
    lines += ["", *(f"- not as put in: {job.model}, {job.collectives}: {one}" for job, one in missed)]
    lines += [f"- {job.model}, {job.collectives}: {problem}" for job in jobs for problem in job.problems]
    return lines + cost_lines(pairs)


def loads(jobs: list[Job], pairs: list[Pair]) -> str:
    found = [*(job.load for job in jobs), *(pair.load for pair in pairs), *([] if jobs or pairs else [0.0])]
    return f"{min(found):.0f} to {max(found):.0f}"


def cost_lines(pairs: list[Pair]) -> list[str]:
    if not pairs:
        return []
    lines = [
        "",
        "## Cost",
        "Bare and recorded by turns. Recorded ÷ bare of each pair: median and quartiles, of the median steady step, of "
        "the loop's wall time (its first step with what is compiled is in it) and of the CPU time of all processes in "
        "it. Exit: from the program's last line to the end of its process, the slowest of them, median.",
        "",
        "| model | collectives | processes | pairs | bare step, ms | step | loop | CPU time | exit bare → recorded, s "
        "| output |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for kind in dict.fromkeys((one.model, one.collectives, one.processes) for one in pairs):
        mine = [one for one in pairs if (one.model, one.collectives, one.processes) == kind]
        exits = " → ".join(f"{median(one.exit_s[at] for one in mine):.2f}" for at in (0, 1))
        ratios = [spread([b / a for a, b in times]) for times in (
            [one.step_ms for one in mine], [one.loop_s for one in mine], [one.cpu_s for one in mine])]  # fmt: skip
        lines.append(
            f"| {kind[0]} | {kind[1]} | {kind[2]} | {len(mine)} | {median(one.step_ms[0] for one in mine):.2f} | "
            f"{' | '.join(ratios)} | {exits if kind[1] == 'gloo' else '–'} | "
            f"{'the same' if all(one.same_output for one in mine) else 'DIFFERS'} |"
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
