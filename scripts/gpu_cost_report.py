"""gpu_cost_report.py ARCHIVE: what gpu_cost.sh brought back, and whether recording stays within its bars.

Times are compared within a round only. A mode's figure is the median over all rounds of its time divided by the mean of
the two bare programs in the same round; those two show how far equal programs lie apart. Exit code 1 where a bar is
missed.
"""

from __future__ import annotations

import json
import statistics
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_checks import Checks
from gpu_rows import process_of
from gpu_verify import check_parts

Rounds = list[dict[str, dict[str, float]]]  # of each round: mode -> measure -> us
BARS = {("launches", "sync"): 1.15, ("launches", "all"): 1.5, ("resnet", "sync"): 1.01}
MEASURES = ("wall_us", "cpu_us", "process_us")
MOST_EXIT_S, MANY = 0.5, 10_000_000


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from (json.loads(line) for line in path.read_text().splitlines() if line.startswith("{"))


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ratios(rounds: Rounds, mode: str, measure: str) -> list[float]:
    """To the mean of the bare programs, round by round."""
    found = []
    for turns in rounds:
        bare = [turn[measure] for name, turn in turns.items() if name.startswith("bare")]
        if mode in turns and any(bare):
            found.append(turns[mode][measure] / statistics.mean(bare))
    return found


def show_times(checks: Checks, rounds: Rounds) -> None:
    modes = list(dict.fromkeys(mode for turns in rounds for mode in sorted(turns)))
    checks.note(
        f"{'mode':13} {'best us':>11} {'p10':>11} {'median':>11}   ratio to bare (quartiles): wall, thread, process"
    )
    for mode in modes:
        wall = [turns[mode]["wall_us"] for turns in rounds if mode in turns]
        parts = []
        for measure in MEASURES:
            of_bare = ratios(rounds, mode, measure)
            parts.append(
                f"{statistics.median(of_bare):.3f} ({quantile(of_bare, 0.25):.3f} {quantile(of_bare, 0.75):.3f})"
            )
        figures = f"{min(wall):11.3f} {quantile(wall, 0.1):11.3f} {statistics.median(wall):11.3f}"
        checks.note(f"{mode:13} {figures}   {', '.join(parts)}")


def check_turns(checks: Checks, work: Path, what: str) -> None:
    lines = list(lines_of(work / f"{what}.jsonl"))
    if not lines:
        return
    sets: dict[int, Rounds] = {}
    for line in lines:
        if "turns" in line:
            sets.setdefault(line["set"], []).append(line["turns"])
        elif line["ended"].get("stop_s", 0) > 0.1 or line["ended"]["exit"]:
            checks.note(f"set {line['set']}: {line['ended']}")
    rounds = [turns for made in sets.values() for turns in made]
    checks.note(f"--- {what}: {len(rounds)} rounds in {len(sets)} sets of processes")
    if not rounds:
        checks.that(False, f"{what}: no round was finished")
        return
    show_times(checks, rounds)
    for mode in sorted({mode for turns in rounds for mode in turns}):
        by_set = [statistics.median(ratios(made, mode, "wall_us")) for made in sets.values()]
        checks.note(f"{mode}: median ratio of each set {', '.join(f'{ratio:.3f}' for ratio in by_set)}")
    for (where, mode), bar in BARS.items():
        if where == what and ratios(rounds, mode, "wall_us"):
            checks.under(f"{what}, {mode} ÷ bare", statistics.median(ratios(rounds, mode, "wall_us")), bar)


def check_exit(checks: Checks, work: Path) -> None:
    lines = [line for line in lines_of(work / "exit.jsonl") if line.get("exit_s") is not None]
    bare = [line["exit_s"] for line in lines if line["mode"] == "bare"]
    if not bare:
        return
    checks.note(f"--- the end of a process: bare {', '.join(f'{s:.3f}' for s in bare)} s")
    for line in lines:
        if line["mode"] == "bare":
            continue
        added = line["exit_s"] - statistics.median(bare)
        checks.under(
            f"s added to the end after {line['kernels']} kernels in {line['loop_s']:.1f} s", added, MOST_EXIT_S
        )
        process = process_of(work / line["run"], line["pid"])
        kept = sum(row.calls for row in process.counted("gpu") if row.name == "exit_tiny")
        checks.equal("and in the file are", kept, line["kernels"])
    most = max((line["kernels"] for line in lines if line["mode"] != "bare"), default=0)
    checks.that(most >= MANY, f"{most} records were reached, {MANY} are asked for")


def report(work: Path) -> int:
    checks = Checks()
    if (work / "machine.txt").exists():
        checks.note((work / "machine.txt").read_text().strip())
    check_parts(checks, work)
    for what in ("launches", "floor", "resnet"):
        check_turns(checks, work, what)
    check_exit(checks, work)
    return checks.end()


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(sys.argv[1]) as archive:
            archive.extractall(name, filter="data")
        return report(Path(name))


if __name__ == "__main__":
    sys.exit(main())
