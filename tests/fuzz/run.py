"""Mutated inputs over all readers: PYTHONPATH=tests python -m fuzz.run --count 100000 (see --help)."""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz.harness import LEAST_SECONDS, MOST_GROWTH_MIB, Findings, fuzz, try_input
from fuzz.seeds import collected
from mpis import ROOT

KEPT = ROOT / "build" / "fuzz"
MEMORY_BYTES = 4 << 30  # of address space: what asks for more gets a MemoryError, which is a failure


def main() -> int:
    options = parser().parse_args()
    jobs = options.jobs
    step = -(-options.count // jobs)
    work = [(options, range(start, min(start + step, options.count))) for start in range(0, options.count, step)]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        parts = pool.starmap(one_part, work)
    if options.save:
        (ROOT / "benchmarks/results/mutated_files.md").write_text(page(parts), encoding="utf-8")
    return told(parts)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--count", type=int, default=100_000, help="how many inputs (default 100,000)")
    made.add_argument("--seed", type=int, default=0, help="another seed gives other inputs")
    made.add_argument("--seconds", type=float, help="stop after so many seconds")
    made.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    made.add_argument("--format", action="append", default=[], help="only mutations of files of this format")
    made.add_argument("--save", action="store_true", help="write benchmarks/results/mutated_files.md")
    made.add_argument("--input", type=Path, help="give this one file, unmutated, to every reader")
    return made


def one_part(options: argparse.Namespace, numbers: range) -> Findings:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    until = time.monotonic() + options.seconds if options.seconds else None
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder, "input")
        if options.input is None:
            wanted = [one for one in collected() if not options.format or one.format in options.format]
            return fuzz(wanted, numbers, scratch, options.seed, until)
        return every_reader(options.input.read_bytes(), scratch)


def every_reader(data: bytes, scratch: Path) -> Findings:
    from random import Random

    from rankscope.formats.registry import FORMATS

    found = Findings()
    for name in FORMATS:
        try_input(data, name, Random(0), scratch, found)
    return found


HEAD = """# Mutated files
{date}, Python {python}. `PYTHONPATH=tests python -m fuzz.run {arguments}`: {inputs:,} damaged inputs, made of {seeds}
files (our own of every format, and real ones), each given to the reader it was made for, to all that recognise it and
to one that it is not meant for; {failures} kinds of failure (an exception other than `BadFile`, more than {seconds:g} s
of CPU time, more than {growth} MiB, an endless reading, an error of several lines).

Foreign lines: to each input of a format that is read line by line, one line that belongs to nothing was added at a
random place. It has to be counted in a note, to change the tables, or to be an error; inputs that are refused anyway
are not counted here.

| format | inputs | read | refused | failed | foreign lines | said | dropped in silence |
|---|---:|---:|---:|---:|---:|---:|---:|
"""


def page(parts: list[Findings]) -> str:
    """What came of it, as a table."""
    counts: Counter[tuple[str, str]] = sum((part.counts for part in parts), Counter())
    foreign: Counter[tuple[str, str]] = sum((part.foreign for part in parts), Counter())
    rows = []
    for name in sorted({name for name, _ in counts} - {"source"}):
        ends = [counts[name, end] for end in ("read", "refused", "failed")]
        lines = [foreign[name, end] for end in ("said", "dropped")]
        numbers = (sum(ends), *ends, sum(lines), *lines)
        rows.append(" | ".join([f"| {name}", *(f"{number:,}" for number in numbers)]) + " |")
    about = HEAD.format(
        date=time.strftime("%Y-%m-%d"),
        python=platform.python_version(),
        arguments=" ".join(sys.argv[1:]),
        inputs=sum(part.inputs for part in parts),
        seeds=len(collected()),
        failures=len({told for part in parts for _, _, told in part.failures}),
        seconds=LEAST_SECONDS,
        growth=MOST_GROWTH_MIB,
    )
    return about + "\n".join(rows) + "\n"


def told(parts: list[Findings]) -> int:
    counts: Counter[tuple[str, str]] = sum((part.counts for part in parts), Counter())
    for name in sorted({name for name, _ in counts}):
        print(f"{name:24}" + "".join(f"{counts[name, end]:10} {end}" for end in ("read", "refused", "failed")))
    slowest = max(part.slowest for part in parts)
    failures = {told: (data, name) for part in parts for data, name, told in part.failures}
    for text, (data, name) in failures.items():
        KEPT.mkdir(parents=True, exist_ok=True)
        path = KEPT / hashlib.blake2b(data, digest_size=6).hexdigest()
        path.write_bytes(data)
        print(f"FAILED {name}: {text}: {path}")
    inputs = sum(part.inputs for part in parts)
    print(f"{inputs} inputs, {len(failures)} kinds of failure, slowest {slowest[0]:.2f} s ({slowest[1]})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
