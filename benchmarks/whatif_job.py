"""What does `rankscope whatif --without rank=N` say of a real job, and what does the job take without the delay?

    python benchmarks/whatif_job.py [--jobs 10] [--steps 60] [--out FILE]

Two and four ranks of DDP on Gloo (whatif_program.py), one of them delayed in a random part by a random time; each job
runs with the delay and without it, both recorded.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from rankscope.api.run import Run
from rankscope.questions.whatif.changes import Change
from rankscope.questions.whatif.whatif import Model, model_of, whatif

ROOT = Path(__file__).resolve().parent.parent
HEADINGS = (
    *("ranks", "delayed rank", "ms", "in", "recorded ms", "model error", "with usual transfers"),
    *("foretold ms", "measured ms", "missed", "in the interval", "named first"),
)


def recorded(folder: Path, ranks: int, steps: int, delay: tuple[object, ...]) -> Model:
    python = ROOT / ".envs" / "torch" / "bin" / "python"
    launch = [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    program = [str(ROOT / "benchmarks" / "whatif_program.py"), str(steps), *map(str, delay)]
    record = [sys.executable, "-m", "rankscope", "run", "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([*record, *launch, *program], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return model_of(Run(folder).store(events=True))


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--jobs", type=int, default=10)
    made.add_argument("--steps", type=int, default=60)
    made.add_argument("--out", type=Path, metavar="FILE")
    options = made.parse_args()
    drawn = random.Random(19)
    rows, missed = [], []
    for job in range(options.jobs):
        ranks = (2, 4)[job % 2]
        slow, delay_ms = drawn.randrange(ranks), drawn.uniform(10, 60)
        where = drawn.choice(["data", "forward", "backward", "optimizer"])
        with tempfile.TemporaryDirectory() as folder:
            model = recorded(Path(folder) / "with", ranks, options.steps, (slow, delay_ms, where))
            healthy = recorded(Path(folder) / "without", ranks, options.steps, ())
        change = Change("rank", ranks=(slow,))
        told, truth = float(model.changed_ns([change]).mean()) / 1e6, float(healthy.recorded_ns.mean()) / 1e6
        (row,) = whatif(model, [change]).rows
        base = float(model.replayed_ns.mean()) / 1e6
        inside = base * (1 - float(row[5] or 0)) <= truth <= base * (1 - float(row[4] or 0))
        named = next((str(one[0]) for one in whatif(model, []).rows if str(one[0]).startswith("rank")), "none")
        missed.append(abs(told - truth) / truth)
        cells = (
            *(ranks, slow, f"{delay_ms:.0f}", where, f"{base:.1f}", f"{100 * np.median(model.errors):.2f} %"),
            *(f"{100 * (model.usual_error() or 0):.1f} %", f"{told:.1f}", f"{truth:.1f}", f"{100 * missed[-1]:.1f} %"),
            *("yes" if inside else "no", "yes" if named == change.words else named),
        )
        rows.append(f"| {' | '.join(map(str, cells))} |")
        print(rows[-1], file=sys.stderr, flush=True)
    summary = f"Missed: median {100 * np.median(missed):.1f} %, p95 {100 * np.quantile(missed, 0.95):.1f} %."
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}", *rows, "", summary]
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
