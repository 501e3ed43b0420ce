"""Is the right rank named for the right cause? Real DDP jobs on Gloo with causes that only this script knows.

    python benchmarks/causes.py --python .envs/torch/bin/python --ranks 2-8 --cases 29 --steps 50

One job for each number of ranks; it goes through its cases one after the other, so many steps each. The analysis is
given the steps of one case at a time, without those in which it begins.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

PROGRAM = ROOT / "tests" / "questions" / "stragglers" / "train_ddp.py"


def main() -> None:
    options = parse()
    first, _, last = options.ranks.partition("-")
    jobs = range(int(first), int(last or first) + 1)
    with tempfile.TemporaryDirectory() as kept:
        folders = {ranks: (options.keep or Path(kept)) / f"{ranks}-ranks" for ranks in jobs}
        for ranks, folder in folders.items():
            begun = time.monotonic()
            if not folder.exists():
                record(folder, ranks, options)
            print(f"{ranks} ranks: {options.cases} cases in {time.monotonic() - begun:.0f} s", flush=True)
        if not options.record_only:
            judge_all(folders, options)


def judge_all(folders: dict[int, Path], options: argparse.Namespace) -> None:
    """The scores of all jobs; what it needs is not needed for recording, and may be missing there."""
    from questions.stragglers.judging import judge
    from questions.stragglers.scores import Scores

    scores = Scores()
    for ranks, folder in folders.items():
        judge(folder, (options.seed, ranks, options.cases, options.steps, options.none_share), scores)
    print("\n".join(scores.lines()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=ROOT / ".envs" / "torch" / "bin" / "python")
    parser.add_argument("--ranks", default="2-8")
    parser.add_argument("--cases", type=int, default=29, help="of each number of ranks")
    parser.add_argument("--steps", type=int, default=50, help="of a case")
    parser.add_argument("--none-share", type=float, default=0.25, help="of cases in which nothing is wrong")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record-only", action="store_true", help="judge later, with the same --keep, anywhere")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the runs there; those that are there are used"
    )
    return parser.parse_args()


def record(folder: Path, ranks: int, options: argparse.Namespace) -> None:
    """One job through all its cases, with the recorder on."""
    said = {
        "NONE": options.none_share,
        "SEED": options.seed,
        "COUNT": options.cases,
        "STEPS": options.steps,
        "TRUTH": f"{folder}.truth",
    }
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **{f"CASE_{name}": str(value) for name, value in said.items()}}
    environment["PYTHONPATH"] = str(ROOT / "src")
    start = [sys.executable, "-m", "rankscope", "run", "--out", str(folder)]
    launch = [str(options.python), "-m", "torch.distributed.run", "--master-port", str(29_500 + ranks)]
    subprocess.run([*start, *launch, "--nproc-per-node", str(ranks), str(PROGRAM)], env=environment, check=True)


if __name__ == "__main__":
    main()
