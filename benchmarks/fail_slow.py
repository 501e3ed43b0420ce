"""Jobs that become slow and recover: is it noticed, since which step, who and why?

Each job is four ranks of torch over Gloo on two made-up hosts (UTS namespaces) with a network of their own. Now and
then a rank, or both ranks of a host, compute longer, wait longer for data, collect garbage or have to share their CPU,
or the network becomes slow (`tc tbf`). The plan is drawn by lot and is the truth. Finished jobs are kept in
`build/fail_slow.jsonl`, so that it can be run in pieces. Needs root (unshare, tc)."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from rankscope.api.run import Run
from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.data import TITLES, Steps, steps_of
from rankscope.questions.steps.slowdowns import Slowdown, _Life, _slowdowns, levels_of

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "fail_slow.md"
KEPT = ROOT / "build" / "fail_slow.jsonl"
RANKSCOPE = ROOT / ".venv" / "bin" / "rankscope"
TORCH = ROOT / ".envs" / "torch" / "bin" / "python"
RANKS, HOSTS = 4, ("node-a", "node-b")
CLOSE = 10  # steps
STEPS = 1200  # of a real job
LIMIT_S = 300
NAMED = {
    "compute": ("forward",),
    "data": (TITLES["data"],),
    "communication": (TITLES["exposed"],),
    "gc": ("garbage collection",),
    "preemption": ("waiting for a CPU",),
}
# One rank: what belongs to the step, and what the plan adds to it.
RANK = """
import gc, json, os, subprocess, sys, time
import torch, torch.distributed as dist
import rankscope
plan = json.loads(sys.argv[1])
rank = int(os.environ["RANK"])
torch.set_num_threads(1)
dist.init_process_group("gloo")
gradients = torch.ones(16384)
heap = []
hogs = []
def compute(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
def begin(one):
    global heap
    if one["cause"] == "gc" and rank in one["ranks"]:
        heap = [[] for _ in range(100_000)]
        began = time.perf_counter()
        gc.collect()
        heap = [[] for _ in range(int(one["more_s"] * 100_000 / (time.perf_counter() - began)))]
    if one["cause"] == "preemption":
        os.sched_setaffinity(0, {0} if rank in one["ranks"] else {1})
        if rank in one["ranks"]:
            for _ in range(2):
                words = ["/usr/bin/nice", "-n", "-5", "/usr/bin/taskset", "-c", "0", "/bin/sh", "-c"]
                hogs.append(subprocess.Popen([*words, "while :; do :; done"], env={}))
    if one["cause"] == "communication" and rank == 0:
        words = ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", f"{one['mbit']}mbit"]
        subprocess.run([*words, "burst", "100kb", "latency", "200ms"], check=True, env={"PATH": os.environ["PATH"]})
def end(one):
    global heap
    heap = []
    if one["cause"] == "preemption":
        for hog in hogs:
            hog.kill()
            hog.wait()
        hogs.clear()
        os.sched_setaffinity(0, set(range(os.cpu_count())))
    if one["cause"] == "communication" and rank == 0:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True, env={"PATH": os.environ["PATH"]})
dist.all_reduce(gradients)
gc.freeze()  # torch's own objects are not what is collected
now = None
for step in range(plan["steps"]):
    for one in plan["episodes"]:
        if step == one["first"]:
            begin(one)
            now = one
        if step == one["last"]:
            end(one)
            now = None
    cause = now["cause"] if now is not None and rank in now["ranks"] else ""
    with rankscope.range("data"):
        time.sleep(0.005 + (now["more_s"] if cause == "data" else 0))
    with rankscope.range("forward"):
        time.sleep(0.006)
        compute(0.002 + (now["more_s"] if cause == "compute" else 0))
        if cause == "gc":
            gc.collect()
    dist.all_reduce(gradients)
    rankscope.step()
dist.destroy_process_group()
"""
LAUNCHER = """
import os, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
shared = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "OMP_NUM_THREADS": "1"}
shared["GLOO_SOCKET_IFNAME"] = "lo"
ranks = []
for rank in range(4):
    script = f"hostname {sys.argv[3 + rank // 2]}; exec {sys.argv[2]} rank.py '{sys.argv[1]}'"
    own = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank % 2)}
    ranks.append(subprocess.Popen(["unshare", "--uts", "sh", "-c", script], env=own))
