"""Which table of a large run takes long, or much memory?

    python benchmarks/each_table.py [--ranks 2000] [--collectives 2000] [--steps 0] [--source DIR] [--table NAME …]

Writes a synthetic run (docs/inside/synthetic.md), lets one report read it, and then asks for one table after the
other, each in a process of its own: what is kept of the rank files is used, no answer is. Memory as in
many_ranks.py. `--source` takes another tree's `src`, so that two versions can be compared.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from many_ranks import ROOT, report

from rankscope.questions.registry import QUESTIONS
from synthetic_law import Law
from synthetic_run import write_run


def main() -> None:
    options = parser().parse_args()
    late = (options.ranks // 3,)
    law = Law(options.ranks, 12, options.collectives, stragglers=late, skew_ns=10**9, drift_ppm=30, steps=options.steps)
    print("| table | wall s | CPU s | peak MB |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="each-table-") as folder:
        run = write_run(Path(folder) / "run", law)
        time.sleep(3)  # a file that is not 2 s old is read again
        for name in ("waiting", *(options.table or QUESTIONS)):
            cost = report(run, "--table", name, source=options.source)
            shutil.rmtree(run / "tables" / "answers", ignore_errors=True)
            if name != "events":  # those are the rank files' own records, unpacked
                print(
                    f"| {name} | {cost.wall_s:.1f} | {cost.cpu_s:.1f} | {cost.largest_bytes / 1e6:,.0f} |", flush=True
                )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ranks", type=int, default=2_000)
    made.add_argument("--collectives", type=int, default=2_000, help="of each of them")
    made.add_argument("--steps", type=int, default=0, help="that each of them records")
    made.add_argument("--source", type=Path, default=ROOT / "src", help="the tree whose reports are measured")
    made.add_argument("--table", action="append", metavar="NAME", help="only this one, may be repeated")
    made.add_argument("--folder", type=Path, help="where the run is written (default: the folder for such files)")
    return made


if __name__ == "__main__":
    main()
