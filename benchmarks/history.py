"""Histories with known truth: are planted regressions found, is anything else called one, and how long does it take?

python benchmarks/history.py                      ten histories of 10,000 runs with 20 regressions each
python benchmarks/history.py --null               histories without any: how often is something found?
python benchmarks/history.py --million            time and memory of a million summaries
python benchmarks/history.py --summarise FOLDER   how long summarising the runs of a folder takes, and asking again
With --write the figures of a part go into benchmarks/results/history.md, in place of those from before.

The law knows nothing of the method: series of one project, command and number of ranks; noise of 1 to 3 % from run to
run, a wander that remembers (AR(1) with 0.98, up to 1.5 %), 3 % of runs 1.2 to 3 times as long, three hosts of 64 that
are 8 to 15 % slower, three series that creep up by 10 % from their first run to their last."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.store.history import FOLDER, schema

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "history.md"
RANKSCOPE = ROOT / ".venv" / "bin" / "rankscope"
SERIES, REGRESSIONS, CREEPING = 50, 20, 3
FROM_ENDS = 15  # runs on each side of what is planted
CLOSE = 5  # runs between what was planted and what is found
KINDS = ["step"] * 13 + ["exposed communication"] * 3 + ["start-up"] * 2 + ["goodput"] * 2
START_NS = 1_760_000_000 * 10**9


@dataclass(frozen=True, slots=True)
class Planted:
    series: int
    kind: str
    at: int  # place of the first run
    until: int  # the place after the last
    share: float


def lengths(random: Any, runs: int, series: int) -> Any:
    """Few long ones and many short ones."""
    weights = random.pareto(1.5, series) + 0.5
    least = 2 * FROM_ENDS + 10
    made = np.maximum(least, (weights / weights.sum() * runs).astype(int))
    made[np.argmax(made)] += runs - made.sum()
    return made


def planted_in(random: Any, counts: Any) -> list[Planted]:
    """At most one a series; a quarter of them is mended later where there is room."""
    made = []
    for kind, series in zip(KINDS, random.choice(len(counts) - CREEPING, REGRESSIONS, replace=False), strict=True):
        count = int(counts[series])
        at = int(random.integers(FROM_ENDS, count - FROM_ENDS))
        until = count
        if random.random() < 0.25 and count - at > 3 * FROM_ENDS:
            until = int(random.integers(at + FROM_ENDS, count - FROM_ENDS))
        share = {"start-up": random.uniform(0.4, 1.0), "goodput": -random.uniform(0.12, 0.3)}.get(kind)
        made.append(Planted(int(series), kind, at, until, share if share is not None else random.uniform(0.06, 0.3)))
    return made


def wander(random: Any, count: int) -> Any:
    steps = random.normal(0, 1, count)
    made = np.empty(count)
    last = 0.0
    for at in range(count):
        last = 0.98 * last + steps[at] * np.sqrt(1 - 0.98**2)
        made[at] = last
    return made


def history(seed: int, runs: int, series: int = SERIES, plants: bool = True) -> tuple[pa.Table, list[Planted]]:
    random = np.random.default_rng(seed)
    counts = lengths(random, runs, series)
    planted = planted_in(random, counts) if plants else []
    slow = {f"node{host:02}": 1 + random.uniform(0.08, 0.15) for host in random.choice(64, 3, replace=False)}
    tables = []
    for at, count in enumerate(counts.tolist()):
        mine = [one for one in planted if one.series == at]
        tables.append(one_series(random, at, count, mine, slow, creeps=plants and at >= series - CREEPING))
    return pa.concat_tables(tables), planted


def one_series(random: Any, at: int, count: int, planted: list[Planted], slow: dict[str, float], creeps: bool) -> Any:
    nodes = int(random.choice([1, 1, 2, 4, 8]))
    picks = np.stack([random.choice(64, nodes, replace=False) for _ in range(count)])
    hosts = [[f"node{host:02}" for host in sorted(row)] for row in picks.tolist()]
    own = np.array([[slow.get(host, 1.0) for host in row] for row in hosts])
    own *= random.lognormal(0, 0.01, own.shape)
    noise, carried = random.uniform(0.01, 0.03), random.uniform(0, 0.015) * wander(random, count)
    base, share = 10 ** random.uniform(7.3, 9.3), random.uniform(0.05, 0.3)
    compute, exposed = np.full(count, base), base * share * random.lognormal(0, 0.1, count)
    startup = 10 ** random.uniform(9.7, 10.8) * random.lognormal(0, 0.12, count)
    goodput = np.clip(random.uniform(0.7, 0.9) * random.lognormal(0, 0.03, count), 0, 1)
    for one in planted:
        where = slice(one.at, one.until)
        if one.kind == "step":
            compute[where] *= 1 + one.share * (1 + share)
        elif one.kind == "exposed communication":
            exposed[where] += base * (1 + share) * one.share
        elif one.kind == "start-up":
            startup[where] *= 1 + one.share
        else:
            goodput[where] *= 1 + one.share
    compute = compute * np.linspace(1, 1.1, count) if creeps else compute
    outlier = np.where(random.random(count) < 0.03, random.uniform(1.2, 3, count), 1.0)
    step = (compute * own.max(axis=1) + exposed) * np.exp(random.normal(0, noise, count) + carried) * outlier
    started = START_NS + np.cumsum(random.exponential(3600e9, count)).astype(np.int64) + at
    commits = [f"{(at * 7919 + number // 3) * 2654435761 % 16**10:010x}{'0' * 30}" for number in range(count)]
    return pa.table(
        {
            "run": [f"s{at:03}-{number:06}" for number in range(count)],
            "started_ns": started,
            "project": [f"/home/u/project{at % 8}"] * count,
            "command": [f"torchrun train{at % 5}.py --model m{at}"] * count,
            "commit": commits,
            "labels": [""] * count,
            "version": ["0.1.0"] * count,
            "libraries": ["torch 2.13.0"] * count,
            "launcher": ["torchrun"] * count,
            "ranks": [8 * nodes] * count,
            "is_complete": [True] * count,
            "failed_ranks": [0] * count,
            "steps": [1000] * count,
            "step_ns": step,
            "exposed_ns": exposed,
            "startup_ns": startup,
            "goodput": goodput,
            "elapsed_ns": startup + 1000 * step,
            "hosts": hosts,
            "host_own_ns": (own * base).tolist(),
            "problem": [""] * count,
            "summarised_ns": started,
        },
        schema(),
    )


def write(folder: Path, rows: pa.Table) -> None:
    place = folder / FOLDER
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    pq.write_table(rows, place / "1.parquet", compression="zstd")


def asked(folder: Path, *options: str) -> tuple[str, float, float]:
    """Output, seconds and MiB of the whole command."""
    began = time.perf_counter()
    process = subprocess.Popen([RANKSCOPE, "history", folder, *options], stdout=subprocess.PIPE, text=True)
    out, _ = process.communicate()
    seconds = time.perf_counter() - began
    assert process.returncode == 0, out
    return out, seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


# ---------------------------------------------------------------- was it found?
def rows_of(out: str, name: str) -> list[dict[str, Any]]:
    table = next(table for table in json.loads(out)["tables"] if table["name"] == name)
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


def judged(out: str, planted: list[Planted], series: int) -> dict[str, int]:
    """Regressions are found where a row of that series begins near the run; the end of one that was mended is no false
    improvement. What creeps is neither, if it is called gradual."""
    rows = rows_of(out, "regressions")
    found: set[Planted] = set()
    told = {"found": 0, "false": 0, "false improvements": 0, "creeping": 0}
    for row in rows:
        at_series, at = int(row["run"][1:4]), int(row["run"][5:])
        near = [one for one in planted if one.series == at_series and abs(one.at - at) <= CLOSE]
        mended = [one for one in planted if one.series == at_series and abs(one.until - at) <= CLOSE]
        if row["verdict"] == "worse" and near:
            found.update(near)
        elif at_series >= series - CREEPING and row["kind"] == "gradual" and row["verdict"] == "worse":
            told["creeping"] += 1
        elif row["verdict"] == "worse":
            told["false"] += 1
            print(f"false: {row}", file=sys.stderr)
        elif not mended:
            told["false improvements"] += 1
            print(f"false: {row}", file=sys.stderr)
    for one in set(planted) - found:
        print(f"missed: {one}", file=sys.stderr)
    return {**told, "found": len(found)}


def machine() -> str:
    here = f"{os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}"
    return f"{time.strftime('%Y-%m-%d')}, {here}"


def plain(histories: int, runs: int) -> str:
    names = ["history", "found, of 20", "false regressions", "false improvements", "creeping told as gradual, of 3"]
    names += ["slow hosts, of 3", "s", "MiB"]
    lines = [f"| {' | '.join(names)} |", "|---|---|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as place:
        for seed in range(1, histories + 1):
            rows, planted = history(seed, runs)
            write(Path(place), rows)
            out, seconds, mib = asked(Path(place), "--format", "json")
            told = judged(out, planted, SERIES)
            hosts = rows_of(out, "slow_hosts")
            cells = (seed, told["found"], told["false"], told["false improvements"], told["creeping"], len(hosts))
            lines.append(f"| {' | '.join(map(str, cells))} | {seconds:.1f} | {mib:.0f} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def null(histories: int, runs: int) -> str:
    """Nothing planted, no creeping: each row is false."""
    worse = better = 0
    with tempfile.TemporaryDirectory() as place:
        for seed in range(1001, 1001 + histories):
            rows, _ = history(seed, runs, plants=False)
            write(Path(place), rows)
            told = judged(asked(Path(place), "--format", "json")[0], [], SERIES)
            worse, better = worse + told["false"], better + told["false improvements"]
            print(seed, told, flush=True)
    told = f"{worse} false regressions and {better} false improvements"
    return f"Without any regression, {histories} histories of {runs:,} runs: {told}."


def million(runs: int) -> str:
    lines = ["| runs | series | Parquet MiB | screen s | MiB | page s | MiB |", "|---|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as place:
        series = max(SERIES, runs // 250)
        rows, _ = history(7, runs, series)
        write(Path(place), rows)
        size = sum(path.stat().st_size for path in (Path(place) / FOLDER).iterdir()) / 2**20
        _, seconds, mib = asked(Path(place))
        _, page_s, page_mib = asked(Path(place), "--html", f"{place}/page.html")
        lines.append(
            f"| {runs:,} | {series:,} | {size:.0f} | {seconds:.1f} | {mib:.0f} | {page_s:.1f} | {page_mib:.0f} |"
        )
    return "\n".join(lines)


def summarise(folder: Path) -> str:
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    count = sum(1 for path in folder.iterdir() if (path / "ranks").is_dir() and not path.is_symlink())
    _, first_s, _ = asked(folder)
    _, again_s, _ = asked(folder)
    first = f"{first_s:.1f} s the first time ({1000 * first_s / count:.0f} ms a run)"
    return f"{count} recorded runs: {first}, {again_s:.1f} s when asked again."


def keep(part: str, text: str) -> None:
    """In place of what that part said before."""
    before = RESULT.read_text(encoding="utf-8") if RESULT.exists() else "# Regressions over many runs\n"
    whole = f"## {part}\n`benchmarks/history.py`, {machine()}.\n\n{text}\n"
    pattern = re.compile(rf"## {re.escape(part)}\n.*?(?=\n## |\Z)", re.DOTALL)
    after = (
        pattern.sub(lambda _: whole.rstrip("\n"), before) if pattern.search(before) else f"{before.rstrip()}\n\n{whole}"
    )
    RESULT.write_text(after.rstrip("\n") + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=10)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--null", action="store_true")
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--summarise", type=Path, metavar="FOLDER")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.null:
        part, text = "Nothing planted", null(options.histories, options.runs)
    elif options.million:
        part, text = "Many runs", million(1_000_000 if options.runs == 10_000 else options.runs)
    elif options.summarise:
        part, text = "Summarising", summarise(options.summarise)
    else:
        part, text = "Planted regressions", plain(options.histories, options.runs)
    print(text)
    if options.write:
        keep(part, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
