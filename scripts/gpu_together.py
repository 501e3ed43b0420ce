"""What recording costs over minutes: the same training in several modes at the same time, by turns on the same cores.

    gpu_together.py --modes bare bare-2 bare-3 windows windows-2 late late-2 many --out turns.jsonl --runs FOLDER

For launch-bound programs, which leave the GPU idle: they share it without waiting for each other, and each has cores of
its own. Every few seconds the programs change cores, so that a slow core slows all of them in turn; what each did in
a turn is one line. Turns in which all rest (gpu_turns.py) would give windows time to rest that a job does not have.
Processes of one program differ by some per cent for as long as they live, whatever is recorded. So `late` and `many`
begin with WARM_STEPS steps in which nothing of the GPU is recorded: what comes after is held against these. `late` then
records as by default, `many` ten times as often.
`--report FILE…` reads the lines: the logarithm of a step is the sum of what belongs to the process (before and after
its first window), to the turn and to the cores, by least squares; ratios are to the mean of the bare processes. What
changes with the first window is known only as well as the bare processes tell what the machine did meanwhile: have as
many of them as of `late`.
Each process also writes down when each of its steps ended (FOLDER/MODE.steps). `--inside FOLDER…` reads these and the
windows in the runs beside them: how much longer the steps in a window are than those around it in the same process on
the same cores, which the machine's moods hardly touch, and what the recorder itself claims. How well one window is
known is told by stretches in which there is none: what they seem to cost.
`--leave-out FILE:MODE…` leaves processes out of a report.
As a program: gpu_together.py --work MODE.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
from array import array
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

TURN_S = 5.0
AROUND_S, AROUND_LEAST = 2.0, 100  # on either side of a window, and steps there: what its steps are held against
EDGE_S = 0.1  # before and after a window: attaching and taking off
PAUSE_S = 0.5  # no step takes so long: programs wait for each other before the first turn
RECORDED = {
    "exact": ("--cuda", "exact"),
    "windows": ("--cuda", "windows"),
    "no-cuda": ("--cuda", "off"),
    "no-torch": ("--cuda", "off"),  # nor the torch observer: what the library costs by being there
    "late": ("--cuda", "windows"),
    "many": ("--cuda", "windows"),
}
WARM_STEPS = 4400
OF_ALL = "after/before, all"
LATE = {"RANKSCOPE_CUDA_WARM_STEPS": str(WARM_STEPS)}
ENVIRONMENT = {"no-torch": {"RANKSCOPE_TORCH": "0"}, "late": LATE, "many": {**LATE, "RANKSCOPE_CUDA_SHARE": "0.06"}}


def work(mode: str, ends_file: Path) -> None:
    """Trains until told to end; a line for each turn that is asked for: steps and the seconds they took."""
    import torch

    from gpu_programs.problems import transformer

    model = transformer(128, 4)
    x = torch.randn(4, 64, 128, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    ends = array("d")

    def train(until: float) -> tuple[int, float]:
        begun, steps = time.monotonic(), 0
        while time.monotonic() < until:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            steps += 1
            ends.append(time.time())
        torch.cuda.synchronize()
        return steps, time.monotonic() - begun

    train(time.monotonic() + 0.5)
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "end\n":
            break
        until = float(line)
        profile: Any = torch.profiler.profile() if mode == "profiler" else contextlib.nullcontext()
        with profile:
            steps, seconds = train(until)
        print(json.dumps({"steps": steps, "seconds": seconds}), flush=True)
        ends.append(float("nan"))  # what comes next is no step
    ends_file.write_bytes(ends.tobytes())


def kind_of(mode: str) -> str:
    """bare-2, bare-3: more processes of a mode."""
    return re.sub(r"(-again)?(-\d+)?$", "", mode)


def start(mode: str, runs: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", mode, "--out", str(runs / f"{mode}.steps")]
    kind = kind_of(mode)
    if kind in RECORDED:
        command = [
            sys.executable,
            "-m",
            "rankscope",
            "run",
            "--quiet",
            "--out",
            str(runs / mode),
            *RECORDED[kind],
            *command,
        ]
    environment = {**os.environ, **ENVIRONMENT.get(kind, {})}
    environment["PADDING"] = "x" * random.randrange(4096)  # where the stack begins is a matter of luck, in all alike
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def move(pid: int, cores: set[int]) -> None:
    """The process, its threads and its children."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task.name), cores)
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                move(int(child), cores)


