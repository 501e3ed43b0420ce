"""gpu_neighbours_verify.py ARCHIVE: what gpu_neighbours.sh brought back; a line for every check.

Exit code 1 where a check does not hold, or where there was nothing to check.
"""

from __future__ import annotations

import json
import statistics
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from gpu_checks import Checks
from gpu_rows import process_of

PAIRS = (("theirs-1", "both-1"), ("theirs-2", "both-2"), ("theirs-all", "both-all"))
RECORDED = ("ours", "both-1", "both-2", "both-all", "alternating")
MOST_ADDED_US = 0.2
RANKS = 2


def counted(folder: Path, job: str, rank: int) -> list[str]:
    path = folder / f"counts.{job}.{rank}"
    return path.read_text().splitlines() if path.exists() else []


def without_states(lines: list[str]) -> list[str]:
    """Progress is told as often as NCCL's proxy looks: it differs between two runs of the same job."""
    return [line for line in lines if not line.startswith("state")]


def check_counts(checks: Checks, folder: Path) -> None:
    for alone, beside in PAIRS:
        for rank in range(RANKS):
            wanted, got = counted(folder, alone, rank), counted(folder, beside, rank)
            events = sum(int(line.rpartition(" ")[2]) for line in got if line.startswith("start"))
            checks.that(bool(wanted), f"{alone}, rank {rank}: the foreign plugin wrote what it counted")
            checks.equal(f"{beside}, rank {rank}: its {events} events", without_states(got), without_states(wanted))
            for line in got:
                if line.startswith("wrong"):
                    checks.note(f"{beside}, rank {rank}: handles that it did not give: {line}; alone the same")


def check_recorded(checks: Checks, folder: Path, ends: dict[str, Any]) -> None:
    for job in RECORDED:
        for rank, told in enumerate(ends.get(job, {}).get("ranks", [])):
            process = process_of(folder / "runs" / job, told["pid"])
            for kind in ("call", "progress"):  # enqueued, and done by the device
                rows = [row for row in process.counted("nccl") if (row.name, row.kind) == ("ncclAllReduce", kind)]
                recorded = sum(row.calls for row in rows)
                checks.equal(f"{job}, rank {rank}: all-reduces recorded ({kind})", recorded, told["all_reduces"])


def check_cost(checks: Checks, rounds: list[dict[str, Any]]) -> None:
    """In one process by turns: what the plugins take, and the whole enqueuing call, which varies a hundred times as
    much. Processes differ by themselves, so theirs are told. Judged are turns of many calls, as a job makes them, with
    nothing but these between; with turns of single calls either side finds less in the caches than in a job."""
    warm = [line["jobs"] for line in rounds if line["round"] != 0]
    within = [line for line in rounds if line["round"] < 0]
    batches = [line["jobs"] for line in within if not line.get("by")]
    singles = [line["jobs"] for line in within if line.get("by")]

    def of_sides(turns: list[dict[str, Any]], *names: str) -> list[list[float]]:
        return [[value for jobs in turns for value in jobs.get("alternating", {}).get(name, [])] for name in names]

    for turns, how in ((batches, "turns of 40"), (singles, "turns of one")):
        plugins = of_sides(turns, "plugin_ns", "behind_plugin_ns")
        if not all(plugins):
            checks.that(turns is not batches, "collectives were timed in the plugins of either side")
            continue
        alone, behind = (statistics.median(side) for side in plugins)
        quarters = [statistics.quantiles(side, n=4) for side in plugins]
        checks.note(
            f"{how}: in the plugins, of a collective: theirs alone {alone:.0f} ns (middle half {quarters[0][0]:.0f} to "
            f"{quarters[0][2]:.0f}), behind ours {behind:.0f} ns ({quarters[1][0]:.0f} to {quarters[1][2]:.0f})"
        )
        checks.note(f"{how}: standard error of the difference of the medians: {error_of(*plugins):.0f} ns")
        if turns is batches:
            checks.under("us added in the plugins to a collective, median", (behind - alone) / 1e3, MOST_ADDED_US)
    sides = of_sides(warm, "us", "behind_us")
    if all(sides):
        alone, behind = map(statistics.median, sides)
        quarters = [statistics.quantiles(side, n=4)[0] for side in sides]
        checks.note(f"all-reduce, theirs alone {alone:.2f} us, behind ours {behind:.2f} us ({len(sides[1])} calls)")
        added_us = quarters[1] - quarters[0]
        checks.note(f"a quarter is below {quarters[0]:.2f} and {quarters[1]:.2f} us, difference {added_us:+.2f}")
        checks.note(f"standard error of the difference of the medians: {error_of(sides[0], sides[1]):.2f} us")
        checks.note(f"of the whole enqueuing call, median: {behind - alone:+.2f} us")
    for job in sorted({name for jobs in warm for name in jobs}):
        medians = [statistics.median(jobs[job]["us"]) for jobs in warm if jobs.get(job, {}).get("us")]
        checks.note(f"{job}: median call {statistics.median(medians):.2f} us in {len(medians)} rounds")


def error_of(first: list[float], second: list[float]) -> float:
    """Standard error of the difference of two medians, from their quartiles."""
    squares = 0.0
    for side in (first, second):
        low, _, high = statistics.quantiles(side, n=4)
        squares += (1.253 * (high - low) / 1.349) ** 2 / len(side)
    return float(squares**0.5)


def check_others(checks: Checks, folder: Path, ends: dict[str, Any]) -> None:
    alone, beside = (ends.get(job) for job in ("crash-theirs", "crash-both"))
    checks.that(bool(alone) and (alone or {}).get("rank") == {"exit": -11}, f"the plugin crashes alone: {alone}")
    checks.equal("a plugin that crashes ends the job alike", beside, alone)
    texts = [(folder / f"profiler.{who}").read_text() for who in ("bare", "both")]
    checks.that(texts[0].count("\n") == 3, "torch.profiler works without us")
    checks.equal("torch.profiler inside counts the same", texts[1].splitlines(), texts[0].splitlines())
    for job, end in ends.items():
        if not job.startswith("crash"):
            checks.equal(f"{job}: exit code", end.get("exit", end), 0)


def verify(folder: Path) -> int:
    checks = Checks()
    ends = json.loads((folder / "ends.json").read_text())
    rounds = [json.loads(line) for line in (folder / "turns.jsonl").read_text().splitlines()]
    check_counts(checks, folder)
    check_recorded(checks, folder, ends)
    check_cost(checks, rounds)
    check_others(checks, folder, ends)
    return checks.end()


def main() -> int:
    with tempfile.TemporaryDirectory() as work, tarfile.open(sys.argv[1]) as archive:
        archive.extractall(work, filter="data")
        return verify(Path(work) / "neighbours")


if __name__ == "__main__":
    sys.exit(main())
