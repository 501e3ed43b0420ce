"""What the recorder adds to one MPI call and to the start of a program, beside the bare run and a peer library.

Bars: at most 25 ns a call, at most half of a peer's cost, at most 2 ms of start-up where MPI is not used.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDER = ROOT / "src" / "rankscope" / "native" / "librankscope.so"
RESULTS = ROOT / "benchmarks" / "results"
BAR_NS, BAR_OF_PEER, BAR_START_MS = 25, 0.5, 2
BARE, OURS, BEFORE, PEER = "bare", "rankscope", "before", "peer"

Times = dict[str, tuple[float, float]]  # what: best chunk, median chunk, in ns


@dataclass(frozen=True)
class Setting:
    """One way of running the program: which library goes in front of it."""

    name: str
    library: Path | None
    records: int | None = None  # of the log, where not as many as by default

    def variables(self, folder: Path) -> list[str]:
        if self.library is None:
            return []
        ours = [f"RANKSCOPE_DIR={folder}", *([f"RANKSCOPE_LOG_RECORDS={self.records}"] if self.records else [])]
        return [f"LD_PRELOAD={self.library}", *(ours if self.name in (OURS, BEFORE) else [])]


def main() -> int:
    options = parse()
    settings = [Setting(BARE, None), Setting(OURS, RECORDER, options.records)]
    settings += [Setting(BEFORE, options.before.resolve(), options.records)] if options.before else []
    settings += [Setting(PEER, options.peer.resolve())] if options.peer else []
    with tempfile.TemporaryDirectory() as folder:
        program = build(options.mpi, Path(folder))
        calls = rounds_of_calls(options, settings, program, Path(folder))
        starts = rounds_of_starts(options.rounds * 5, settings, Path(folder))
        instructions = added_instructions(Path(folder)) if options.callgrind else {}
        if options.callgrind:
            instructions |= instructions_of_messages(options, settings, program, Path(folder))
        report = summary(options, calls, starts, instructions)
        report["mpi"] = version(options, program)
    save(report, options.mpi)
    print(markdown(report))
    return 0 if all(report["bars"].values()) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", default="openmpi", choices=["openmpi", "mpich"], help="which of .envs to use")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved repetitions of every setting")
    parser.add_argument("--chunks", type=int, default=50)
    parser.add_argument("--calls", type=int, default=5000, help="calls in a chunk")
    parser.add_argument("--records", type=int, help="records of the collective log (default: the recorder's)")
    parser.add_argument("--before", type=Path, help="an earlier build of the recorder, measured beside this one")
    parser.add_argument("--peer", type=Path, help="another MPI profiling library to compare with")
    parser.add_argument("--callgrind", action="store_true", help="also count added instructions, on the fake MPI")
    return parser.parse_args()


def build(mpi: str, folder: Path) -> Path:
    target = folder / "mpi_overhead"
    mpicc, source = ROOT / ".envs" / mpi / "bin" / "mpicc", Path(__file__).with_suffix(".c")
    subprocess.run([mpicc, "-O2", "-o", target, source], check=True)
    return target


def environment() -> dict[str, str]:
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
    return {**{k: v for k, v in os.environ.items() if not k.startswith("RANKSCOPE_")}, **root}


def launcher(mpi: str, ranks: int) -> list[str]:
    flags = ["--oversubscribe"] if mpi == "openmpi" else []
    return [str(ROOT / ".envs" / mpi / "bin" / "mpirun"), *flags, "-n", str(ranks)]


def rounds_of_calls(
    options: argparse.Namespace, settings: list[Setting], program: Path, folder: Path
) -> dict[str, list[Times]]:
    """Every setting in turn, again and again, so that a noisy minute hits all of them."""
    found: dict[str, list[Times]] = defaultdict(list)
    for turn in range(options.rounds):
        for setting in settings:
            run = folder / f"run-{turn}"
            run.mkdir(exist_ok=True)
            sizes = (str(options.chunks), str(options.calls))
            command = [*launcher(options.mpi, options.ranks), "env", *setting.variables(run), str(program), *sizes]
            done = subprocess.run(command, env=environment(), cwd=folder, capture_output=True, text=True, check=True)
            found[setting.name].append(parse_times(done.stdout))
    return found


def parse_times(text: str) -> Times:
    rows = (line.split("\t") for line in text.splitlines() if line.count("\t") == 2)
    return {name: (float(best), float(median)) for name, best, median in rows}


def rounds_of_starts(rounds: int, settings: list[Setting], folder: Path) -> dict[str, dict[str, list[float]]]:
    """Milliseconds from start to end of programs that use no MPI."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    programs = {"true": ["/bin/true"], "python -c pass": [sys.executable, "-c", "pass"]}
    for _ in range(rounds):
        for name, argv in programs.items():
            for setting in settings:
                variables = dict(pair.split("=", 1) for pair in setting.variables(folder))
                begin = time.perf_counter_ns()
                subprocess.run(argv, env={**environment(), **variables}, check=True, stdout=subprocess.DEVNULL)
                found[name][setting.name].append((time.perf_counter_ns() - begin) / 1e6)
    return found


