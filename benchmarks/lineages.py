"""Real small jobs that are killed, requeued, hang, write checkpoints and slow down: goodput against what they know.

Each lineage is one to three runs of `rankscope run --lineage`, and each run up to three attempts of two ranks. The jobs
keep the truth themselves, in a file that a kill cannot tear. Steps are sleeps: the jobs need hardly any CPU, and many
lineages can run at a time. Finished ones are kept in `build/lineages.jsonl`, so that it can be run in pieces."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from rankscope.api.lineage import lineage_goodput

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "lineages.md"
KEPT = ROOT / "build" / "lineages.jsonl"
RANKSCOPE = ROOT / ".venv" / "bin" / "rankscope"
CLOSE = 0.02  # of the wall time, or of the kind itself
WORTH_S = 0.5  # seconds of a kind that are compared with themselves
# One rank: follows the plan of its attempt and notes when each thing ended, on the clock of the run.
WORKER = """
import json, os, signal, sys, time
import rankscope
plan = json.loads(sys.argv[1])
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(what):
    os.write(log, f"{what} {time.time_ns()}\\n".encode())
time.sleep(plan["startup_s"])
note("loop")
for step, length_s in enumerate(plan["steps_s"]):
    if step and step % plan["checkpoint_every"] == 0:
        with rankscope.checkpoint():
            time.sleep(plan["checkpoint_s"])
        note("checkpoint")
    with rankscope.range("forward"):
        time.sleep(length_s)
    rankscope.step()
    note("step")
if plan["hang_s"]:
    time.sleep(plan["hang_s"])
if plan["fails"]:
    os.kill(os.getpid(), signal.SIGKILL)
"""
# One run: its attempts, each with a pause before the next, as an elastic launcher.
LAUNCHER = """
import json, os, subprocess, sys, time
plans = json.loads(sys.argv[1])
ticks = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
began_ns = time.time_ns() - int((time.clock_gettime(time.CLOCK_BOOTTIME) - ticks) * 1e9)
open(f"{sys.argv[2]}.began", "w").write(str(began_ns))  # `rankscope run` became this process
for restart, plan in enumerate(plans):
    for rank in range(2):
        with open(f"{sys.argv[2]}.{restart}.{rank}", "w") as log:
            log.write(f"start {time.time_ns()}\\n")
    ranks = [subprocess.Popen([sys.executable, "worker.py", json.dumps(plan), f"{sys.argv[2]}.{restart}.{rank}"],
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": str(restart)})
        for rank in range(2)]
    for rank in ranks:
        rank.wait()
    for rank in range(2):
        with open(f"{sys.argv[2]}.{restart}.{rank}", "a") as log:
            log.write(f"end {time.time_ns()}\\n")
    time.sleep(plan["pause_s"])
"""


def plan_of(dice: random.Random, is_last: bool) -> dict[str, object]:
    """What one attempt does."""
    usual_s = 0.05
    steps = [usual_s] * dice.randint(12, 24)
    if dice.random() < 0.5:
        first = dice.randrange(4, len(steps) - 3)
        steps[first : first + 3] = [usual_s * dice.uniform(2, 4)] * 3
    fails = not is_last
    return {
        "startup_s": dice.uniform(0.1, 0.6),
        "steps_s": steps,
        "checkpoint_every": dice.choice((4, 5, 8, 100)),
        "checkpoint_s": dice.uniform(0.05, 0.2),
        "fails": fails,
        "hang_s": dice.choice((0, dice.uniform(0.5, 1.5))) if fails else 0,
        "pause_s": dice.uniform(0.05, 0.3) if fails else 0,
    }


def lineage(number: int, folder: Path) -> dict[str, tuple[float, float]]:
    """One lineage: seconds by kind, as accounted for and as they were."""
    dice = random.Random(number)
    place = folder / str(number)
    place.mkdir()
    (place / "worker.py").write_text(WORKER)
    (place / "launcher.py").write_text(LAUNCHER)
    truth: dict[str, float] = {}
    runs = dice.randint(1, 3)
    ended_ns = 0
    for run in range(runs):
        attempts = [plan_of(dice, run == runs - 1 and at == 0) for at in reversed(range(dice.randint(1, 3)))]
        command = [RANKSCOPE, "run", "--out", place / f"run-{run}", "--lineage", str(number)]
        words = [*command, sys.executable, "launcher.py", json.dumps(attempts), f"log-{run}"]
        subprocess.run(words, cwd=place, check=True)
        began_ns = int((place / f"log-{run}.began").read_text())
        logs = [[read_log(place / f"log-{run}.{at}.{rank}") for rank in range(2)] for at in range(len(attempts))]
        truth["queue"] = truth.get("queue", 0.0) + ((began_ns - ended_ns) / 1e9 if run else 0.0)
        add_truth(truth, began_ns, attempts, logs)
        ended_ns = max(moment for log in logs[-1] for _, moment in log)
        if run < runs - 1:
            time.sleep(dice.uniform(0.1, 0.6))
    found = {str(row[0]): float(row[1]) / 1e9 for row in lineage_goodput(place / "run-0").rows}  # type: ignore[arg-type]
    return {kind: (found.get(kind, 0.0), truth.get(kind, 0.0)) for kind in sorted(found.keys() | truth.keys())}


def read_log(path: Path) -> list[tuple[str, int]]:
    return [(what, int(at)) for what, at in (line.split() for line in path.read_text().splitlines())]


def add_truth(
    truth: dict[str, float], began_ns: int, plans: list[dict[str, object]], logs: list[list[list[tuple[str, int]]]]
) -> None:
    """The jobs' own account, mean over the two ranks, by the same definitions."""
    lengths = [length for ranks in logs for log in ranks for length in step_lengths(log)[2:]]
    usual = median(length for length, _ in lengths)
    now = began_ns
    for at, (plan, ranks) in enumerate(zip(plans, logs, strict=True)):
        began = min(log[0][1] for log in ranks)
        ended = max(log[-1][1] for log in ranks)
        add(truth, "restart" if at else "start-up", began - now)
        now = ended
        fails = bool(plan["fails"])
        for log in ranks:
            own = account(log, began, ended, usual, fails)
            for kind, ns in own.items():
                add(truth, kind, ns / len(ranks))


def add(truth: dict[str, float], kind: str, ns: float) -> None:
    truth[kind] = truth.get(kind, 0.0) + ns / 1e9


def step_lengths(log: list[tuple[str, int]]) -> list[tuple[float, float]]:
    """Of each step its length without a checkpoint, and the checkpoint."""
    found: list[tuple[float, float]] = []
    before, saved = 0, 0.0
    for what, at in log:
        if what == "checkpoint":
            saved, before = float(at - before), at
        elif what == "step":
            found.append((float(at - before), saved))
            before, saved = at, 0.0
        elif what == "loop":
            before = at
    return found


def account(log: list[tuple[str, int]], began: int, ended: int, usual: float, fails: bool) -> dict[str, float]:
    steps = step_lengths(log)
    loop = next(at for what, at in log if what == "loop")
    last = max(at for what, at in log if what == "step")
    saved = max((at for at, (_, written) in enumerate(steps) if written), default=0)
    own = dict.fromkeys(
        ("useful steps", "lost steps", "slowed steps", "checkpoint", "start-up", "hang", "shutdown"), 0.0
    )
    for at, (length, written) in enumerate(steps):
        excess = length - usual if length > 1.25 * usual else 0.0
        own["lost steps" if fails and at >= saved else "useful steps"] += length - excess
        own["start-up" if at < 2 else "slowed steps"] += excess
        own["checkpoint"] += written
    own["start-up"] += loop - began
    tail = ended - last
    begun = min(tail, usual) if fails else 0.0
    own["lost steps"] += begun
    own["hang" if fails else "shutdown"] += tail - begun
    return own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lineages", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first one: other plans")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no further lineage is started")
    options = parser.parse_args()
    KEPT.parent.mkdir(exist_ok=True)
    numbers = range(options.first, options.first + options.lineages)
    done = kept()
    until = time.monotonic() + options.limit
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.at_once) as pool:
        missing = [number for number in numbers if number not in done]
        list(pool.map(lambda number: run_and_keep(number, Path(folder), until), missing))
    done = {number: found for number, found in kept().items() if number in numbers}
    print(f"{len(done)} of {options.lineages} lineages")
    if len(done) >= options.lineages:
        RESULT.write_text(document(done, options.at_once), encoding="utf-8")
        print(RESULT.read_text(encoding="utf-8"))