def play(options: argparse.Namespace) -> None:
    players = {mode: start(mode, options.runs) for mode in options.modes}
    for mode, player in players.items():
        assert player.stdout is not None
        if player.stdout.readline() != "ready\n":
            raise SystemExit(f"gpu_together: {mode} did not start")
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // len(players)
    begun, number = time.monotonic(), 0
    with options.out.open("a") as out:
        while time.monotonic() - begun < options.seconds:
            for place, player in enumerate(players.values()):
                first = (place + number) % len(players) * each
                move(player.pid, set(cores[first : first + each]))
            until = time.monotonic() + TURN_S
            for player in players.values():
                assert player.stdin is not None
                player.stdin.write(f"{until}\n")
                player.stdin.flush()
            turn = {mode: json.loads(player.stdout.readline()) for mode, player in players.items() if player.stdout}
            out.write(json.dumps({"turn": number, "at_s": time.monotonic() - begun, "of": turn}) + "\n")
            out.flush()
            number += 1
    for mode, player in players.items():
        player.communicate("end\n", timeout=60)
        print(f"{mode}: exit {player.returncode}")


def report(files: list[Path], left_out: list[str]) -> None:
    """Each process against the bare ones of its own file; of late ones, what came with the first window, too."""
    pooled: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for file in files:
        print(file)
        turns = [json.loads(line)["of"] for line in file.read_text().splitlines()]
        for turn in turns:
            for mode in (mode for mode in list(turn) if f"{file.name}:{mode}" in left_out):
                del turn[mode]
        for name, ratio, error in fitted(turns):
            print(f"  {name:24} {ratio:.4f} ± {error:.4f}")
            mode, _, which = name.partition(":")
            if not which or which == OF_ALL:
                pooled[name if which else kind_of(mode)].append((ratio, error))
    for name, values in pooled.items():
        print(f"{name:24} {pool(values) if OF_ALL in name else spread_of(values)}")


def pool(values: list[tuple[float, float]]) -> str:
    """Of several files: the quieter ones count for more."""
    weights = [error**-2 for _, error in values]
    middle = sum(ratio * weight for (ratio, _), weight in zip(values, weights, strict=True)) / sum(weights)
    return f"{middle:.4f} ± {sum(weights) ** -0.5:.4f} in {len(values)} files"


def spread_of(values: list[tuple[float, float]]) -> str:
    ratios = [ratio for ratio, _ in values]
    error = f" ± {stdev(ratios) / len(ratios) ** 0.5:.4f}" if len(ratios) > 1 else ""
    return f"{mean(ratios):.4f}{error} of {len(ratios)} processes"


def fitted(turns: list[dict[str, dict[str, float]]]) -> Iterator[tuple[str, float, float]]:
    import numpy as np

    modes = list(turns[0])
    columns: dict[str, int] = {}
    rows, logs = [], []
    passed = dict.fromkeys(modes, 0.0)
    for number, turn in enumerate(turns):
        for place, mode in enumerate(modes):
            passed[mode] += turn[mode]["steps"]
            is_late = kind_of(mode) in ("late", "many") and passed[mode] > WARM_STEPS
            words = (
                f"process {mode}{':after' if is_late else ''}",
                f"cores {(place + number) % len(modes)}",
                f"turn {number}",
            )
            rows.append([columns.setdefault(word, len(columns)) for word in words])
            logs.append(np.log(turn[mode]["seconds"] / turn[mode]["steps"]))
    matrix = np.zeros((len(rows), len(columns)))
    for at, row in enumerate(rows):
        matrix[at, row] = 1
    inverse = np.linalg.pinv(matrix.T @ matrix, rcond=1e-9, hermitian=True)  # of sums that are the same twice
    values = inverse @ matrix.T @ np.array(logs)
    noise = float(np.sum((matrix @ values - logs) ** 2) / (len(logs) - np.linalg.matrix_rank(matrix)))

    def of(weights: dict[str, float]) -> tuple[float, float]:
        vector = np.zeros(len(columns))
        for word, weight in weights.items():
            vector[columns[word]] += weight
        ratio = float(np.exp(vector @ values))
        return ratio, ratio * float(np.sqrt(noise * vector @ inverse @ vector))

    bare = [f"process {mode}" for mode in modes if kind_of(mode) == "bare"]
    for kind in ("late", "many"):  # all are held against the same bare ones: their errors are not independent
        late = [f"process {mode}" for mode in modes if kind_of(mode) == kind and f"process {mode}:after" in columns]
        if late:
            share = 1 / len(late)
            changes = {f"{own}:after": share for own in late} | dict.fromkeys(late, -share)
            yield f"{kind}:{OF_ALL}", *of(changes)
    for mode in modes:
        less = dict.fromkeys(bare, -1 / len(bare))
        own = f"process {mode}"
        yield mode, *of({**less, own: 1 + less.get(own, 0)})
        if f"{own}:after" in columns:
            yield f"{mode}:after/before", *of({f"{own}:after": 1, own: -1})


