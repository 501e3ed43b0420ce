"""Is the right rank named for the right cause? Real DDP jobs on Gloo with causes that only this script knows.

    python benchmarks/causes.py --python .envs/torch/bin/python --ranks 2-8 --cases 29 --steps 50

One job for each number of ranks; it goes through its cases one after the other, so many steps each. The analysis is
given the steps of one case at a time, without those in which it begins.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "tests" / "causes")]

from schedule import SETTLING_STEPS, Window, windows_of  # noqa: E402

from causes.scores import Scores  # noqa: E402
from rankscope.analyse.causes import Cause, cause_of  # noqa: E402
from rankscope.analyse.lateness import late_ranks  # noqa: E402
from rankscope.analyse.step_data import Steps, steps_of  # noqa: E402
from rankscope.readers.rankfile import read_rank_file  # noqa: E402
from rankscope.store.run import open_run  # noqa: E402

PROGRAM = ROOT / "tests" / "causes" / "train_ddp.py"


def main() -> None:
    options = parse()
    first, _, last = options.ranks.partition("-")
    scores = Scores()
    with tempfile.TemporaryDirectory() as kept:
        for ranks in range(int(first), int(last or first) + 1):
            folder = (options.keep or Path(kept)) / f"{ranks}-ranks"
            begun = time.monotonic()
            if not folder.exists():
                record(folder, ranks, options)
            judge(folder, ranks, options, scores)
            print(f"{ranks} ranks: {options.cases} cases in {time.monotonic() - begun:.0f} s", flush=True)
    print("\n".join(scores.lines()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=ROOT / ".envs" / "torch" / "bin" / "python")
    parser.add_argument("--ranks", default="2-8")
    parser.add_argument("--cases", type=int, default=29, help="of each number of ranks")
    parser.add_argument("--steps", type=int, default=50, help="of a case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the runs there; those that are there are used"
    )
    return parser.parse_args()


def record(folder: Path, ranks: int, options: argparse.Namespace) -> None:
    """One job through all its cases, with the recorder on."""
    said = {"SEED": options.seed, "COUNT": options.cases, "STEPS": options.steps, "TRUTH": f"{folder}.truth"}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **{f"CASE_{name}": str(value) for name, value in said.items()}}
    environment["PYTHONPATH"] = str(ROOT / "src")
    start = [sys.executable, "-m", "rankscope", "run", "--out", str(folder)]
    launch = [str(options.python), "-m", "torch.distributed.run", "--master-port", str(29_500 + ranks)]
    subprocess.run([*start, *launch, "--nproc-per-node", str(ranks), str(PROGRAM)], env=environment, check=True)


def judge(folder: Path, ranks: int, options: argparse.Namespace, scores: Scores) -> None:
    """What the analysis says of each case, beside the truth."""
    found = steps_of(open_run(folder, read_rank_file))
    for window in windows_of(options.seed, ranks, options.cases, options.steps):
        cause = first_cause(found, window)
        told = (cause.late.rank, cause.name) if cause else None
        scores.add(window.told, told, ratios_of(folder, window, cause))
        if told != window.told:
            print(f"  {ranks} ranks, {window}: told {told} ({cause.evidence if cause else ''})")


def first_cause(found: Steps, window: Window) -> Cause | None:
    late = late_ranks(found.between(window.first + SETTLING_STEPS, window.last))
    return cause_of(late[0]) if late else None


def ratios_of(folder: Path, window: Window, cause: Cause | None) -> tuple[float, ...]:
    """Estimated ÷ true wait a step, in the cause and in all; a hog's is not known."""
    truth = Path(f"{folder}.truth.{window.first}")
    if cause is None or window.cause in ("", "hog") or not truth.exists():
        return ()
    held_ns = float(json.loads(truth.read_text(encoding="utf-8"))["held_ns"])
    return cause.ns / held_ns, cause.late.excess.value / held_ns


if __name__ == "__main__":
    main()
