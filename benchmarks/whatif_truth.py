"""What does `rankscope whatif --without rank=N` say of real jobs, and what do they take without the delay?

    python benchmarks/whatif_truth.py FOLDER [--jobs 60] [--steps 30] [--seed 19] [--pairs 2] [--lanes 2]
    python benchmarks/whatif_truth.py FOLDER --record | --judge [--out FILE]

Random jobs (whatif_program.py): DDP and torch's pipelines on Gloo, and mpi4py with point-to-point messages, on 2 to 4
ranks, one of them delayed by a random time in one part. Each is recorded with the delay and without it, --pairs times
in turn, into FOLDER; jobs that are there already are not run again. Each recorded job with the delay is then asked what
it would take without, and held against the mean of those without.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from mpis import ROOT, WAITING_VARIABLES, find_mpi
from rankscope.api.run import Run
from rankscope.questions.whatif.changes import Change
from rankscope.questions.whatif.whatif import Model, model_of, whatif

KINDS = ("ddp", "pipeline", "ring", "sendrecv", "halo")
WHERE = {"ddp": ("data", "forward", "backward", "optimizer"), "pipeline": ("forward", "backward")}
SHARES = {  # of a step
    "ddp": {"data": 0.12, "forward": 0.3, "backward": 0.48, "optimizer": 0.1},
    "pipeline": {"forward": 0.33, "backward": 0.67},
    "halo": {"data": 0.15, "compute": 0.5, "inner": 0.35},
}


def drawn(number: int, kind: str, steps: int, seed: int, mpis: Sequence[str], nice: int) -> dict[str, Any]:
    """A random job and its delay."""
    draw = random.Random(f"{seed} {number}")
    ranks = draw.choice([2, 3, 4])
    whole = draw.uniform(80, 200)
    shares = SHARES.get(kind, {"data": 0.15, "compute": 0.85})
    pipeline = {
        "schedule": draw.choice(["gpipe", "1f1b"]),
        "micro_batches": draw.choice([4, 6, 8]),
        "rows": draw.choice([1, 64]),
    }
    return {
        "nice": nice if kind in ("ddp", "pipeline") else 0,  # ranks of MPI may spin while they wait
        **(pipeline if kind == "pipeline" else {}),
        "kind": kind,
        "ranks": ranks,
        "mpi": mpis[number % len(mpis)],
        "steps": steps,
        "parts_ms": {part: share * whole for part, share in shares.items()},
        "bytes": draw.choice([8, 4096, 1 << 20]),
        "rounds": draw.choice([1, 2, 3]),
        "reduces": draw.random() < 0.5,
        "jitter": draw.choice([0.0, 0.05, 0.15]),
        "delay": [
            draw.randrange(ranks),
            round(whole * draw.uniform(0.2, 0.7)),
            draw.choice(WHERE.get(kind, ("data", "compute", "send"))),
        ],
    }


def record(job: dict[str, Any], turn: int, folder: Path) -> None:
    """Run it once, with the delay or without."""
    given = json.dumps({**job, "seed": turn})
    program = [
        str(ROOT / "benchmarks" / "whatif_program.py"),
        given,
        *(map(str, job["delay"]) if turn % 2 == 0 else ()),
    ]
    tool = [sys.executable, "-m", "rankscope", "run", "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    if job["kind"] in ("ddp", "pipeline"):
        python = str(ROOT / ".envs" / "torch" / "bin" / "python")
        launch = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(job["ranks"])]
        command = [*tool, *launch, *program]
    else:
        mpi = find_mpi(job["mpi"])
        command = mpi.command(job["ranks"], *tool, mpi.python, *program)
        environment = {**mpi.environment, **WAITING_VARIABLES, "PYTHONPATH": environment["PYTHONPATH"]}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        sys.exit(f"{job}\n{done.stdout}{done.stderr}")


@dataclass(slots=True)
class Judged:
    """One recorded run with the delay, against those without."""

    job: dict[str, Any]
    recorded_ms: float
    error: float  # of the replay
    told_ms: float
    low_ms: float
    high_ms: float
    truths_ms: list[float]
    is_named: bool  # no other rank saves more
    missed_median: float  # of the median step, which a burst of other programs does not change

    @property
    def truth_ms(self) -> float:
        return float(np.mean(self.truths_ms))

    @property
    def missed(self) -> float:
        return self.told_ms / self.truth_ms - 1

    @property
    def is_covered(self) -> bool:
        return self.low_ms <= self.truth_ms <= self.high_ms


def judge(job: dict[str, Any], folder: Path) -> list[Judged]:
    """What the runs with the delay say."""
    turns = [f"{which} {pair + 1}" for pair in range(job["pairs"]) for which in ("with", "without")]
    models = [model_of(Run(folder / turn).store(events=True)) for turn in turns]
    truths = [float(one.recorded_ns.mean()) / 1e6 for one in models[1::2]]
    median = float(np.mean([np.median(one.recorded_ns) for one in models[1::2]])) / 1e6
    return [_judged(job, model, truths, median) for model in models[::2]]


def _judged(job: dict[str, Any], model: Model, truths: list[float], median_ms: float) -> Judged:
    change = Change("rank", ranks=(job["delay"][0],))
    (row,) = whatif(model, [change]).rows
    told, base = float(row[1] or 0) / 1e6, float(model.replayed_ns.mean()) / 1e6
    low, high = float(row[2] or 0) / 1e6, float(row[3] or 0) / 1e6
    steps = {rank: float(model.changed_ns([Change("rank", ranks=(rank,))]).mean()) for rank in model.ranks}
    error = float(np.median(model.errors))
    named = min(steps, key=lambda rank: steps[rank]) == job["delay"][0]
    missed_median = float(np.median(model.changed_ns([change]))) / 1e6 / median_ms - 1
    return Judged(job, base, error, told, low, high, truths, named, missed_median)


def line(one: Judged) -> str:
    """A row of the table."""
    job, (rank, delay_ms, where) = one.job, one.job["delay"]
    by = "" if job["kind"] == "ddp" else f", {job['schedule' if job['kind'] == 'pipeline' else 'mpi']}"
    kind = f"{job['kind']}{by}"
    cells = (
        *(kind, job["ranks"], f"{delay_ms} ms of rank {rank} in {where}", f"{one.recorded_ms:.1f}"),
        *(
            f"{one.told_ms:.1f}",
            f"{one.low_ms:.1f} to {one.high_ms:.1f}",
            ", ".join(f"{ms:.1f}" for ms in one.truths_ms),
        ),
        *(f"{100 * one.missed:+.1f} %", "yes" if one.is_covered else "no", "yes" if one.is_named else "no"),
    )
    return f"| {' | '.join(map(str, cells))} |"


HEADINGS = (
    *("job", "ranks", "delay", "recorded ms", "predicted ms", "interval", "without the delay"),
    *("missed", "covered", "saves most"),
)


def summary(judged: Sequence[Judged]) -> list[str]:
    """By kind of job: how far off, and how often the interval has the truth."""
    lines = [
        "| jobs | runs with the delay | missed, median | p95 | largest | of the median step, median | p95 "
        "| in the interval | saves most |"
    ]
    lines.append(f"|{'---|' * 9}")
    for kind in (*KINDS, ""):
        mine = [one for one in judged if kind in ("", one.job["kind"])]
        if not mine:
            continue
        missed = np.abs([one.missed for one in mine])
        of_median = np.abs([one.missed_median for one in mine])
        cells = (
            *(kind or "all", len(mine), *(f"{100 * np.quantile(missed, at):.1f} %" for at in (0.5, 0.95, 1.0))),
            *(f"{100 * np.quantile(of_median, at):.1f} %" for at in (0.5, 0.95)),
            *(f"{np.mean([one.is_covered for one in mine]):.0%}", f"{np.mean([one.is_named for one in mine]):.0%}"),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _recorded(options: argparse.Namespace, number: int) -> None:
    """Run one of the jobs, unless it is there."""
    mpis = options.mpis.split(",")
    job = drawn(number, KINDS[number % len(KINDS)], options.steps, options.seed, mpis, options.nice)
    folder = options.folder / f"{number:03}"
    if (
        job["kind"] not in options.kinds.split(",")
        or (folder / "job.json").exists()
        or time.monotonic() > options.until
    ):
        return
    shutil.rmtree(folder, ignore_errors=True)  # of one that was broken off
    for turn in range(2 * options.pairs):
        record(job, turn, folder / f"{('with', 'without')[turn % 2]} {turn // 2 + 1}")
    (folder / "job.json").write_text(
        json.dumps({**job, "pairs": options.pairs, "load": os.getloadavg()[0], "at": time.time()})
    )
    print(f"{folder} {job['kind']}: recorded, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("folder", type=Path, metavar="FOLDER")
    made.add_argument("--jobs", type=int, default=60)
    made.add_argument("--steps", type=int, default=30)
    made.add_argument("--pairs", type=int, default=2, help="runs with the delay and without it, of each job")
    made.add_argument("--seed", type=int, default=19)
    made.add_argument("--mpis", default="mpich", help="openmpi,mpich,impi; on a busy machine ranks that spin are slow")
    made.add_argument("--kinds", default=",".join(KINDS))
    made.add_argument("--nice", type=int, default=0, help="niceness of the steps of the jobs, not of their start")
    made.add_argument("--lanes", type=int, default=1, help="jobs at a time")
    made.add_argument("--seconds", type=float, default=float("inf"), help="begin no job after so many")
    only = made.add_mutually_exclusive_group()
    only.add_argument("--judge", action="store_true", help="record nothing")
    only.add_argument("--record", action="store_true", help="judge nothing")
    made.add_argument("--out", type=Path, metavar="FILE")
    options = made.parse_args()
    options.until = time.monotonic() + options.seconds
    with ThreadPoolExecutor(options.lanes) as lanes:
        list(lanes.map(lambda number: _recorded(options, number), range(0 if options.judge else options.jobs)))
    if options.record:
        return
    told = sorted(options.folder.glob("*/job.json"))
    jobs = [(json.loads(path.read_text()), path.parent) for path in told]
    jobs = [one for one in jobs if one[0]["kind"] in options.kinds.split(",")]
    with ProcessPoolExecutor() as pool:
        judged = [one for both in pool.map(judge, *zip(*jobs, strict=True)) for one in both]
    rows = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}", *map(line, judged)]
    loads = [job["load"] for job, _ in jobs]
    lines = [*summary(judged), "", f"Load while they ran: {min(loads):.1f} to {max(loads):.1f}.", "", *rows]
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