def added_instructions(folder: Path) -> dict[str, float]:
    """Instructions the recorder adds to one call, counted by callgrind: the difference of two lengths of one run."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from native.builds import make_driver

    driver = make_driver(folder)
    parts = {"Iprobe": "tallies", "Bcast": "ring"}
    found = {}
    for name, part in parts.items():
        costs = [per_call(program, part, folder) for program in (driver.recorded, driver.bare)]
        found[name] = costs[0] - costs[1]
    return found


MESSAGES = ("Sendrecv 8 B", "Isend+Irecv+Waitall", "Isend+Irecv+2 Wait")


def instructions_of_messages(
    options: argparse.Namespace, settings: list[Setting], program: Path, folder: Path
) -> dict[str, float]:
    """Instructions of calls that send and receive on a process alone, the MPI's own included; the ring is full."""
    return {
        f"{name}, {setting.name}": real_per_call(options, setting, program, name, folder)
        for name in MESSAGES
        for setting in settings
    }


def real_per_call(options: argparse.Namespace, setting: Setting, program: Path, name: str, folder: Path) -> float:
    counts = []
    out = folder / "callgrind.out"
    for calls in (20_000, 40_000):
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        command = [*launcher(options.mpi, 1), "env", *setting.variables(folder), *valgrind]
        command += [str(program), "1", str(calls), name]
        subprocess.run(command, env=environment(), cwd=folder, capture_output=True, check=True)
        (line,) = [line for line in out.read_text().splitlines() if line.startswith(("totals:", "summary:"))][:1]
        counts.append(int(line.split()[1]))
    return (counts[1] - counts[0]) / 20_000


def per_call(program: Path, part: str, folder: Path) -> float:
    short, long = 2000, 22000
    return (instructions(program, part, long, folder) - instructions(program, part, short, folder)) / (long - short)


def instructions(program: Path, part: str, calls: int, folder: Path) -> int:
    out = folder / "callgrind.out"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(program), part, str(calls)]
    run = {**environment(), "RANKSCOPE_DIR": str(folder)}
    subprocess.run(command, env=run, check=True, capture_output=True)
    (line,) = [line for line in out.read_text().splitlines() if line.startswith(("totals:", "summary:"))][:1]
    return int(line.split()[1])


def summary(
    options: argparse.Namespace,
    calls: dict[str, list[Times]],
    starts: dict[str, dict[str, list[float]]],
    instructions: dict[str, float],
) -> dict[str, object]:
    names = list(calls[BARE][0])
    rows = [row_of(name, calls) for name in names]
    start_rows = [{"program": name, **start_row(found)} for name, found in starts.items()]
    return {
        "date": date.today().isoformat(),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "mpi": options.mpi,
        "ranks": options.ranks,
        "rounds": options.rounds,
        "calls": rows,
        "starts": start_rows,
        "instructions": instructions,
        "bars": bars(rows, start_rows),
    }


