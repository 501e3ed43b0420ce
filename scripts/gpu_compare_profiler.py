"""gpu_compare_profiler.py RUN TRACE: the same ranks recorded (RUN) and, in other processes, under torch.profiler.

TRACE is what train_ddp_003.py --profiler FILE was given; the traces are FILE.R.trace.json.gz. Counts by kernel must be
equal, of the whole process and of each measured pass (differences in the warm-up, while a recorder may still be finding
out what to listen to, are said but not judged); times are compared by their sums, medians over passes, ranks and
repeats. NCCL's kernels run while they wait for the other rank, so their time is said but not judged.
"""

from __future__ import annotations

import ctypes
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpu_checks import Checks
from gpu_rows import Process, processes_of
from rankscope.formats import kineto
from rankscope.formats.source import Source

Work = dict[str, tuple[int, float]]  # kernel -> calls, ns
TIME_SHARE = 0.03
PASS = re.compile(r"warmup|measured( \d+)?")
WHOLE = "whole process"
LOSSES = ("dropped", "unattributed", "unplaced_calls", "late_markers", "folded_nodes", "folded_work")


def demangled(name: str) -> str:
    """As the C++ library has it, which torch.profiler asks too."""
    if not name.startswith("_Z"):
        return name
    library = ctypes.CDLL("libstdc++.so.6")
    demangle, status = library.__cxa_demangle, ctypes.c_int()
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    text = demangle(name.encode(), None, None, ctypes.byref(status))
    return ctypes.string_at(text).decode() if text else name


def common_name(name: str) -> str:
    """Kineto says `Memcpy HtoD (Pinned -> Device)` and `Memset (Device)`."""
    copy = re.match(r"Memcpy (\w+)", name)
    if copy:
        return f"[CUDA memcpy {copy[1]}]"
    return "[CUDA memset]" if name.startswith("Memset") else demangled(name)


def add(work: Work, name: str, calls: int, ns: float) -> None:
    before = work.get(name, (0, 0.0))
    work[name] = before[0] + calls, before[1] + ns


def recorded_work(process: Process) -> dict[str, Work]:
    """By pass; what is not in a pass is in the whole only."""
    work: dict[str, Work] = {WHOLE: {}}
    for row in process.counted("gpu"):
        add(work[WHOLE], common_name(row.name), row.calls, row.total_ns)
    for row in process.ranged("gpu"):
        if PASS.fullmatch(row.path[0]):
            add(work.setdefault(row.path[0], {}), common_name(row.name), row.calls, row.total_ns)
    return work


def trace_events(path: Path) -> Iterator[tuple[str, str, int, int, int]]:
    """Layer, name, start, end and correlation (or -1)."""
    for reading in kineto.read(Source(path)):
        columns: Any = reading.event_columns
        if columns:
            layers, names = columns["layer"], columns["name"]
            numbers = (columns["start_ns"], columns["end_ns"], np.ma.filled(columns["correlation"], -1))
            for layer, name, start, end, correlation in zip(layers.codes, names.codes, *numbers, strict=True):
                yield layers.values[layer], names.values[name], int(start), int(end), int(correlation)


def profiled_work(path: Path) -> dict[str, Work]:
    """The same of a trace: an activity belongs to the pass in which the call that launched it began."""
    events = list(trace_events(path))
    passes = [(name, start, end) for layer, name, start, end, _ in events if layer == "torch" and PASS.fullmatch(name)]
    launched = {correlation: start for layer, _, start, _, correlation in events if layer == "cuda_api"}
    work: dict[str, Work] = {WHOLE: {}}
    for layer, name, start, end, correlation in events:
        if layer != "gpu":
            continue
        add(work[WHOLE], common_name(name), 1, end - start)
        for passed, begun, over in passes:
            if begun <= launched.get(correlation, -1) < over:
                add(work.setdefault(passed, {}), common_name(name), 1, end - start)
    return work


