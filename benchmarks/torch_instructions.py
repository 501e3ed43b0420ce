"""How many instructions does a step of a small training on two CPU ranks take, bare and recorded, and in which library?

    python benchmarks/torch_instructions.py [KIND ...] [--steps N] [--save]

callgrind counts rank 0 of benchmarks/framework_programs/torch_training.py (ddp, compiled, fsdp2, …) in its steady steps
alone: compiling, importing and the first steps are not among them. What differs by chance: Gloo's threads poll as long
as they wait for the other rank, and how the C library finds free memory hangs on the layout of the heap. Takes minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(__file__).resolve().parent / "framework_programs" / "torch_training.py"
RESULT = Path(__file__).resolve().parent / "results" / "torch_instructions.md"
STEPS, WARMUP = 20, 20
MARKS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""
NAMED = re.compile(r"^(c?)(ob|fl|fi|fe|fn)=\((\d+)\)(?: (.*))?$")
WHERE = {
    "rankscope: recorder": r"^librankscope",
    "rankscope: observer of torch": r"^torch-.*\.so$",
    "ctypes": r"^(_ctypes|libffi)",
    "Python": r"^(libpython|python|resource|libtorch_python)",
    "torch": r"^(libtorch_cpu|libc10|libgomp)",
    "C and C++ libraries": "",
}


def main() -> None:
    options = parse()
    if options.rank_0 is not None:
        raise SystemExit(start_ranks(options))
    lines = [
        "# Instructions of a step",
        f"`benchmarks/torch_instructions.py {' '.join(options.kinds)}`, {time.strftime('%d %B %Y')}: a steady step of "
        f"rank 0 of two, mean of {options.steps}, counted by callgrind (AVX2), in thousands.",
    ]
    for kind in options.kinds:
        bare, recorded = (per_step(kind, is_recorded, options) for is_recorded in (False, True))
        lines += ["", *table(kind, bare, recorded)]
    print("\n".join(lines))
    if options.save:
        RESULT.write_text("\n".join(lines) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=["ddp", "compiled"], metavar="KIND", help="of the trainings")
    parser.add_argument("--steps", type=int, default=STEPS, help="that are counted")
    parser.add_argument("--python", default=str(ROOT / ".envs" / "torch" / "bin" / "python"))
    parser.add_argument("--save", action="store_true", help=f"write benchmarks/results/{RESULT.name}")
    parser.add_argument("--rank-0", help=argparse.SUPPRESS)  # what counts it
    return parser.parse_args()


def per_step(kind: str, is_recorded: bool, options: argparse.Namespace) -> Counter[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "marks.c").write_text(MARKS)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "marks.so", folder / "marks.c"], check=True)
        command = [sys.executable, __file__, kind, "--steps", str(options.steps), "--python", options.python]
        command += ["--rank-0", str(folder)]
        record = [sys.executable, "-m", "rankscope", "run", "--quiet", "--out", str(folder / "run")]
        subprocess.run([*(record if is_recorded else []), *command], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (counted,) = folder.glob("callgrind.out.*")  # of what lies between the marks; the rest is empty
        sums = by_library(counted.read_text(errors="replace").splitlines())
    return Counter({where: round(count / options.steps) for where, count in sums.items()})


def start_ranks(options: argparse.Namespace) -> int:
    """Inside the recorded job: rank 0 under callgrind, the other as it is."""
    folder = Path(options.rank_0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/callgrind.out"]
    ranks = []
    for rank in (0, 1):
        command = [options.python, str(PROGRAM), options.kinds[0], f"--steps={WARMUP + options.steps}"]
        command += [f"--marks={folder}/marks.so", f"--marked={WARMUP}"] if rank == 0 else []
        environment = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        words = [*([] if rank else valgrind), *command]
        ranks.append(subprocess.Popen(words, env=os.environ | environment, stderr=subprocess.DEVNULL))
    return max(abs(rank.wait()) for rank in ranks)


def by_library(lines: Iterable[str]) -> Counter[str]:
    """Instructions where they are executed; what a callee took is counted there."""
    names: dict[str, str] = {}
    library, of_callee = "", False
    sums: Counter[str] = Counter()
    for line in lines:
        if named := NAMED.match(line):
            of_call, kind, number, name = named.groups()
            if kind == "ob":
                names.setdefault(number, name or "")
                library = library if of_call else names[number]
        elif line.startswith("calls="):
            of_callee = True
        elif line[:1] in "0123456789+-*" and line:
            if not of_callee:
                sums[place_of(Path(library).name)] += int(line.split()[1])
            of_callee = False
    return sums


def place_of(library: str) -> str:
    return next(place for place, pattern in WHERE.items() if re.search(pattern, library))


def table(kind: str, bare: Counter[str], recorded: Counter[str]) -> list[str]:
    lines = [f"| {kind} | bare | recorded | added |", "|---|---:|---:|---:|"]
    for place in WHERE:
        lines.append(row(place, bare[place], recorded[place]))
    everything, with_us = sum(bare.values()), sum(recorded.values())
    return [*lines, row("all", everything, with_us, f" ({with_us / everything - 1:+.2%})")]


def row(place: str, bare: int, recorded: int, more: str = "") -> str:
    return f"| {place} | {bare / 1e3:,.1f} | {recorded / 1e3:,.1f} | {(recorded - bare) / 1e3:+,.1f}{more} |"


if __name__ == "__main__":
    main()
