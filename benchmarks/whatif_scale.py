"""How long does `rankscope whatif --ideal` take of a run of thousands of ranks, and how much memory?

    python benchmarks/whatif_scale.py [--ranks 6144] [--collectives 10000] [--folder /tmp]

Writes a synthetic run (docs/inside/synthetic.md) with a straggler on clocks that disagree, and asks: CPU and wall time,
and the largest resident set of any process (ru_maxrss).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from synthetic_law import Law
from synthetic_run import write_run

ROOT = Path(__file__).parents[1]


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ranks", type=int, default=6144)
    made.add_argument("--collectives", type=int, default=10_000)
    made.add_argument("--folder", type=Path, help="where the run is written (default: the folder for such files)")
    options = made.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="whatif-") as folder:
        more = {"stragglers": (options.ranks // 3,), "skew_ns": 2 * 10**9, "drift_ppm": 30}
        write_run(Path(folder) / "run", Law(options.ranks, 12, options.collectives, **more))
        time.sleep(3)  # a file that is not 2 s old is read again
        for told in ("first", "second"):
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            command = [sys.executable, "-m", "rankscope", "whatif", str(Path(folder) / "run"), "--ideal"]
            done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{told}: exit {done.returncode}, {options.ranks:,} ranks × {options.collectives:,} collectives: "
                f"{time.perf_counter() - begun:.1f} s, CPU {cpu:.1f} s, largest process "
                f"{after.ru_maxrss / 1024:.0f} MB, "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