def run_and_keep(number: int, folder: Path, until: float) -> None:
    if time.monotonic() < until:
        found = lineage(number, folder)
        with KEPT.open("a") as file:
            file.write(json.dumps({"number": number, "found": found}) + "\n")


def kept() -> dict[int, dict[str, tuple[float, float]]]:
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return {
        one["number"]: {kind: (told, true) for kind, (told, true) in one["found"].items()}
        for one in map(json.loads, lines)
    }


def document(done: dict[int, dict[str, tuple[float, float]]], at_once: int) -> str:
    found = [done[number] for number in sorted(done)]
    kinds = sorted({kind for one in found for kind in one})
    words = f"--lineages {len(found)} --first {min(done)} --at-once {at_once}"
    lines = [
        "# Goodput of lineages, against what the jobs know",
        f"`benchmarks/lineages.py {words}`, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} processors (load "
        f"{os.getloadavg()[1]:.1f}), {platform.machine()}, Python {platform.python_version()}. Errors are shares of a "
        f"lineage's wall time; the last column is stricter: of the kind's own seconds, where there are {WORTH_S} s of "
        "it or more.",
        "",
        "| kind | seconds, true | seconds, accounted | largest error | within 2 % of the wall time | within 2 % of "
        "itself |",
        "|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        pairs = [(one.get(kind, (0.0, 0.0)), sum(true for _, true in one.values())) for one in found]
        errors = [abs(told - true) / wall for (told, true), wall in pairs]
        sums = sum(true for (_, true), _ in pairs), sum(told for (told, _), _ in pairs)
        within = sum(error <= CLOSE for error in errors)
        large = [abs(told / true - 1) for (told, true), _ in pairs if true >= WORTH_S]
        itself = f"{sum(error <= CLOSE for error in large)} of {len(large)}"
        lines.append(
            f"| {kind} | {sums[0]:.2f} | {sums[1]:.2f} | {max(errors):.2%} | {within} of {len(found)} | {itself} |"
        )
    whole = sum(
        all(abs(told - true) <= CLOSE * sum(t for _, t in one.values()) for told, true in one.values()) for one in found
    )
    lines += ["", f"All kinds within 2 % of the wall time: {whole} of {len(found)} lineages.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
