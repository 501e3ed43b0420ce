"""Do other clocks change what is said of waiting and moving data? Real runs, read again with clocks that disagree.

    python benchmarks/clocks.py [--runs 60] [--shifts 12] [--seed 1] [--rooted] [--json FILE]

Records jobs of 2 to 8 ranks on Open MPI, MPICH, Intel MPI (all-reduces and barriers; with --rooted broadcasts and
reductions instead) and Gloo, of several message sizes, one rank late by 0 to 8 ms. Each log is read again with some
ranks on hosts that are ±2 s and ±50 ppm apart, and compared with itself on one clock.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from mpis import ROOT, find_mpi, job_environment
from programs import jobs
from rankscope.questions.collectives.clock_offsets import Clocks, clock_offsets
from rankscope.questions.collectives.matching import CollectiveLog
from rankscope.questions.collectives.wait_and_transfer import collectives_of, split
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run

STEPS = 120
SECOND, MICRO = 1e9, 1e3
LIBRARIES = ("openmpi", "mpich", "impi", "gloo")
PLAIN = ("Allreduce", "Allreduce", "Allreduce", "Barrier")
ROOTED = ("Bcast", "Reduce", "Bcast Reduce", "Allreduce Bcast Reduce Barrier")


@dataclass(frozen=True)
class Job:
    """What is run: which rank is late by how much, and what the ranks meet in."""

    library: str
    ranks: int
    late_rank: int
    late_ms: float
    elements: int
    names: str

    def record(self, folder: Path) -> None:
        if self.library == "gloo":
            return self._record_gloo(folder)
        mpi = find_mpi(self.library)
        mpi.environment["LATE_ELEMENTS"] = str(self.elements)
        names = self.names.split()
        told = (folder, str(STEPS // len(names)), str(self.late_rank), str(self.late_ms), *names)
        done = jobs.run(mpi, self.ranks, folder / "run", mpi.python, jobs.PROGRAMS / "late_rank.py", *told)
        if done.code:
            raise SystemExit(f"{self} failed: {done.err[-500:]}")

    def _record_gloo(self, folder: Path) -> None:
        binaries = ROOT / ".envs" / "torch" / "bin"
        environment = {**job_environment(binaries, {}), "PYTHONPATH": str(ROOT / "src")}
        ours = [sys.executable, "-m", "rankscope", "run", "--out", str(folder / "run"), str(binaries / "torchrun")]
        told = [str(STEPS), str(self.late_rank), str(self.late_ms), str(self.elements)]
        how = ["--standalone", "--nproc-per-node", str(self.ranks), str(jobs.PROGRAMS / "late_gloo.py"), *told]
        done = subprocess.run([*ours, *how], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{self} failed: {done.stderr[-500:]}")


@dataclass(frozen=True)
class Sums:
    wait_ns: float
    transfer_ns: float
    rest_ns: float  # stay - wait: moving by the clocks


@dataclass(frozen=True)
class Case:
    """One run with one set of other clocks: by what share each sum changed, and how far the clocks are off."""

    library: str
    names: str
    wait: float
    transfer: float
    rest: float
    away_ns: tuple[float, ...]
    error_ns: tuple[float, ...]


def any_job(chance: random.Random, rooted: bool) -> Job:
    library = chance.choice(LIBRARIES[:3] if rooted else LIBRARIES)
    ranks = chance.choice([2, 3, 4, 4, 6, 8])
    names = "Allreduce" if library == "gloo" else chance.choice(ROOTED if rooted else PLAIN)
    late_ms, elements = chance.choice([0, 0.5, 2, 8]), chance.choice([1, 1000, 1000, 100_000])
    return Job(library, ranks, chance.randrange(ranks), late_ms, elements, names)


def shifted(log: CollectiveLog, seed: int) -> tuple[CollectiveLog, list[int]]:
    """The same log as ranks on other hosts would have left it, and the host of each rank."""
    chance = np.random.default_rng(seed)
    hosts = int(chance.integers(1, 4))
    offset = np.array([0.0, *np.round(chance.uniform(-2, 2, hosts) * SECOND)])
    drift = np.array([0.0, *chance.uniform(-50e-6, 50e-6, hosts)])
    ranks = len(log.ranks)
    of = [0] + [int(chance.integers(1, hosts + 1)) if chance.random() < 0.7 else 0 for _ in range(ranks - 1)]
    if not any(of):
        of[int(chance.integers(1, ranks))] = 1
    changed = replace(log, hosts=[f"host{host}" for host in of], groups=[])
    for group in log.groups:
        host = np.array(of)[group.members]
        times = {
            name: np.round(getattr(group, name) * (1 + drift[host]) + offset[host]) for name in ("enter_ns", "end_ns")
        }
        changed.groups.append(replace(group, **times))
    return changed, of


def sums(log: CollectiveLog, clocks: Clocks) -> Sums:
    splits = [split(log, clocks, group) for group in log.groups]
    stay, wait = (float(sum(getattr(one, name).sum() for one in splits)) for name in ("stay_ns", "wait_ns"))
    return Sums(wait, float(sum(one.transfer_ns.sum() for one in splits)), stay - wait)


def judged(job: Job, log: CollectiveLog, seed: int) -> Case:
    true, (other, of) = sums(log, clock_offsets(log)), shifted(log, seed)
    clocks = clock_offsets(other)
    found = sums(other, clocks)
    away, error = [], []
    for clock in clocks.clocks[1:]:
        member = next(at for at, host in enumerate(of) if clock.name.startswith(f"host{host}"))
        moved, may_be = clock.to_reference(other.groups[0].enter_ns[:, member])
        off = np.abs(moved - log.groups[0].enter_ns[:, member])
        away.append(float(off.max()))
        error.append(float(may_be[int(np.argmax(off))]))
    return Case(
        job.library, job.names, found.wait_ns / true.wait_ns - 1, found.transfer_ns / true.transfer_ns - 1,
        found.rest_ns / true.rest_ns - 1, tuple(away), tuple(error),
    )  # fmt: skip


def table(cases: Sequence[Case]) -> str:
    lines = [
        "| library | runs × clocks | waiting within 10 % | moving within 10 % | worst | stay − waiting within 10 % "
        "| worst | clocks < 50 µs off or covered |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for library in [*sorted({case.library for case in cases}), "all"]:
        chosen = [case for case in cases if library in (case.library, "all")]
        columns = {name: np.abs([getattr(case, name) for case in chosen]) for name in ("wait", "transfer", "rest")}
        good = [
            away < 50 * MICRO or away <= error
            for case in chosen
            for away, error in zip(case.away_ns, case.error_ns, strict=True)
        ]
        within = {name: f"{np.mean(values < 0.1):.2%}" for name, values in columns.items()}
        worst = {name: f"{values.max():.2%}" for name, values in columns.items()}
        lines.append(
            f"| {library} | {len(chosen)} | {within['wait']} | {within['transfer']} | {worst['transfer']} "
            f"| {within['rest']} | {worst['rest']} | {sum(good)} of {len(good)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--shifts", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooted", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    cases: list[Case] = []
    for number in range(options.runs):
        job = any_job(chance, options.rooted)
        with tempfile.TemporaryDirectory() as folder:
            job.record(Path(folder))
            log = collectives_of(open_run(Path(folder) / "run", read_rank_file)).log
            if log.groups:
                cases += [judged(job, log, seed) for seed in range(options.shifts)]
        print(f"{number + 1} of {options.runs}: {job}", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(case) for case in cases]), encoding="utf-8")
    print(table(cases))


if __name__ == "__main__":
    main()