def inside(folders: list[Path]) -> None:
    """What the windows of each recorded process cost, by its own steps, and by its own report."""
    lost, claimed, passed, errors = [], [], [], []
    for steps in sorted(path for folder in folders for path in folder.glob("*.steps")):
        run = steps.with_suffix("")
        if not run.is_dir():
            continue
        ends = array("d", steps.read_bytes())
        windows = windows_of(run)
        costs = [cost_of(ends, begin, end) for begin, end in windows]
        known = [cost for cost in costs if cost is not None]
        if not known:
            print(f"{run}: no window with enough steps around it")
            continue
        lost_s, window_s = sum(lost_s for lost_s, _ in known), sum(length for _, length in known)
        after_s = ends[-2] - windows[0][0]
        spent_s = claim_of(run)
        nothing = without_window(ends, windows, window_s / len(known))
        error_s = stdev(nothing) * len(known) ** 0.5 if len(nothing) > 1 else float("nan")
        errors.append(error_s)
        lost.append(lost_s)
        claimed.append(spent_s)
        passed.append(after_s)
        print(
            f"{run}: {len(known)} of {len(windows)} windows, {window_s:.2f} of {after_s:.1f} s; their steps are "
            f"{window_s / (window_s - lost_s):.3f} x as long as those around: {lost_s:.3f} ± {error_s:.3f} s, "
            f"{100 * lost_s / after_s:.3f} %; claimed {spent_s:.3f} s, {spent_s / lost_s:.2f} x; "
            f"{len(nothing)} stretches without a window: {mean(nothing or [0.0]):+.3f} s each"
        )
    if passed:
        print(
            f"all: {sum(lost):.3f} ± {sum(error**2 for error in errors) ** 0.5:.3f} s, "
            f"{100 * sum(lost) / sum(passed):.3f} % of {sum(passed):.0f} s, "
            f"claimed {100 * sum(claimed) / sum(passed):.3f} %"
        )


def cost_of(ends: array[float], begin: float, end: float) -> tuple[float, float] | None:
    """Seconds lost in a window, with attaching and taking off, and its length: its steps against those around it."""
    first, last = begin - EDGE_S, end + EDGE_S
    within, around = [], []
    for before, at in itertools.pairwise(ends):
        if first < at <= last:
            within.append(at - before)
        elif first - AROUND_S < at <= first or last < at <= last + AROUND_S:
            around.append(at - before)
    within, around = ([length for length in some if length < PAUSE_S] for some in (within, around))  # nor those of nan
    if len(around) < AROUND_LEAST:
        return None
    return sum(within) - len(within) * mean(around), sum(within)


def without_window(ends: array[float], windows: list[tuple[float, float]], length_s: float) -> list[float]:
    """What stretches of that length seem to cost in which nothing is recorded, nor around them."""
    times = [end for end in ends if end == end]
    apart_s = length_s + AROUND_S + 2 * EDGE_S
    begins = (times[0] + apart_s * number for number in range(1, int((times[-1] - times[0]) / apart_s) - 1))
    quiet = [
        begin
        for begin in begins
        if all(begin + apart_s < first - AROUND_S or begin - apart_s > last + AROUND_S for first, last in windows)
    ]
    costs = [cost_of(ends, begin, begin + length_s) for begin in quiet]
    return [cost[0] for cost in costs if cost is not None]


def windows_of(run: Path) -> list[tuple[float, float]]:
    from gpu_infers_report import windows_of as read

    return read(run)


def claim_of(run: Path) -> float:
    """Seconds that the windows cost, as the report has it."""
    import rankscope

    return sum(row["spent_ns"] for row in rankscope.open(run).table("gpu_windows").to_arrow().to_pylist()) / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="", metavar="MODE")
    parser.add_argument("--modes", nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--report", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--leave-out", nargs="+", default=[], metavar="FILE:MODE")
    parser.add_argument("--inside", type=Path, nargs="+", metavar="FOLDER")
    options = parser.parse_args()
    if options.inside:
        inside(options.inside)
    elif options.report:
        report(options.report, options.leave_out)
    elif options.work:
        work(options.work, options.out)
    else:
        options.runs.mkdir(parents=True, exist_ok=True)
        play(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
