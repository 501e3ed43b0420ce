"""gpu_truth_verify.py RUN TRUTH: steps on a GPU as recorded, against what gpu_truth.py knows of them.

Prints for all steps but the first ones how far off each part is as a share of the step, how far the sums over all
steps are off, and of how much idle time the cause is right. Exit code 1: more than 2 % in a step (beside what the
comparison of clocks leaves open), 0.1 % in a sum of the device, or less than 95 % of causes.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from statistics import linear_regression, median

import rankscope
from gpu_step_truth import COPY, Span, expected, truth_of

WARM = 4
DEVICE = {"compute": "compute_ns", "exposed": "exposed_ns", "hidden": "overlapped_ns", "copy": "copy_ns"}
CAUSES = ("launch", "data", "sync", "gc", "compile", "blocked", "checkpoint", "python", "device", "unknown")
OF_STEP, OF_SUM, OF_CAUSES = 0.02, 0.001, 0.95


def main() -> int:
    run, told = sys.argv[1:3]
    clocks, *lines = Path(told).read_text().splitlines()
    clock_ns = max(int(word) for word in clocks.split()[1:3])
    copy_ns = length_of_copies(lines.pop(0)) if lines[0].startswith("copies ") else None
    known = truth_of(lines)
    truth = expected(known if copy_ns is None else known._replace(activities=trimmed(copy_ns, known.activities)))
    rows = rankscope.open(run).query("SELECT * FROM device_steps ORDER BY number").to_arrow().to_pylist()
    found = {row["number"]: row for row in rows}
    bad = check_steps(truth, found, clock_ns)
    sums = check_sums(truth, found)
    right = check_causes(truth, found)
    print(f"{len(found)} of {len(truth)} steps told; clocks compared to {clock_ns} ns")
    return 1 if bad or sums > OF_SUM or right < OF_CAUSES else 0


def length_of_copies(line: str) -> int:
    """How long the schedules' copies, all of the last size, take at the rate by which longer ones take longer.

    The rest of the time between two kernels is the way from one engine to the other and back, which takes longer while
    other streams are busy.
    """
    sizes, spans = zip(*(map(int, word.split(":")) for word in line.split()[1:]), strict=True)
    fit = linear_regression(sizes, spans)
    print(
        f"copies of {sizes[0]:,} to {sizes[-1]:,} bytes: {spans[0]:,} to {spans[-1]:,} ns between two kernels, "
        f"{1 / fit.slope:.1f} GB/s, {fit.intercept:,.0f} ns on the way"
    )
    return round(fit.slope * sizes[-1])


def trimmed(copy_ns: int, activities: list[Span]) -> list[Span]:
    """Without that way: what is longer than the copy, but no more than in most: a copy may be slow itself."""
    extras = [span.end_ns - span.start_ns - copy_ns for span in activities if span.kind == COPY]
    usual_ns = max(0, round(median(extras))) if extras else 0

    def trim(span: Span) -> Span:
        way_ns = min(usual_ns, max(0, span.end_ns - span.start_ns - copy_ns))
        return span._replace(start_ns=span.start_ns + way_ns // 2, end_ns=span.end_ns - way_ns // 2)

    print(f"{len(extras)} copies of schedules: {usual_ns:,} ns on the way in the median")
    return [trim(span) if span.kind == COPY else span for span in activities]


def steady(truth: list[dict[str, float]], found: dict[int, dict[str, float]]) -> list[tuple[int, dict[str, float]]]:
    return [(number, one) for number, one in enumerate(truth, 1) if number > WARM and number in found]


def check_steps(truth: list[dict[str, float]], found: dict[int, dict[str, float]], clock_ns: int) -> int:
    """Parts of the device by step."""
    off: dict[str, list[float]] = defaultdict(list)
    bad = 0
    for number, one in steady(truth, found):
        row, length = found[number], one["end"] - one["begin"]
        parts = {**{name: row[column] for name, column in DEVICE.items()}}
        parts["idle"] = sum(row[f"idle_{cause}_ns"] for cause in CAUSES)
        wanted = {**one, "idle": sum(one.get(cause, 0.0) for cause in CAUSES)}
        worst = 0.0
        for name, ns in parts.items():
            off[name].append(abs(ns - wanted.get(name, 0.0)) / length)
            worst = max(worst, abs(ns - wanted.get(name, 0.0)) - clock_ns)
        bad += worst > OF_STEP * length or row["kernels"] != one["kernels"]
    for name, values in off.items():
        values.sort()
        print(f"{name:9} off by {values[len(values) // 2]:.3%} of the step in the median, {values[-1]:.3%} at most")
    print(f"{bad} of {len(steady(truth, found))} steps off by more than {OF_STEP:.0%}, or in their number of kernels")
    return bad


def check_sums(truth: list[dict[str, float]], found: dict[int, dict[str, float]]) -> float:
    """Over all steps, as a share of all their time."""
    pairs = steady(truth, found)
    all_ns = sum(one["end"] - one["begin"] for _, one in pairs)
    worst = 0.0
    for name, column in DEVICE.items():
        difference = sum(found[number][column] for number, _ in pairs) - sum(one.get(name, 0.0) for _, one in pairs)
        worst = max(worst, abs(difference) / all_ns)
        print(f"{name:9} in all: off by {difference / all_ns:+.4%}")
    adds_up = max(
        abs(
            sum(found[number][DEVICE[name]] for name in ("compute", "exposed", "copy"))
            + sum(found[number][f"idle_{cause}_ns"] for cause in CAUSES)
            - (found[number]["end_ns"] - found[number]["begin_ns"])
        )
        / (found[number]["end_ns"] - found[number]["begin_ns"])
        for number, _ in pairs
    )
    print(f"parts add up to the step within {adds_up:.4%}")
    return max(worst, adds_up)


def check_causes(truth: list[dict[str, float]], found: dict[int, dict[str, float]]) -> float:
    """Of all idle time, how much has the cause it had."""
    right = whole = 0.0
    by_cause: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for number, one in steady(truth, found):
        for cause in CAUSES:
            told, wanted = found[number][f"idle_{cause}_ns"], one.get(cause, 0.0)
            right += min(told, wanted)
            whole += wanted
            by_cause[cause][0] += told
            by_cause[cause][1] += wanted
    for cause, (told, wanted) in by_cause.items():
        if told or wanted:
            print(f"idle: {cause:10} told {told / 1e6:10.3f} ms, true {wanted / 1e6:10.3f} ms")
    print(f"the cause is right for {right / whole:.2%} of {whole / 1e9:.3f} s idle")
    return right / whole


if __name__ == "__main__":
    sys.exit(main())
