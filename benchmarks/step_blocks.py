"""Blocks of steps: what keeping them costs a step, and what they tell of long jobs.

    python benchmarks/step_blocks.py --out benchmarks/results/step_blocks.md

Instructions are counted by valgrind (callgrind), so that a busy machine does not matter. Jobs are simulated step by
step (four ranks that wait for the slowest), their blocks made by the recorder's own code, and read from rank files.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]
RANKS, STEP_MS, COUNTED = 4, 10.0, (20_000, 200_000)
WITHIN = 10  # steps
SMALL_RING = 32  # steps: no blocks
JOBS = ((20_000, 12), (100_000, 12), (1_000_000, 4))  # steps, jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "step_blocks.md")
    parser.add_argument("--jobs", type=int, default=12, help="of each length, at most")
    options = parser.parse_args()
    lines = head() + costs() + accuracy(options.jobs)
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def head() -> list[str]:
    system = (
        f"{platform.machine()}, Linux {'.'.join(platform.release().split('.')[:2])}, Python {platform.python_version()}"
    )
    return ["# Blocks of steps", f"`benchmarks/step_blocks.py`, {time.strftime('%Y-%m-%d')}: {system}.", ""]


# ---------------------------------------------------------------- cost
def costs() -> list[str]:
    from rankscope.rank_file import STEP_BLOCK
    from runs import long_runs

    lines = [
        "## Cost",
        "| steps of the job | instructions a step, for its blocks | kept, bytes | kept in 1,000 steps, bytes |",
    ]
    lines.append("|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        program = long_runs.compiled(Path(folder) / "counted", "-DCOUNTED")
        for steps in (1_000, 10_000, *COUNTED):
            with_blocks, without = (instructions(program, steps, ring) for ring in (long_runs.RING, SMALL_RING))
            bytes_kept = blocks_of_constant(steps) * STEP_BLOCK.itemsize
            each = (with_blocks - without) / steps
            lines.append(f"| {steps:,} | {each:.0f} | {bytes_kept:,} | {1000 * bytes_kept / steps:,.0f} |")
    lines += ["", "Instructions: those of the same steps in a ring that is too small for blocks are taken off."]
    return [*lines, ""]


def instructions(program: Path, steps: int, ring: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program), str(steps), str(ring)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counted = re.search(r"Collected : (\d+)", done.stderr)
    assert counted is not None, done.stderr
    return int(counted[1])


def blocks_of_constant(steps: int) -> int:
    from runs import long_runs

    rows = long_runs.steps_of(np.full(steps, STEP_MS), np.zeros(steps))
    return int((long_runs.blocks_of(rows)["steps"] > 0).sum())


# ---------------------------------------------------------------- accuracy
def accuracy(most: int) -> list[str]:
    lines = [
        "## Slow-downs of long jobs",
        "| steps | jobs | slow-downs | found | onset within 10 steps | worst onset "
        "| rank and part right | false alarms |",
    ]
    lines.append("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for steps, jobs in JOBS:
        sums = np.zeros(6, np.int64)
        worst = 0
        for seed in range(min(jobs, most)):
            counts, farthest = job(steps, seed)
            sums += counts
            worst = max(worst, farthest)
        planted, found, near, right, false, _ = sums
        lines.append(f"| {steps:,} | {min(jobs, most)} | {planted} | {found} | {near} | {worst} | {right} | {false} |")
    note = (
        "Half of the jobs have steps that are independent of each other (3 %), half such that resemble the one before "
        "(0.7), all now and then a long one. A slow-down takes 15 to 60 % longer, on one rank in one part, for 200 to "
        "2,000 steps, or to the end; every fourth job has none."
    )
    return [*lines, "", note]


def job(steps: int, seed: int) -> tuple[Any, int]:
    """Planted, found, near, right, false alarms; and how far the worst onset is off."""
    from rankscope.questions.steps.slowdowns import slowdowns_of
    from rankscope.rank_file import Part

    random = np.random.default_rng(seed)
    planted = [] if seed % 4 == 3 else plan(random, steps)
    parts = (Part.FORWARD, Part.BACKWARD)
    with tempfile.TemporaryDirectory() as folder:
        tables = recorded(Path(folder), random, steps, planted, parts[seed % 2], alike=0.7 if seed % 2 else 0.0)
        told = slowdowns_of(tables)
    counts, worst = np.zeros(6, np.int64), 0
    counts[0] = len(planted)
    for first, last, who, _ in planted:
        matching = [slow for slow in told if slow.first < last and slow.last >= first]
        if matching:
            slow = matching[0]
            told.remove(slow)
            worst = max(worst, abs(slow.first - first))
            right = slow.ranks == (who,) and slow.part == parts[seed % 2].name.lower()
            counts[1:4] += (1, abs(slow.first - first) <= WITHIN, right)
    counts[4] = len(told)
    return counts, worst


def plan(random: Any, steps: int) -> list[tuple[int, int, int, float]]:
    """First and last step, rank, ms; apart from each other."""
    places = np.sort(random.choice(np.arange(1, steps // 5_000), 2, replace=False)) * 5_000
    planted = []
    for at, place in enumerate(places):
        first = int(place + random.integers(0, 1_500))
        last = steps + 1 if at and random.random() < 0.3 else first + int(random.integers(200, 2_000))
        planted.append((first, last, int(random.integers(0, RANKS)), STEP_MS * float(random.uniform(0.15, 0.6))))
    return planted


def recorded(folder: Path, random: Any, steps: int, planted: Any, part: Any, alike: float) -> Any:
    from runs import long_runs
    from runs.step_runs import opened, rank

    own = np.stack([STEP_MS * noise(random, steps, alike) for _ in range(RANKS)])
    for first, last, who, longer_ms in planted:
        own[who, first - 1 : last - 1] += longer_ms
    length = own.max(axis=0) + 1
    made = []
    for number in range(RANKS):
        each = rank(number, RANKS)
        rows = long_runs.steps_of(own[number], length - own[number], part)
        each.steps(rows[-long_runs.RING :], capacity=long_runs.RING)
        each.step_blocks(long_runs.blocks_of(rows))
        made.append(each)
    return opened(folder, *made)


def noise(random: Any, count: int, alike: float, spread: float = 0.03) -> Any:
    """Around 1; `alike`: how much a step resembles the one before; 1 in 500 takes three times as long."""
    values = random.normal(0, spread * (1 - alike**2) ** 0.5, count)
    if alike:
        reach = alike ** np.arange(40)
        values = np.convolve(values, reach)[:count]
    made = np.exp(values)
    made[random.random(count) < 0.002] *= 3
    return made


if __name__ == "__main__":
    main()