def is_communication(name: str) -> bool:
    return "nccl" in name.lower()


def time_of(work: Work, communication: bool) -> float:
    return sum(ns for name, (_, ns) in work.items()
               if is_communication(name) is communication and not name.startswith("[CUDA "))  # fmt: skip


def differences(ours: Work, theirs: Work) -> list[str]:
    both = sorted(ours.keys() | theirs.keys())
    counts = [(name, ours.get(name, (0, 0))[0], theirs.get(name, (0, 0))[0]) for name in both]
    return [f"{name[:100]}: {mine} and {other}" for name, mine, other in counts if mine != other]


def compare_counts(checks: Checks, what: str, ours: dict[str, Work], theirs: dict[str, Work]) -> None:
    for part, their_work in theirs.items():
        if part not in ours:
            checks.that(part == "warmup", f"{what}, {part}: nothing is attributed to this pass")
            continue
        different = differences(ours[part], their_work)
        calls = sum(calls for calls, _ in their_work.values())
        text = f"{what}, {part}: {len(their_work)} kinds of kernels, copies and sets, {calls} in all"
        text += f"; different: {'; '.join(different[:8])}" if different else ""
        if part == "warmup" and different:
            checks.note(text)
        else:
            checks.that(not different, text)


def compare_times(
    checks: Checks, what: str, pairs: list[tuple[dict[str, Work], dict[str, Work]]], judged: bool
) -> None:
    """The median over measured passes (or whole processes) of all repeats and ranks."""
    for communication in (False, True):
        mine, other = ([time_of(work, communication) for made in side for part, work in made.items()
                        if part.startswith("measured")] for side in zip(*pairs, strict=True))  # fmt: skip
        if not mine or not other or not statistics.median(other):
            continue
        kind = "NCCL kernels" if communication else "computing kernels"
        ratio = statistics.median(mine) / statistics.median(other)
        text = f"{what}, {kind} of a measured pass: {statistics.median(mine) / 1e6:.3f} ms and"
        text += f" {statistics.median(other) / 1e6:.3f} ms, medians of {len(mine)} and {len(other)}, ratio {ratio:.4f}"
        if communication or not judged:
            checks.note(text)
        else:
            checks.that(abs(ratio - 1) <= TIME_SHARE, text)


def sides(run: Path, trace: Path) -> list[tuple[int, dict[str, Work], dict[str, Work]]]:
    """Rank, recorded, profiled."""
    processes = {process.facts.rank or 0: process for process in processes_of(run) if process.counted("gpu")}
    found = sorted(trace.parent.glob(f"{trace.stem}.*.trace.json.gz"))
    traces = {int(path.name.split(".")[-4]): path for path in found}
    return [
        (rank, recorded_work(processes[rank]), profiled_work(traces[rank]))
        for rank in sorted(processes.keys() & traces.keys())
    ]


def compare(checks: Checks, what: str, repeats: list[tuple[Path, Path]], judged: bool = True) -> None:
    """All repeats of one configuration: (run, FILE of the profiler)."""
    pairs = []
    for number, (run, trace) in enumerate(repeats, 1):
        found = sides(run, trace)
        checks.that(bool(found), f"{what}, repeat {number}: {len(found)} ranks recorded and profiled")
        for process in processes_of(run):
            told = {field: process.state(field) for field in LOSSES if process.state(field)}
            if told:
                checks.note(f"{what}, repeat {number}, rank {process.facts.rank}: {told}")
        for rank, ours, theirs in found:
            compare_counts(checks, f"{what}, repeat {number}, rank {rank}", ours, theirs)
            pairs.append((ours, theirs))
    if pairs:
        compare_times(checks, what, pairs, judged)


def main() -> int:
    checks = Checks()
    compare(checks, Path(sys.argv[1]).name, [(Path(sys.argv[1]), Path(sys.argv[2]))])
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
