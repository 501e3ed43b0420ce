"""Are what-ifs right? Jobs with one problem, simulated, against the same jobs without it.

    python benchmarks/whatif.py [--cases 100] [--unrecorded] [--large] [--out FILE]

Random data-parallel jobs and pipelines (tools/synthetic_operations.py) with a slow rank, stage or link, or none. Each:
the error of the replay, the step time foretold without the problem against the simulated one, and whether the problem
is the first that `rankscope whatif` names. --unrecorded: in half of the pipelines ranks also wait for each other where
the table has no operation, and only every fourth rank of a job is in its table. --large: tables of 64 and 128 ranks,
with time and memory.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from rankscope.api.load import LoadOptions, load
from rankscope.api.run import Run
from rankscope.questions.whatif.changes import Change
from rankscope.questions.whatif.whatif import Model, model_of, whatif
from synthetic_operations import Job, simulate, write

ALARM = 0.03  # of a step: a saving that would be called a problem


@dataclass
class Outcome:
    """One case."""

    kind: str
    error: float  # of the replay
    missed: float  # share by which the foretold step time is off
    named: bool  # the injected problem is the first rank, stage or link named
    alarm: bool  # of a healthy job: something is said to save more than ALARM


def drawn(random: np.random.Generator, kind: str, seed: int) -> tuple[Job, Change | None]:
    """A random job with that problem."""
    schedule = (
        str(random.choice(["ddp", "gpipe", "1f1b"]))
        if kind in ("rank", "none")
        else str(random.choice(["gpipe", "1f1b"]))
    )
    stages = 1 if schedule == "ddp" else int(random.integers(2, 9))
    data = int(random.integers(3, 9)) if schedule == "ddp" else int(random.integers(2, 5))
    job = Job(
        schedule, stages, data, int(random.integers(4, 17)), 12, noise=float(random.uniform(0.01, 0.05)), seed=seed
    )
    factor = float(random.uniform(1.2, 2.0))
    rank, stage = int(random.integers(job.ranks)), int(random.integers(stages))
    if kind == "rank":
        return Job(**{**vars(job), "slow_ranks": {rank: factor}}), Change("rank", ranks=(rank,))
    if kind == "stage":
        return Job(**{**vars(job), "slow_stages": {stage: factor}}), Change("stage", stages=(stage,))
    if kind == "link":
        return Job(**{**vars(job), "slow_links": {rank: 20 * factor}}), Change("rank", ranks=(rank,))
    return job, None


def modelled(job: Job, folder: Path) -> Model:
    path, run = folder / "table.parquet", folder / "run"
    write(path, job)
    loaded = load([str(path)], LoadOptions(out=run), lambda text: None, _no_bar)
    assert not loaded.problems, loaded.problems
    return model_of(Run(run).store(events=True))


class _no_bar:
    def __init__(self, files: object) -> None:
        pass

    def __enter__(self) -> object:
        return lambda place, done: None

    def __exit__(self, *problem: object) -> None:
        pass


def outcome(kind: str, job: Job, change: Change | None) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        model = modelled(job, Path(folder))
    truth = float(np.mean(simulate(job.healthy())[1])) * 1e9
    told = model.changed_ns([change] if change else []).mean()
    rows = [(str(row[0]), float(row[5] or 0)) for row in whatif(model, []).rows]
    own = "stage" if kind == "stage" else "rank"
    fixes = [(words, share) for words, share in rows if words.startswith(own)]
    named = bool(change and fixes and fixes[0][0] == change.words)
    alarm = not change and any(share > ALARM for words, share in rows if words.startswith(("rank", "stage")))
    return Outcome(kind, float(np.median(model.errors)), abs(float(told) - truth) / truth, named, alarm)


def hidden(random: np.random.Generator, job: Job) -> Job:
    """Half of the pipelines with waits that no operation tells; numbers of ranks with gaps in any case."""
    return replace(job, unrecorded=bool(random.random() < 0.5) and job.stages > 1, tensor=4)


def cases(count: int, unrecorded: bool) -> list[str]:
    random = np.random.default_rng(19)
    kinds = ("rank", "stage", "link", "none")
    found = []
    for at in range(count):
        kind = kinds[at % len(kinds)]
        job, change = drawn(random, kind, at + 1)
        if unrecorded:
            job = hidden(random, job)
            change = change and replace(change, ranks=tuple(rank * job.tensor for rank in change.ranks))
        found.append(outcome(kind, job, change))
        print(at + 1, found[-1], file=sys.stderr, flush=True)
    lines = [
        "| problem | cases | model error, largest | missed, median | missed, p95 | missed, largest | named first |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        mine = [one for one in found if one.kind == kind]
        missed = np.array([one.missed for one in mine])
        shares = [
            f"{100 * value:.2f} %"
            for value in (max(one.error for one in mine), np.median(missed), np.quantile(missed, 0.95), missed.max())
        ]
        named = (
            f"{sum(one.named for one in mine)}" if kind != "none" else f"{sum(one.alarm for one in mine)} false alarms"
        )
        lines.append(f"| {kind} | {len(mine)} | {' | '.join(shares)} | {named} |")
    return lines


def large() -> list[str]:
    lines = [
        "| ranks | stages × data | rows | load s | whatif s | peak MB | model error | missed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for stages, data in ((8, 8), (8, 16), (16, 8)):
        job = Job("1f1b", stages, data, 16, 20, slow_ranks={stages * data // 2: 1.4})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.parquet"
            write(path, job)
            begun = time.perf_counter()
            load([str(path)], LoadOptions(out=Path(folder) / "run"), lambda text: None, _no_bar)
            loaded = time.perf_counter()
            tables = Run(Path(folder) / "run").store(events=True)
            rows = tables.query("SELECT count(*) FROM operations")[0][0]
            model = model_of(tables)
            whatif(model, [])
            done = time.perf_counter()
        truth = float(np.mean(simulate(job.healthy())[1])) * 1e9
        told = model.changed_ns([Change("rank", ranks=tuple(job.slow_ranks))]).mean()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cells = (
            job.ranks,
            f"{stages} × {data}",
            f"{rows:,}",
            f"{loaded - begun:.1f}",
            f"{done - loaded:.1f}",
            f"{peak:.0f}",
        )
        errors = f"{100 * np.median(model.errors):.2f} %", f"{100 * abs(told - truth) / truth:.2f} %"
        lines.append(f"| {' | '.join(map(str, (*cells, *errors)))} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--cases", type=int, default=100)
    made.add_argument("--unrecorded", action="store_true", help="ranks also wait where the table has no operation")
    made.add_argument("--large", action="store_true", help="tables of 64 and 128 ranks instead")
    made.add_argument("--out", type=Path, metavar="FILE")
    options = made.parse_args()
    lines = large() if options.large else cases(options.cases, options.unrecorded)
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
