"""gpu_profiler_parts.py TRACE [RUN RANK]: what a step is made of on the GPU, by torch.profiler's trace alone.

A second opinion on `gpu_steps`: it shares no code with rankscope. A step ends with the optimizer's; a kernel belongs to
the step in which the call that launched it (same correlation) began; a step lasts from the end of the last
kernel of the step before to that of its own; every moment of it computes, communicates and does nothing else, copies
and does nothing else, or is idle. The first two steps and the last are left out. With RUN, the same of the recorded
run, or of the same trace loaded, and how far they are apart; exit code 1: more than 3 %.
"""

from __future__ import annotations

import gzip
import json
import sys
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Any

COMMUNICATES = ("nccl", "rccl")
NEAR = 0.03
PARTS = ("step", "compute", "exposed", "copy", "idle")
SQL = """
    SELECT avg(end_ns - begin_ns), avg(compute_ns), avg(exposed_ns), avg(copy_ns)
    FROM device_steps JOIN ranks USING (process)
    WHERE rank = $1 AND NOT cut AND number > (SELECT min(number) FROM device_steps) + $2"""


def events_of(path: str) -> list[dict[str, Any]]:
    raw = Path(path).read_bytes()
    text = gzip.decompress(raw) if path.endswith(".gz") else raw
    return [event for event in json.loads(text)["traceEvents"] if event.get("ph") == "X"]


def parts_of(events: list[dict[str, Any]]) -> dict[str, float]:
    """Microseconds of a step, mean."""
    steps = sorted(
        event["ts"] + event["dur"]
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("Optimizer.step#")
    )
    called = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    work = []
    for event in events:
        kind = event.get("cat")
        if kind not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        launched = called.get(event["args"].get("correlation"))
        if launched is None:
            continue
        what = "copy" if kind != "kernel" else "compute"
        if what == "compute" and any(word in event["name"].lower() for word in COMMUNICATES):
            what = "exposed"
        work.append((bisect_right(steps, launched) - 1, event["ts"], event["ts"] + event["dur"], what))
    ends = {}
    for step, _, end, what in work:
        if what != "copy":
            ends[step] = max(ends.get(step, 0.0), end)
    chosen = [step for step in sorted(ends) if step >= 2 and step < len(steps) - 1 and step - 1 in ends]
    since, until = ends[chosen[0] - 1], ends[chosen[-1]]
    sums = dict.fromkeys(PARTS, 0.0)
    sums["step"] = until - since
    changes = sorted({since, until, *(at for _, begin, end, _ in work for at in (begin, end) if since < at < until)})
    open_now: dict[str, int] = {"compute": 0, "exposed": 0, "copy": 0}
    edges = sorted([(begin, 1, what) for _, begin, _, what in work] + [(end, -1, what) for _, _, end, what in work])
    place = 0
    for begin, end in pairwise(changes):
        while place < len(edges) and edges[place][0] <= begin:
            open_now[edges[place][2]] += edges[place][1]
            place += 1
        doing = next((what for what in ("compute", "exposed", "copy") if open_now[what]), "idle")
        sums[doing] += end - begin
    return {name: value / len(chosen) for name, value in sums.items()}


def main() -> int:
    parts = parts_of(events_of(sys.argv[1]))
    if len(sys.argv) < 4:
        print("  ".join(f"{name} {value / 1000:.3f} ms" for name, value in parts.items()))
        return 0
    import rankscope

    run = rankscope.open(sys.argv[2])
    command = run.query("SELECT command FROM run").rows[0][0]
    left_out = 22 if command else 1  # a recorded program has its warm-up in it, a trace that was loaded has none
    (row,) = run.query(SQL, (int(sys.argv[3]), left_out)).rows
    told = dict(zip(PARTS, (float(value) / 1000 for value in row), strict=False))
    told["idle"] = told["step"] - told["compute"] - told["exposed"] - told["copy"]
    worst = 0.0
    for name in PARTS:
        apart = (told[name] - parts[name]) / parts["step"]
        worst = max(worst, abs(apart))
        both = f"recorded {told[name] / 1000:9.3f} ms, torch.profiler {parts[name] / 1000:9.3f} ms"
        print(f"{name:8} {both}, {apart:+.1%} of the step")
    return 1 if worst > NEAR else 0


if __name__ == "__main__":
    sys.exit(main())
