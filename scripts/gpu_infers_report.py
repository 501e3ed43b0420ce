"""gpu_infers_report.py RUN OUTPUT [BARE …]: what recording cost a program that only infers (gpu_programs/infers.py).

Half seconds that lie in a window of recording, those between windows and those before the first one: values a second,
and how much slower all of it is than between windows. BARE: outputs of the same program, not recorded, to see by how
much processes differ by themselves. Needs rankscope's own environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from rankscope.rank_file import ChunkKind
from rankscope.rank_files.chunks import open_rank_file
from rankscope.rank_files.clock import Clock, CuptiClock
from rankscope.rank_files.cuda import cuda_rows_of

WARM_S = 1.5  # of the program, in which its kernels are loaded
Slice = tuple[float, float, float]  # begin, end, values a second


def slices_of(path: Path) -> list[Slice]:
    slices = []
    for line in path.read_text().splitlines():
        if line.startswith("slice "):
            end_s, length_s, values = map(float, line.split()[1:])
            slices.append((end_s - length_s, end_s, values / length_s))
    first_s = slices[0][0]
    return [one for one in slices if one[0] >= first_s + WARM_S]


def windows_of(run: Path) -> list[tuple[float, float]]:
    """In Unix seconds; one that never ended lasts for ever."""
    (path,) = run.glob("ranks/*/*.rank")
    file = open_rank_file(path)
    how, _, _ = cuda_rows_of(file)
    clock = CuptiClock(Clock(file.header), how)
    rows = [row for part in file.parts(ChunkKind.WINDOWS) for row in part.rows if row["number"]]
    windows = [(float(clock.unix_ns(row["begin_ns"])) / 1e9, float(clock.unix_ns(row["end_ns"])) / 1e9) for row in rows]
    if how[0]["window_begin_ns"]:
        windows.append((float(clock.unix_ns(how[0]["window_begin_ns"])) / 1e9, float("inf")))
    return sorted(windows)


def main() -> int:
    run, output, *bare = map(Path, sys.argv[1:])
    slices, windows = slices_of(output), windows_of(run)
    inside = [rate for begin, end, rate in slices if any(a <= begin and end <= b for a, b in windows)]
    outside = [rate for begin, end, rate in slices if all(end <= a or begin >= b for a, b in windows)]
    before = [rate for _, end, rate in slices if not windows or end <= windows[0][0]]
    every = [rate for _, _, rate in slices]
    recorded_s = sum(min(b, slices[-1][1]) - a for a, b in windows)
    print(f"{len(windows)} windows, {recorded_s:.1f} s of {slices[-1][1] - slices[0][0]:.1f} s")
    for name, rates in (("before", before), ("in windows", inside), ("outside", outside), ("all", every)):
        if rates:
            print(f"  {name:10} {median(rates):8.1f} values/s in the median, mean {sum(rates) / len(rates):.1f}")
    if outside:
        print(f"  all ÷ outside, time a value: {sum(outside) / len(outside) * len(every) / sum(every):.4f}")
    for path in bare:
        rates = [rate for _, _, rate in slices_of(path)]
        print(f"  {path.name}: {median(rates):.1f} values/s in the median, mean {sum(rates) / len(rates):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