sys.exit(max(rank.wait() for rank in ranks))
"""


def plan_of(number: int, steps: int) -> dict[str, Any]:
    """What happens in one job of so many steps; one in eight has nothing."""
    dice = random.Random(number)
    episodes: list[dict[str, Any]] = []
    at = dice.randint(150, 300)
    while number % 8 and at < steps - 250:
        cause = dice.choice(list(NAMED))
        length = dice.randint(50, 160)
        who = [dice.randrange(RANKS)]
        if cause not in ("communication", "preemption") and dice.random() < 0.35:
            host = dice.randrange(2)
            who = [2 * host, 2 * host + 1]
        episode = {"cause": cause, "first": at, "last": at + length, "more_s": dice.uniform(0.006, 0.02)}
        episode |= {"ranks": [] if cause == "communication" else who, "mbit": dice.randint(40, 100)}
        episodes.append(episode)
        at += length + dice.randint(110, 260)
    return {"steps": steps, "episodes": episodes}


def job(number: int, folder: Path) -> dict[str, Any]:
    """Runs it; what was found beside what was planned."""
    plan = plan_of(number, STEPS)
    place = folder / str(number)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "rank.py").write_text(RANK)
    (place / "launcher.py").write_text(LAUNCHER)
    command = ["unshare", "--net", RANKSCOPE, "run", "--out", place / "run", sys.executable, "launcher.py"]
    began = time.monotonic()
    started = subprocess.Popen([*command, json.dumps(plan), str(TORCH), *HOSTS], cwd=place, start_new_session=True)
    try:
        if started.wait(LIMIT_S):
            raise SystemExit(f"job {number} failed")
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        raise SystemExit(f"job {number} was not done after {LIMIT_S} s") from None
    took_s = time.monotonic() - began
    made = judged(number, steps_of(Run(place / "run").store()), plan)
    return {**made, "took_s": round(took_s, 1), "load": os.getloadavg()[0]}


def judged(number: int, steps: Steps, plan: dict[str, Any]) -> dict[str, Any]:
    found = slowdowns_of(steps)
    numbers = steps.common()
    cases = [case_of(one, found, steps) for one in plan["episodes"]]
    spans = [(one["first"] + 1 - CLOSE, one["last"] + CLOSE) for one in plan["episodes"]]
    false = [row_of(one) for one in found if not any(one.first <= last and one.last >= first for first, last in spans)]
    slow_steps = sum(one["last"] - one["first"] for one in plan["episodes"])
    usual = float(np.median(steps.ranks[0].length_ns))
    return {
        "number": number,
        "steps": len(numbers),
        "steady": len(numbers) - slow_steps,
        "usual_ms": round(usual / 1e6, 2),
        "cases": cases,
        "false": false,
    }


def slowdowns_of(steps: Steps) -> list[Slowdown]:
    """Of steps that are all held one by one."""
    return list(_slowdowns(_Life.of(steps, {})))


def row_of(one: Slowdown) -> dict[str, Any]:
    return {
        "first": one.first,
        "last": one.last,
        "ranks": list(one.ranks),
        "host": one.host,
        "part": one.part,
        "by": round(one.after_ns / one.before_ns - 1, 3),
    }


def case_of(planned: dict[str, Any], found: list[Slowdown], steps: Steps) -> dict[str, Any]:
    """The first row that overlaps most of it."""
    first, last = planned["first"] + 1, planned["last"]
    those = [one for one in found if min(one.last, last) - max(one.first, first) >= 0.5 * min(last - first, one.steps)]
    made: dict[str, Any] = {"planned": planned, "found": [row_of(one) for one in those]}
    if not those:
        return made
    one = max(those, key=lambda each: min(each.last, last) - max(each.first, first))
    host = HOSTS[planned["ranks"][0] // 2] if len(planned["ranks"]) == 2 else ""
    right_who = one.host == host if host else list(one.ranks) == planned["ranks"]
    return made | {
        "onset": min(each.first for each in those) - first,
        "who": right_who,
        "cause": one.part in NAMED[planned["cause"]],
        "noticed": noticed_after(steps, first, last),
    }


def noticed_after(steps: Steps, first: int, last: int) -> int | None:
    """How many steps after the onset it is in the table that is made while the job runs."""
    for more in range(10, last - first, 5):
        known = slowdowns_of(steps.between(steps.first_steady, first + more))
        if any(one.goes_on and one.last >= first for one in known):
            return more
    return None


# ---------------------------------------------------------------- simulated step records: reported apart
@dataclass(frozen=True, slots=True)
class Noise:
    """How the steps of a steady run vary."""

    name: str
    spread: float
    alike: float  # how much a step resembles the one before
    long_share: float  # steps that take several times as long
    period: int = 0  # every so many steps one takes twice as long (evaluation, logging)

    def series(self, dice: Any, length: int) -> Any:
        """Around 1."""
        values = dice.normal(0, self.spread * (1 - self.alike**2) ** 0.5, length)
        for at in range(1, length):
            values[at] += self.alike * values[at - 1]
        values = np.exp(values)
        values[dice.random(length) < self.long_share] *= 5
        if self.period:
            values[:: self.period] *= 2
        return values


NOISES = (
    Noise("independent, 5 %", 0.05, 0.0, 0.01),
    Noise("independent, 30 %", 0.3, 0.0, 0.02),
    Noise("alike 0.5", 0.05, 0.5, 0.01),
    Noise("alike 0.9", 0.05, 0.9, 0.01),
    Noise("alike 0.9, 15 %", 0.15, 0.9, 0.02),
    Noise("every 50th twice as long", 0.05, 0.3, 0.0, 50),
)
USUAL_MS = {"data": 5.0, "forward": 9.0, "other": 0.75}
TRANSFER_MS = 2.0
SIMULATED_JOBS, SIMULATED_STEPS = 36, 2400


def simulated(noise: Noise, series: int, length: int) -> int:
    """Slow-downs found in series of steady steps."""
    alarms = 0
    for seed in range(series):
        levels = levels_of(noise.series(np.random.default_rng(seed), length))
        alarms += sum(after.median > before.median for before, after in pairwise(levels))
    return alarms


def simulated_steps(number: int, plan: dict[str, Any]) -> Steps:
    """What the four ranks of a plan would have recorded, each waiting for the slowest in every step."""
    dice = np.random.default_rng(1000 + number)
    noise, count = NOISES[number % len(NOISES)], plan["steps"]
    own = {name: np.stack([ms * noise.series(dice, count) for _ in range(RANKS)]) for name, ms in USUAL_MS.items()}
    inside = {name: np.abs(dice.normal(0, 0.12, (RANKS, count))) for name in ("gc", "runnable")}
    transfer = TRANSFER_MS * noise.series(dice, count)
    for one in plan["episodes"]:
        span = slice(one["first"], one["last"])
        more = 1e3 * one["more_s"] * dice.lognormal(0, 0.1, (RANKS, one["last"] - one["first"]))
        if one["cause"] == "communication":
            transfer[span] += more[0]
        for rank in one["ranks"]:
            own["data" if one["cause"] == "data" else "forward"][rank, span] += more[rank]
            if one["cause"] in ("gc", "preemption"):
                inside["gc" if one["cause"] == "gc" else "runnable"][rank, span] += 0.9 * more[rank]
    busy = sum(own.values())
    length = busy.max(axis=0) + transfer
    begin = np.concatenate([[0], np.cumsum(length)[:-1]])
    ranks = []
    for rank in range(RANKS):
        values = {"begin_ns": (begin * 1e6).astype(np.int64), "length_ns": length * 1e6}
        values |= {"exposed_ns": (length - busy[rank]) * 1e6}
        values |= {f"own {name}": part[rank] * 1e6 for name, part in own.items()}
        values |= {f"of which {name}": part[rank] * 1e6 for name, part in inside.items()}
        numbers, flagged = np.arange(1, count + 1), np.arange(count) < 2
        ranks.append(RankSteps(rank, HOSTS[rank // 2], numbers, flagged, values))
    return Steps(ranks, "recorded", 2, 3)


def simulated_jobs() -> list[dict[str, Any]]:
    plans = [plan_of(number, SIMULATED_STEPS) for number in range(SIMULATED_JOBS)]
    return [judged(number, simulated_steps(number, plan), plan) for number, plan in enumerate(plans)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first one: other plans")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which no further job is started")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fail_slow")
    parser.add_argument("--again", action="store_true", help="judge the kept runs once more, run none")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/fail_slow.md")
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.jobs)
    if options.again:
        judge_again(options.folder)
    began = time.monotonic()
    KEPT.parent.mkdir(exist_ok=True)
    for number in [] if options.again else numbers:
        if number not in {one["number"] for one in kept()} and time.monotonic() - began < options.limit:
            made = job(number, options.folder)
            with KEPT.open("a") as file:
                file.write(json.dumps(made) + "\n")
            print(told(made), flush=True)
    text = document([one for one in kept() if one["number"] in numbers], options.first)
    print(text)
    if options.save:
        RESULT.write_text(text, encoding="utf-8")


def judge_again(folder: Path) -> None:
    before = kept()
    made = []
    for one in before:
        steps = steps_of(Run(folder / str(one["number"]) / "run").store())
        made.append(one | judged(one["number"], steps, plan_of(one["number"], STEPS)))
    KEPT.write_text("".join(json.dumps(one) + "\n" for one in made))
    for one in made:
        print(told(one))


def kept() -> list[dict[str, Any]]:
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def is_right(case: dict[str, Any]) -> bool:
    return abs(case.get("onset", 99)) <= CLOSE and case["who"] and case["cause"]


def told(one: dict[str, Any]) -> str:
    wrong = [case for case in one["cases"] if not is_right(case)]
    counts = f"{len(one['cases'])} episodes, {len(wrong)} not right, {len(one['false'])} false"
    text = f"{one['number']}: {counts}, {one.get('took_s')} s"
    return "\n".join(
        [text, *(f"   {json.dumps(case)}" for case in wrong), *(f"   false {json.dumps(row)}" for row in one["false"])]
    )


def document(jobs: list[dict[str, Any]], first: int) -> str:
    lines = [
        "# Fail-slow: since when, who and why",
        f"`benchmarks/fail_slow.py --save --first {first} --jobs {len(jobs)}`, {time.strftime('%Y-%m-%d')}, "
        f"{os.cpu_count()}-core {platform.machine()} virtual machine, Linux "
        f"{'.'.join(platform.release().split('.')[:2])}, Python {platform.python_version()}.",
        "",
        "## Real jobs",
    ]
    if jobs:
        loads = [one["load"] for one in jobs]
        usual = median(one["usual_ms"] for one in jobs)
        lines += [
            f"{len(jobs)} jobs of four ranks (torch, Gloo) on two made-up hosts, usual step {usual:.1f} ms. Load "
            f"average {min(loads):.0f} to {max(loads):.0f}, of which the jobs' own is about 2.",
            *table_of(jobs),
        ]
    else:
        lines += ["Not run."]
    lines += [
        "",
        "## Simulated step records",
        f"{SIMULATED_JOBS} plans of the same kind with the noises below by turns: four ranks that wait for the "
        "slowest.",
        *table_of(simulated_jobs()),
        "",
        "The bound (5.5) and the clipping (two spreads) were chosen on these plans and noises out of nine pairs, so "
        "that the share is an optimistic one.",
        "",
        "Steady series alone:",
        "",
        "| noise | steps | false alarms | in 10,000 steps |",
        "|---|---:|---:|---:|",
    ]
    series, length = 25, 4000
    for noise in NOISES:
        alarms = simulated(noise, series, length)
        lines.append(f"| {noise.name} | {series * length:,} | {alarms} | {alarms / series / length * 10_000:.3f} |")
    return "\n".join([*lines, ""])


def table_of(jobs: list[dict[str, Any]]) -> list[str]:
    cases = [case for one in jobs for case in one["cases"]]
    steps, steady = sum(one["steps"] for one in jobs), sum(one["steady"] for one in jobs)
    false = sum(len(one["false"]) for one in jobs)
    lines = [
        "",
        "| cause | slow-downs | found | onset within 10 steps | rank or host right | cause right | all right | "
        "steps until noticed: median, 90 % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for cause in (*NAMED, "all"):
        those = [case for case in cases if cause in (case["planned"]["cause"], "all")]
        seen = [case for case in those if "onset" in case]
        close = sum(abs(case["onset"]) <= CLOSE for case in seen)
        delays = sorted(case["noticed"] for case in seen if case["noticed"] is not None) or [0]
        right = sum(map(is_right, those))
        lines.append(
            f"| {cause} | {len(those)} | {len(seen)} | {close} | {sum(case['who'] for case in seen)} | "
            f"{sum(case['cause'] for case in seen)} | {right} ({right / max(1, len(those)):.1%}) | "
            f"{median(delays):.0f}, {delays[int(0.9 * (len(delays) - 1))]} |"
        )
    rate = false / max(1, steady) * 10_000
    return [*lines, "", f"False alarms: {false} in {steady:,} steady of {steps:,} steps ({rate:.2f} in 10,000)."]


if __name__ == "__main__":
    main()
