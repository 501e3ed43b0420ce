"""Our own file calls at many processes: of each rank, of the whole run, and those that reach the run's own folder.

    python benchmarks/many_processes.py [--ranks N] [--killed N] [--rankscope PATH] [--save]

Real processes (`true`, 50 at a time, told their rank as torchrun tells it) are started in four ways: bare, followed
from outside (`rankscope run LAUNCHER`), with `rankscope run` in each rank, and the latter with `--local`. strace -f
counts every call that names a file, lists a folder or changes one; what is shown is the difference to the bare
processes. Calls whose path lies in the run's folder, or in the folder where runs agree on one, go to the shared file
system wherever rankscope itself is installed: they are the load that a run puts on its server.

Then ranks of one node that are killed leave their files there (`--local`), and `rankscope gather` collects them: once,
once more, and once more to remove them.
"""

import argparse
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PROGRAM = HERE.parent / "tests" / "programs" / "starts_ranks.py"
sys.path.append(str(HERE))
from startup import FILE_CALLS, cpu_model  # noqa: E402

CALL = re.compile(r"^\d+ +(\w+)\((.*)$")
PATHS = re.compile(r'"((?:[^"\\]|\\.)*)"|\d<(/[^>]*)>')  # strace -y names the file of a descriptor
ON_OPEN = re.compile(r'newfstatat\(\d+<[^>]*>, ""')  # the status of an open file asks no server
FAILED = re.compile(r"= -1 (E\w+)")
GATHERINGS = {"once": (), "once more": (), "with --remove": ("--remove",)}


class Counted:
    """The file calls of one way to start the ranks."""

    def __init__(self, lines: list[str], folders: tuple[str, ...]) -> None:
        self.all: Counter[str] = Counter()
        self.in_run: Counter[str] = Counter()  # by call, with the error where it failed
        self.listings = 0  # of folders of the run: opened to be listed
        for line in lines:
            found = CALL.match(line)
            if found is None or found[1] not in FILE_CALLS or ON_OPEN.search(line):
                continue
            name = found[1]
            self.all[name] += 1
            named = PATHS.findall(found[2])[: 1 if name == "execve" else None]  # arguments are no files
            if any(path.startswith(folders) for paths in named for path in paths if path):
                failed = FAILED.search(line)
                self.listings += "O_DIRECTORY" in line
                self.in_run[f"{name} {failed[1]}" if failed else name] += 1


def traced(command: list[str], folder: Path, folders: tuple[str, ...]) -> Counted:
    """Run it under strace."""
    log = folder / "strace.log"
    done = subprocess.run(["strace", "-f", "-y", "-o", str(log), *command], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    counted = Counted(log.read_text(errors="replace").splitlines(), folders)
    log.unlink()
    return counted


def timed(command: list[str], folder: Path) -> tuple[float, float]:
    """CPU and wall seconds without strace."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, time.perf_counter() - begun


def ways(rankscope: str, ranks: int, folder: Path) -> dict[str, list[str]]:
    launcher = [sys.executable, str(PROGRAM), str(ranks)]
    record = [rankscope, "run"]
    return {
        "bare": [*launcher, "true"],
        "from outside": [*record, *launcher, "true"],
        "in each rank": [*launcher, *record, "true"],
        "in each rank, --local": [*launcher, *record, "--local", str(folder / "node"), "true"],
    }


def measure(rankscope: str, ranks: int) -> tuple[list[str], dict[str, Counter[str]]]:
    """A row for each way, and its calls in the run's folder."""
    rows, kinds = [], {}
    with tempfile.TemporaryDirectory() as place:
        bare: Counted | None = None
        for name, command in ways(rankscope, ranks, Path(place)).items():
            folder = Path(place) / name.replace(" ", "-").replace(",", "")
            folder.mkdir()
            runs = f"{folder}/rankscope-runs"
            counted = traced(command, folder, (runs,))
            shutil.rmtree(runs, ignore_errors=True)
            cpu_s, wall_s = timed(command, folder)
            bare = bare or counted
            files = len(list(folder.glob("rankscope-runs/2*/ranks/*/*.rank")))
            added = counted.all.total() - bare.all.total()
            server = counted.in_run.total()
            rows.append(
                f"| {name} | {files} | {added:,} | {added / ranks:.1f} | {server:,} | {server / ranks:.2f} "
                f"| {counted.listings} | {cpu_s:.1f} s | {wall_s:.1f} s |"
            )
            kinds[name] = counted.in_run
    return rows, kinds


def gathered(rankscope: str, ranks: int) -> dict[str, Counted]:
    """The calls of `rankscope gather` on a node whose ranks were killed."""
    with tempfile.TemporaryDirectory() as place:
        folder, run = Path(place), f"{place}/run"
        record = [rankscope, "run", "--out", run, "--local", f"{place}/node", "sh", "-c", "kill -9 $$"]
        subprocess.run([sys.executable, str(PROGRAM), str(ranks), *record], cwd=folder, capture_output=True)
        left = len(list(folder.glob("node/run-*/ranks/*/*.rank")))
        if left != ranks:
            raise SystemExit(f"{left} files are on the node, not {ranks}")
        command = [rankscope, "gather", run]
        made = {name: traced([*command, *more], folder, (run,)) for name, more in GATHERINGS.items()}
        if len(list(folder.glob("run/ranks/*/*.rank"))) != ranks or list(folder.glob("node/run-*/ranks/*/*.rank")):
            raise SystemExit("not all files were gathered")
        return made


def gathering_markdown(ranks: int, made: dict[str, Counted]) -> list[str]:
    return [
        f"`rankscope gather` on a node with the files of {ranks:,} killed ranks:",
        "",
        "| rankscope gather | calls in the run's folder | a file | of its folders listed | by kind |",
        "|---|---:|---:|---:|---|",
        *(
            f"| {name} | {counted.in_run.total():,} | {counted.in_run.total() / ranks:.2f} | {counted.listings} "
            f"| {_kinds(counted.in_run)} |"
            for name, counted in made.items()
        ),
        "",
    ]


def as_markdown(ranks: int, rows: list[str], kinds: dict[str, Counter[str]]) -> str:
    told = [
        f"# Our own file calls at {ranks:,} processes",
        f"{time.strftime('%Y-%m-%d')}, {cpu_model()} ({os.cpu_count()} CPUs), Linux {platform.release()}, Python "
        f"{platform.python_version()}. `python benchmarks/many_processes.py --ranks {ranks}`: {ranks:,} processes of "
        "`true`, 50 at a time.",
        "",
        "| rankscope | rank files | file calls added | a rank | of them in the run's folder | a rank "
        "| of its folders listed | CPU time | wall time |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *rows,
        "",
        "Calls in the run's folder, by kind (with the error of those that failed):",
        "",
        *(f"- {name}: {_kinds(found)}" for name, found in kinds.items() if found),
        "",
    ]
    return "\n".join(told)


def _kinds(found: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.most_common())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--killed", type=int, default=128, help="ranks of a node whose files are gathered")
    parser.add_argument("--rankscope", default=str(Path(sys.executable).parent / "rankscope"))
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/many_processes.md")
    options = parser.parse_args()
    if not shutil.which("strace"):
        raise SystemExit("strace is missing: install it, it counts the calls")
    text = as_markdown(options.ranks, *measure(options.rankscope, options.ranks))
    told = gathering_markdown(options.killed, gathered(options.rankscope, options.killed))
    text = "\n".join([text, *told])
    print(text, end="")
    if options.save:
        (RESULTS / "many_processes.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
