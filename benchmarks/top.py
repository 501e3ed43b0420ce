"""What one look of `rankscope top` costs: live rank files of many ranks, brought on and looked at again and again.

python benchmarks/top.py [RANKS ...]
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from rankscope.api.live import LiveView, Watched  # noqa: E402
from rankscope.output.text import to_text  # noqa: E402
from rankscope.rank_files.facts import Here  # noqa: E402
from rankscope.store.folder import Job  # noqa: E402
from synthetic_law import SECOND, Law  # noqa: E402
from synthetic_live import LiveRun  # noqa: E402

SIZES = (4, 64, 256, 1024, 6144)
LOOKS = 5
BETWEEN_NS = SECOND // 2  # of the run's own time: 500 collectives


def measure(ranks: int) -> str:
    """Medians over the looks; bringing the files on in between, as recorders would, is not counted."""
    law = Law(ranks=ranks, collectives=4_000, tallies=200, log_capacity=1024, stragglers=(ranks // 2,))
    with tempfile.TemporaryDirectory() as name:
        run = LiveRun(Path(name) / "run", law)
        moment = [run.at(SECOND + BETWEEN_NS)]
        view = LiveView(Watched(run.folder, Job(), Here(now_ns=lambda: moment[0])), 0)
        looks, frames, walls = [], [], []
        for number in range(2, LOOKS + 2):
            moment[0] = run.at(SECOND + number * BETWEEN_NS + 60_000)
            began, wall = time.process_time(), time.perf_counter()
            view.look()
            looked = time.process_time()
            to_text(view.tables(40), 120)
            frames.append(time.process_time() - looked)
            looks.append(looked - began)
            walls.append(time.perf_counter() - wall)
    look, frame, wall = (statistics.median(times) * 1e3 for times in (looks, frames, walls))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    each = f"{(look + frame) / ranks:.2f}"
    return f"| {ranks:,} | {look:,.0f} | {frame:,.0f} | {each} | {wall:,.0f} | {memory:,.0f} |"


def main() -> int:
    print("| ranks | look, CPU ms | frame, CPU ms | both, CPU ms a rank | wall, ms | most memory, MB |")
    print("|---:|---:|---:|---:|---:|---:|")
    for ranks in [int(word) for word in sys.argv[1:]] or SIZES:
        print(measure(ranks), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
