"""How many instructions does the recorder run for one MPI call, and in which of its sources?

    python benchmarks/mpi_instructions.py [--mpi openmpi] [--call "Sendrecv 8 B"] [LIBRARY ...]

callgrind counts mpi_overhead.c with one call on one process, twice, the second time with as many calls again: the
difference is what a call takes. Each LIBRARY (default: the recorder of this checkout) gives a column; inlined code is
counted where it is written (`rdtsc` in ia32intrin.h). The ring of messages is full before the counting begins, as in
any long job.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mpi_overhead import BARE, OURS, RECORDER, Setting, build, environment, launcher

CALLS = 70_000  # more than the ring holds
NAMED = re.compile(r"^(c?)(ob|fl|fi|fe|fn)=\((\d+)\)(?: (.*))?$")
OTHERS = "the MPI and the program"


def main() -> None:
    options = parse()
    libraries = options.libraries or [RECORDER]
    with tempfile.TemporaryDirectory() as folder:
        program = build(options.mpi, Path(folder))
        settings = [Setting(BARE, None), *(Setting(OURS, library.resolve()) for library in libraries)]
        columns = [per_call(options, setting, program, Path(folder)) for setting in settings]
    print(table(["bare", *(library.parent.name + "/" + library.name for library in libraries)], columns))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", default="openmpi", choices=["openmpi", "mpich"], help="which of .envs to use")
    parser.add_argument("--call", default="Sendrecv 8 B", help="as mpi_overhead.c names it")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("libraries", type=Path, nargs="*", metavar="LIBRARY")
    return parser.parse_args()


def per_call(options: argparse.Namespace, setting: Setting, program: Path, folder: Path) -> Counter[str]:
    """Instructions of one call by source: those of our library by their files, all others together."""
    once, twice = (
        counted(run(options, setting, program, folder, calls)) for calls in (options.calls, 2 * options.calls)
    )
    return Counter({source: (twice[source] - once[source]) / options.calls for source in twice})  # type: ignore[misc]


def run(options: argparse.Namespace, setting: Setting, program: Path, folder: Path, calls: int) -> list[str]:
    out = folder / "callgrind.out"
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
    command = [*launcher(options.mpi, 1), "env", *setting.variables(folder), *valgrind]
    command += [str(program), "1", str(calls), options.call]
    subprocess.run(command, env=environment(), cwd=folder, capture_output=True, check=True)
    return out.read_text().splitlines()


def counted(lines: Iterable[str]) -> Counter[str]:
    """The instructions of each source; of a call only what is its own is counted, where it is."""
    names: dict[tuple[str, str], str] = {}
    where = {"ob": "", "fl": ""}
    sums: Counter[str] = Counter()
    of_callee = False
    for line in lines:
        if named := NAMED.match(line):
            of_call, kind, number, name = named.groups()
            kind = {"fi": "fl", "fe": "fl"}.get(kind, kind)
            if name is not None:
                names[kind, number] = name
            if not of_call:
                where[kind] = names[kind, number]
        elif line.startswith("calls="):
            of_callee = True  # the next line is what all of the callee took
        elif line[:1] in "0123456789+-*" and line:
            if not of_callee:
                ours = "librankscope" in where["ob"]
                sums[Path(where["fl"]).name if ours else OTHERS] += int(line.split()[1])
            of_callee = False
    return sums


def table(names: list[str], columns: list[Counter[str]]) -> str:
    """A row for each source that takes part in a call."""
    sources = sorted({source for column in columns for source, count in column.items() if abs(count) >= 0.05})
    sources.sort(key=lambda source: (source == OTHERS, -max(column[source] for column in columns)))
    lines = [f"| instructions a call in | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for source in sources:
        lines.append(f"| {source} | {' | '.join(f'{column[source]:.1f}' for column in columns)} |")
    ours = [sum(count for source, count in column.items() if source != OTHERS) for column in columns]
    lines.append(f"| the recorder in all | {' | '.join(f'{count:.1f}' for count in ours)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
