"""gpu_savings.py FOLDER: what the first finding of each run of gpu_problems.sh promises, and what removing the problem
really saved, by turns in the same process before it was recorded. (To the recorder the turns are a slow start, which is
therefore left out.)"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import median

import rankscope

LINE = re.compile(r"(with|without) seconds ([0-9.]+) steps (\d+)")


def main() -> int:
    folder = Path(sys.argv[1])
    for turns in sorted(folder.glob("*.turns")):
        found = LINE.findall(turns.read_text())
        run = rankscope.open(folder / turns.stem)
        findings = run.table("findings").to_arrow().to_pylist()
        first = next((finding for finding in findings if finding["rule"] != "slow_start"), None)
        steps = run.query("SELECT max(number) FROM steps").rows[0][0]
        told = "nothing found"
        if first and first["saved_ns"] and steps:
            told = f"{first['rule']}: {first['saved_ns'] / steps / 1e6:.2f} ms a step"
        elif first:
            told = first["rule"]
        means = {
            which: [float(s) / int(n) * 1e3 for kind, s, n in found if kind == which] for which in ("with", "without")
        }
        if not means["without"]:
            print(f"{turns.stem:10} {told}; not timed without it")
            continue
        both = [median(means[which]) for which in ("with", "without")]
        saved = both[0] - both[1]
        spread = max(max(values) - min(values) for values in means.values())
        promised = first["saved_ns"] / steps / 1e6 if first and first["saved_ns"] and steps else None
        off = f", off by {100 * (promised / saved - 1):+.1f} %" if promised is not None else ""
        print(
            f"{turns.stem:10} {told}; really {saved:.2f} ms ({both[0]:.2f} with, {both[1]:.2f} without, "
            f"turns alike within {spread:.2f}){off}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
