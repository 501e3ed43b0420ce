"""Are the bubbles of pipelines right, and is what is slow in them named? Real processes with torch's own pipelining.

    python benchmarks/pipelines.py [--balanced] [--cases 100] [--seed 0] [--lanes 2] [--log FILE] [--out FILE]

--balanced: GPipe, 1F1B and interleaved 1F1B × 2, 4, 8 stages × 4, 8, 16 micro-batches, whose passes sleep for a known
time, on Gloo; the recorded bubble against the analytic one. --cases: random pipelines with a slow stage, link or rank,
or nothing slow; what is named first against what was injected. --log keeps a line for each job, so that a run that was
interrupted goes on; --out writes the table of all that is in the log. --lanes jobs run at a time: they sleep.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.api.run import Run
from rankscope.questions.parallelism.bubbles import bubbles_of, slow_parts

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests" / "programs" / "pipelines.py"
TORCHRUN = ROOT / ".envs" / "torch" / "bin" / "torchrun"
KINDS = ("stage", "link", "rank", "none")


@dataclass(frozen=True)
class Job:
    """One pipeline."""

    schedule: str
    stages: int
    micro_batches: int
    replicas: int = 1
    forward_ms: float = 320.0  # long, so that messages and a busy machine add little
    slow: str = ""  # as the program takes it
    steps: int = 7
    nice: int = 0  # of the steps, not of the start

    @property
    def analytic_share(self) -> float:
        chunks = 2 if self.schedule == "interleaved" else 1
        return (self.stages - 1) / (chunks * self.micro_batches + self.stages - 1)


def balanced(nice: int, only: str) -> Iterator[Job]:
    for micro_batches in (4, 16, 8):
        for stages in (2, 4, 8):
            for schedule in ("gpipe", "1f1b", "interleaved"):
                if only and f"{schedule}-{stages}x{micro_batches}" not in only.split(","):
                    continue
                if schedule == "gpipe" or micro_batches >= stages:  # torch demands that of 1F1B, the formula of both
                    yield Job(schedule, stages, micro_batches, steps=5, nice=nice)


def random_jobs(count: int, seed: int, nice: int) -> Iterator[Job]:
    for case in range(count):
        random = np.random.default_rng([seed, case])
        kind = KINDS[case % len(KINDS)]
        schedule = str(random.choice(["gpipe", "1f1b", "interleaved"]))
        replicas = 2 if kind == "rank" else int(random.integers(1, 3))
        stages = int(random.integers(2, 5 if replicas == 2 else 7))
        micro_batches = int(random.integers(1, 4)) * stages
        micro_batches = max(4, micro_batches) if schedule != "interleaved" else micro_batches  # a multiple of stages
        slow = ""
        if kind == "stage":
            slow = f"stage={random.integers(stages)}:{random.uniform(1.4, 2.2):.2f}"
        elif kind == "rank":
            slow = f"rank={random.integers(stages * replicas)}:{random.uniform(1.4, 2.2):.2f}"
        elif kind == "link":
            first = int(random.integers(replicas)) * stages + int(random.integers(stages - 1))
            pair = (first, first + 1) if random.random() < 0.5 else (first + 1, first)
            slow = f"link={pair[0]}-{pair[1]}:{random.uniform(20, 40):.0f}"
        yield Job(schedule, stages, micro_batches, replicas, 15.0, slow, nice=nice)


def measured(job: Job, runs: Path | None) -> dict[str, Any]:
    """What the record of one run of it says: of a run that is kept there already, or a new one."""
    with tempfile.TemporaryDirectory() as passing:
        kept = runs / "-".join(str(value) for value in asdict(job).values()) if runs else Path(passing)
        if not (kept / "run").exists():
            record_job(job, kept)
        return told_of(kept / "run")


def record_job(job: Job, folder: Path) -> None:
    record = [sys.executable, "-m", "rankscope", "run", "--imports", "off", "--out", f"{folder}/run", "--"]
    launch = [str(TORCHRUN), "--standalone", "--nproc-per-node", str(job.stages * job.replicas), str(PROGRAM)]
    about = ["--schedule", job.schedule, "--micro-batches", str(job.micro_batches), "--stages", str(job.stages)]
    about += ["--forward-ms", str(job.forward_ms), "--steps", str(job.steps), "--slow", job.slow]
    about += ["--nice", str(job.nice)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([*record, *launch, *about], check=True, capture_output=True, env=environment, timeout=900)


def told_of(folder: Path) -> dict[str, Any]:
    found = bubbles_of(Run(folder).store(events=True))
    if found is None:
        return {"bubble": None, "named": ["no pipeline found"]}
    idle = [name for name in found.parts if name not in ("compute", "collective")]
    mean = {name: float(found.parts[name].mean() / found.window.mean()) for name in found.parts}
    lost = np.sum([found.parts[name] for name in idle], axis=0).mean(axis=(0, 1)) / found.window.mean(axis=0)
    slow = [f"{one.kind}={_where(one.kind, one.ranks, one.stage)}" for one in slow_parts(found)]
    return {
        "bubble": float(np.median(lost)),  # of the median step
        **mean,
        "found": [found.stages, found.micro_batches, found.chunks, len(found.pipelines)],
        "named": slow,
        "step_ms": float(found.window.mean() / 1e6),
        "load": os.getloadavg()[0],
    }


def _where(kind: str, ranks: tuple[int, ...], stage: int) -> str:
    return str(stage) if kind == "stage" else "-".join(map(str, ranks))


def is_named(job: Job, named: list[str]) -> bool:
    """Whether what was injected is named first; where nothing was, that nothing is."""
    return (named[0] == job.slow.partition(":")[0] if named else False) if job.slow else not named


def report(rows: list[tuple[Job, dict[str, Any]]]) -> str:
    """All that is in the log."""
    is_plain = [not job.slow and job.replicas == 1 and job.forward_ms == Job.forward_ms for job, _ in rows]
    load = np.mean([told["load"] for _, told in rows])
    lines = [
        "# Pipelines: bubbles, and what is slow in them",
        f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores that others used too (mean load {load:.0f}), "
        "`benchmarks/pipelines.py --balanced --cases N`: torch's own pipelining on Gloo. The passes sleep: a forward "
        f"pass {Job.forward_ms:g} ms (balanced) or 15 ms a micro-batch, a backward pass twice that. "
        f"Niceness of the steps: {', '.join(sorted({str(job.nice) for job, _ in rows}))}.",
    ]
    lines += _balanced_lines([one for one, plain in zip(rows, is_plain, strict=True) if plain])
    lines += _case_lines([one for one, plain in zip(rows, is_plain, strict=True) if not plain])
    return "\n".join(lines) + "\n"


def _balanced_lines(rows: list[tuple[Job, dict[str, Any]]]) -> list[str]:
    if not rows:
        return []
    lines = ["", "## Balanced stages: the recorded bubble of the median step against (p − 1) ÷ (v·m + p − 1)"]
    lines += ["| schedule | stages | micro-batches | analytic | recorded | off by | of it | transfer | imbalance |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    off, right = [], 0
    for job, told in rows:
        off.append(100 * (told["bubble"] - job.analytic_share))
        right += told["found"][:3] == [job.stages, job.micro_batches, 2 if job.schedule == "interleaved" else 1]
        lines.append(
            f"| {job.schedule} | {job.stages} | {job.micro_batches} | {100 * job.analytic_share:.1f} % | "
            f"{100 * told['bubble']:.2f} % | {off[-1]:+.2f} | {off[-1] / job.analytic_share:+.1f} % | "
            f"{100 * told['transfer']:.1f} % | {100 * told['imbalance']:.1f} % |"
        )
    near = sum(abs(one) <= 3 for one in off)
    relative = sum(abs(one) <= 3 * job.analytic_share for one, (job, _) in zip(off, rows, strict=True))
    lines += [
        "",
        f"Within 3 % of the analytic value itself: {relative} of {len(off)}; within 3 points (% of the step): {near}; "
        f"median {np.median(np.abs(off)):.2f} points, largest {np.abs(off).max():.2f}. "
        f"Stages, micro-batches and chunks found right: {right} of {len(off)}.",
    ]
    return lines


def _case_lines(rows: list[tuple[Job, dict[str, Any]]]) -> list[str]:
    if not rows:
        return []
    lines = [
        "",
        "## Random pipelines with one thing slow, or nothing",
        "| injected | cases | right |",
        "|---|---:|---:|",
    ]
    for kind in KINDS:
        mine = [is_named(job, told["named"]) for job, told in rows if (job.slow.partition("=")[0] or "none") == kind]
        lines.append(f"| {kind} | {len(mine)} | {sum(mine)} |")
    lines += ["", "Right: it is the first that is named; where nothing is slow, nothing is named.", ""]
    for job, told in rows:
        if not is_named(job, told["named"]):
            lines.append(
                f"- not right: {job.schedule}, {job.replicas} × {job.stages} stages, {job.micro_batches} "
                f"micro-batches, {job.slow or 'nothing slow'}: {', '.join(told['named']) or 'nothing'} named"
            )
    return lines


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--balanced", action="store_true")
    asked.add_argument("--only", default="", help="of the balanced ones: 1f1b-2x16,interleaved-2x16, …")
    asked.add_argument("--cases", type=int, default=0)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--lanes", type=int, default=1, help="jobs at a time")
    asked.add_argument("--nice", type=int, default=0, help="niceness of the steps of the jobs, not of their start")
    asked.add_argument("--seconds", type=float, default=float("inf"), help="begin no job after so many")
    asked.add_argument("--log", type=Path, default=Path("pipelines.jsonl"))
    asked.add_argument("--runs", type=Path, help="keep the recorded runs here, and take those that are there")
    asked.add_argument("--out", type=Path)
    options = asked.parse_args()
    done = [json.loads(line) for line in options.log.read_text().splitlines()] if options.log.exists() else []
    known = {Job(**one["job"]) for one in done}
    wanted = list(balanced(options.nice, options.only) if options.balanced else ())
    wanted += random_jobs(options.cases, options.seed, options.nice)

    until = time.monotonic() + options.seconds

    def measure(job: Job) -> None:
        began = time.monotonic()
        if began > until:
            return
        try:
            told = measured(job, options.runs)
        except subprocess.SubprocessError as error:
            print(f"not run: {job}: {error}", flush=True)  # the others go on; it is run when this is called again
            return
        with options.log.open("a") as log:
            log.write(json.dumps({"job": asdict(job), "told": told}) + "\n")
        print(f"{time.monotonic() - began:4.0f} s  {job}  {told}", flush=True)

    with ThreadPoolExecutor(options.lanes) as pool:
        list(pool.map(measure, [job for job in wanted if job not in known]))
    rows = [(Job(**one["job"]), one["told"]) for one in map(json.loads, options.log.read_text().splitlines())]
    if options.out:
        options.out.write_text(report(rows))
    else:
        print(report(rows))


if __name__ == "__main__":
    main()
