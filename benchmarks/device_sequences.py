"""Random programs of HIP (on a stand-in of rocprofiler-sdk) and of OpenCL (on PoCL), recorded, against what they did.

`.venv/bin/python benchmarks/device_sequences.py hip --count 10000` and `… opencl --count 300`; each writes its part of
benchmarks/results/device_sequences.md. Tests do some hundreds of the same. `--first N`: other programs than those of
the table, which stays as it is."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
RESULTS = ROOT / "benchmarks" / "results" / "device_sequences.md"
HIP_ENDS = ("return", "kill", "quick", "sdk", "fork")
HEAD = """# Random programs of devices
`benchmarks/device_sequences.py` on {where}. Each program prints the calls it made (with errors) and the work it
launched; different is one whose calls, work, bytes, ranges or device time are not those recorded. Device time of HIP is
scripted and must be equal to the nanosecond; of programs that were killed calls alone are compared. Device time of
OpenCL's profiled queues must be equal to the nanosecond to what the program's own events say; of others it sees none.

| programs | count | calls | kernels, copies, memsets | device s | different | took s |
|---|---:|---:|---:|---:|---:|---:|
"""
OPENCL_KINDS = ("profiled", "hidden", "unordered", "threads")


def hip(seeds: range, workers: int) -> list[str]:
    """A line for each version of the SDK's records."""
    from native.rocm import hip_runs

    lines = []
    for shown, version in hip_runs.VERSIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "program").mkdir()
            starter = hip_runs.make_program(Path(folder) / "program", version)
            sums: Counter[str] = Counter()

            def one(seed: int, starter: Path = starter, folder: str = folder, sums: Counter[str] = sums) -> list[str]:
                end, place = HIP_ENDS[seed % len(HIP_ENDS)], Path(folder) / str(seed)
                told = hip_runs.run(starter, place, seed, 20 + seed % 80, 1 + seed % 4, end)
                sums["calls"] += sum(calls for calls, _ in told.calls.values())
                sums["work"] += sum(work[0] for work in told.works.values())
                sums["ns"] += sum(work[2] for work in told.works.values())
                wrong = hip_runs.differences(told, hip_runs.Recorded(place), end)
                for path in place.rglob("*.rank"):
                    path.unlink()
                return [f"{seed}: {text}" for text in wrong]

            lines.append(
                told_line(
                    f"HIP, rocprofiler-sdk {shown}", one, seeds[: len(seeds) // len(hip_runs.VERSIONS)], workers, sums
                )
            )
    return lines


def opencl(seeds: range, workers: int) -> list[str]:
    """A line for each kind of queue; of profiled ones device time is compared, too."""
    from native.opencl import opencl_runs

    found, lines = opencl_runs.find_opencl(), []
    with tempfile.TemporaryDirectory() as folder:
        program = opencl_runs.make_program(Path(folder))
        opencl_runs.run(program, found, None, "profiled", 1, 5)
        for kind in OPENCL_KINDS:
            sums: Counter[str] = Counter()

            def one(seed: int, kind: str = kind, sums: Counter[str] = sums) -> list[str]:
                place = Path(folder) / f"{kind}-{seed}"
                place.mkdir()
                told = opencl_runs.run(program, found, place, kind, seed, 40)
                recorded = opencl_runs.Recorded(place)
                sums["calls"] += sum(calls for calls, _ in told.calls.values())
                sums["work"] += sum(work[0] for work in told.works.values())
                sums["ns"] += sum(work[2] for work in recorded.works.values())
                wrong = [] if recorded.calls == told.calls else [f"{kind} {seed}: calls"]
                same = (
                    recorded.works == told.works
                    if kind == "profiled"
                    else recorded.counts() == {name: work[:2] for name, work in told.works.items()}
                )
                return wrong if same else [*wrong, f"{kind} {seed}: {recorded.works} != {told.works}"]

            lines.append(
                told_line(f"OpenCL, PoCL, queue: {kind}", one, seeds[: len(seeds) // len(OPENCL_KINDS)], workers, sums)
            )
    return lines


def told_line(what: str, one: object, seeds: range, workers: int, sums: Counter[str]) -> str:
    began = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        wrong = [text for found in pool.map(one, seeds) for text in found]  # type: ignore[arg-type]
    for text in wrong[:20]:
        print(text, file=sys.stderr)
    took_s = time.monotonic() - began
    done = f"{sums['calls']:,} | {sums['work']:,} | {sums['ns'] / 1e9:.3f}"
    return f"| {what} | {len(seeds):,} | {done} | {len(wrong)} | {took_s:.0f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("hip", "opencl"))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first", type=int, help="the first seed; the table is then left as it is")
    options = parser.parse_args()
    seeds = range(options.first or 0, (options.first or 0) + options.count)
    lines = hip(seeds, options.workers) if options.what == "hip" else opencl(seeds, options.workers)
    if options.first is None:
        write(options.what, lines)
    print("\n".join(lines))
    return int(any(line.split("|")[6].strip() != "0" for line in lines))


def write(what: str, lines: list[str]) -> None:
    """The rows of this part, in place of those of an earlier run."""
    before = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = [line for line in before if line.startswith("| HIP" if what == "opencl" else "| OpenCL")]
    where = f"{os.cpu_count()} processors ({platform.machine()}), {date.today()}"
    RESULTS.write_text(HEAD.format(where=where) + "\n".join(sorted([*rows, *lines])) + "\n")


if __name__ == "__main__":
    sys.exit(main())
