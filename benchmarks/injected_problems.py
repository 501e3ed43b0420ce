"""Is the problem that was put into a job the first finding, and does removing it save what the finding says?

    python benchmarks/injected_problems.py --rounds 3 --out benchmarks/results/injected_problems.md

Each program runs with its problem and without it, by turns, both recorded; the loop's time is what the program prints.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]
PROGRAMS = ROOT / "tests" / "programs"


@dataclass
class Case:
    """A program with one problem, and the rule that is to find it."""

    program: str
    problem: str
    what: str  # was put in
    rule: str
    ranks: int = 2
    before: tuple[str, ...] = ()  # a command that starts each rank with the problem
    predicted_s: list[float] = field(default_factory=list)
    with_s: list[float] = field(default_factory=list)
    without_s: list[float] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    is_right: list[bool] = field(default_factory=list)


TORCH, MPI = "one_problem.py", "one_problem_mpi.py"
CASES = [
    Case(TORCH, "buffers", "rank 0 late, BatchNorm's broadcasts wait", "straggler"),
    Case(TORCH, "tensor_parallel", "rank 1 late, DTensor's collectives wait", "straggler"),
    Case(TORCH, "fully_sharded", "rank 1 late, FSDP2's collectives wait", "straggler"),
    Case(TORCH, "late_forward", "rank 1 late, DDP's buckets wait", "straggler"),
    Case(TORCH, "uneven_batches", "rank 1 has longer samples", "straggler"),
    Case(TORCH, "loader", "all loaders slow", "data_bound"),
    Case(TORCH, "garbage", "all ranks collect garbage in each step", "gc_bound"),
    Case(TORCH, "checkpoints", "a checkpoint after each fourth step", "checkpointing"),
    Case(TORCH, "compiled", "shapes change, torch compiles again", "recompiling"),
    Case(TORCH, "exposed", "16 MB are reduced in each step", "exposed_communication"),
    Case(TORCH, "stall", "rank 1 stands still once", "stalled"),
    Case(MPI, "nonblocking", "rank 1 late, MPI_Wait of MPI_Iallreduce waits", "straggler"),
    Case(MPI, "stall", "rank 1 stands still once", "stalled"),
    Case(MPI, "oversubscribed", "two ranks on one CPU", "oversubscribed", before=("taskset", "-c", "0")),
]


def main() -> None:
    options = parse()
    chosen = [one for one in CASES if not options.only or f"{one.program}:{one.problem}" in options.only]
    for turn in range(options.rounds):
        for one in chosen:
            measure(one)
            print(f"round {turn + 1}: {one.problem}: {one.first[-1]}", flush=True)
    text = "\n".join(document(chosen, options.rounds)) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    print(text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], metavar="PROGRAM:PROBLEM")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def measure(case: Case) -> None:
    """Once with the problem and once without."""
    import rankscope

    with tempfile.TemporaryDirectory() as folder:
        case.with_s.append(run(case, Path(folder) / "with", on=True))
        case.without_s.append(run(case, Path(folder) / "without", on=False))
        table = rankscope.open(Path(folder) / "with").table("findings")
        found = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    first = found[0] if found else None
    case.first.append(first["finding"] if first else "none")
    case.is_right.append(bool(first) and first["rule"] == case.rule)
    case.predicted_s.append((first["saved_ns"] or 0) / 1e9 if first else 0.0)


def run(case: Case, folder: Path, on: bool) -> float:
    """The longest loop of any rank."""
    program = [str(PROGRAMS / case.program), case.problem, *([] if on else ["--without"])]
    record = [sys.executable, "-m", "rankscope", "run", "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    if case.program == TORCH:
        python = ROOT / ".envs" / "torch" / "bin" / "python"
        launch = [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)]
        command = [*record, *launch, *program]
    else:
        bin_folder = ROOT / ".envs" / "openmpi" / "bin"
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        environment |= {**allowed, "OMPI_MCA_mpi_yield_when_idle": "1"}
        launch = [str(bin_folder / "mpirun"), "--oversubscribe", "--bind-to", "none", "-n", str(case.ranks)]
        command = [*launch, *(case.before if on else ()), *record, str(bin_folder / "python"), *program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case.problem} ended with {done.returncode}:\n{done.stderr}")
    return max(map(float, re.findall(r'"loop_s": ([\d.]+)', done.stdout)))  # lines of two ranks may be one


def document(cases: list[Case], rounds: int) -> list[str]:
    right = sum(sum(one.is_right) for one in cases)
    whole = rounds * len(cases)
    lines = [
        "# Injected problems",
        f"`benchmarks/injected_problems.py --rounds {rounds}`: medians of {rounds} rounds on {os.cpu_count()} CPUs, "
        f"which other programs used, too. The first finding was the injected problem in {right} of {whole} runs.",
        "",
        "| put in | first finding | right | predicted, s | saved, s | predicted ÷ saved | loop with → without, s |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for one in cases:
        saved = median(a - b for a, b in zip(one.with_s, one.without_s, strict=True))
        predicted = median(one.predicted_s)
        at = min(range(rounds), key=lambda turn: abs(one.predicted_s[turn] - predicted))
        lines.append(
            f"| {one.what} | {one.first[at]} | {sum(one.is_right)}/{rounds} | {predicted:.2f} | {saved:.2f} | "
            f"{predicted / saved:.2f} | {median(one.with_s):.2f} → {median(one.without_s):.2f} |"
        )
    return lines


if __name__ == "__main__":
    main()
