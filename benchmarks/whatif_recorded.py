"""Does the replay give back the steps of every recorded run?

    python benchmarks/whatif_recorded.py FOLDER_OR_ARCHIVE... [--out FILE]

Of every run below the folders, or in the archives, that has steps: the error of the replay, and that with usual
transfers (docs/reference/metrics.md#whatif).
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rankscope.api.run import Run
from rankscope.model.tables import Wrong
from rankscope.questions.whatif.whatif import model_of


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The folder, or what an archive holds."""
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory() as folder, tarfile.open(path) as packed:
        packed.extractall(folder, filter="data")
        yield Path(folder)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("places", nargs="+", type=Path)
    made.add_argument("--out", type=Path, metavar="FILE")
    options = made.parse_args()
    found: list[tuple[int, float, float]] = []
    without = 0
    for place in options.places:
        with unpacked(place) as folder:
            for run in sorted(path.parent for path in folder.rglob("run.json")):
                try:
                    model = model_of(Run(run).store(events=True))
                except Wrong as problem:
                    without += 1
                    print(f"{run.relative_to(folder)}: {problem}", file=sys.stderr, flush=True)
                    continue
                found.append((len(model.ranks), float(np.median(model.errors)), model.usual_error() or 0.0))
                told = f"{100 * found[-1][1]:.2f} %, with usual transfers {100 * found[-1][2]:.2f} %"
                print(f"{run.relative_to(folder)}: {found[-1][0]} ranks, {told}", file=sys.stderr, flush=True)
    lines = []
    for title, mine in (
        ("one rank", [one for one in found if one[0] == 1]),
        ("several ranks", [one for one in found if one[0] > 1]),
    ):
        if not mine:
            continue
        errors, usual = (np.array([one[at] for one in mine]) for at in (1, 2))
        shares = [f"{100 * value:.2f} %" for value in (errors.max(), np.median(usual), usual.max())]
        lines.append(f"| {len(mine)} | {title} | {' | '.join(shares)} |")
    lines.append(f"\n{without} runs have no steps.")
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