def row_of(name: str, calls: dict[str, list[Times]]) -> dict[str, object]:
    """Bare time, and what each library adds, in ns: of the best chunks, and of the medians; both medians of rounds."""
    row: dict[str, object] = {"call": name}
    for index, kind in enumerate(("best", "median")):
        bare = [times[name][index] for times in calls[BARE]]
        row[f"bare_{kind}_ns"] = round(min(bare) if kind == "best" else statistics.median(bare), 1)
        for setting in calls.keys() - {BARE}:
            pairs = zip(calls[setting], calls[BARE], strict=True)
            added = [with_it[name][index] - without[name][index] for with_it, without in pairs]
            row[f"{setting}_{kind}_added_ns"] = round(statistics.median(added), 1)
    return row


def start_row(found: dict[str, list[float]]) -> dict[str, float]:
    bare = statistics.median(found[BARE])
    added = {f"{name}_added_ms": round(statistics.median(found[name]) - bare, 2) for name in found.keys() - {BARE}}
    return {"bare_ms": round(bare, 2), **added}


def bars(rows: Iterable[dict[str, object]], starts: Iterable[dict[str, object]]) -> dict[str, bool]:
    """Only calls on one rank say what a call costs: between ranks the waiting of two processes is measured."""
    alone = [row for row in rows if str(row["call"]).endswith("alone")]
    found = {
        f"at most {BAR_NS} ns added per call of a process alone, best and median": all(
            number(row, f"{OURS}_{which}_added_ns") <= BAR_NS for row in alone for which in ("best", "median")
        ),
        f"at most {BAR_START_MS} ms of start-up": all(
            number(row, f"{OURS}_added_ms") <= BAR_START_MS for row in starts
        ),
    }
    if all(f"{PEER}_best_added_ns" in row for row in alone):
        ours, peers = (sum(number(row, f"{name}_best_added_ns") for row in alone) for name in (OURS, PEER))
        found["at most half of the peer's cost"] = ours <= BAR_OF_PEER * peers
    return found


def number(row: dict[str, object], name: str) -> float:
    value = row[name]
    assert isinstance(value, float | int)
    return float(value)


def cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def version(options: argparse.Namespace, program: Path) -> str:
    """What the MPI says of itself; MPICH puts its number on a line with a tab."""
    command = [*launcher(options.mpi, 1), str(program), "1", "10"]
    text = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
    return " ".join(text.splitlines()[0].split())


def save(report: dict[str, object], mpi: str) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"mpi_overhead-{mpi}.json").write_text(json.dumps(report, indent=1) + "\n")
    (RESULTS / f"mpi_overhead-{mpi}.md").write_text(markdown(report))


def markdown(report: dict[str, object]) -> str:
    about = "{date}, {cpu}, {cores} cores, Linux {kernel}, {mpi}, {ranks} ranks, {rounds} rounds".format(**report)
    parts = [f"# Cost of an MPI call\n{about}. Added: median over the rounds of the difference to the bare run."]
    for name in ("calls", "starts"):
        parts.append(table(report[name]))  # type: ignore[arg-type]
    if report["instructions"]:
        counted = report["instructions"].items()  # type: ignore[attr-defined]
        parts.append("Added instructions: " + ", ".join(f"{name} {value:.0f}" for name, value in counted) + ".")
    verdicts = report["bars"].items()  # type: ignore[attr-defined]
    parts.append("\n".join(f"- {'held' if good else 'MISSED'}: {bar}" for bar, good in verdicts))
    return "\n\n".join(parts) + "\n"


def table(rows: list[dict[str, object]]) -> str:
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([str(row[column]) for column in columns] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
