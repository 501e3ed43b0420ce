"""Steps on the device's clock, on a fake CUPTI in real time: parts and causes of idleness, against a plain sweep."""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from native.builds import HERE, SANITIZERS, STRICT, compile_c, recording
from native.cuda.test_cuda import make_driver
from native.cuda.test_cuda_ranges import only
from rankscope.rank_file import ChunkKind, DeviceStepFlag, Idle
from rankscope.rank_files.chunks import open_rank_file
from rankscope.rank_files.live import read_moment

OPTIMIZER = "Optimizer.step#SGD.step"
LOADER = "enumerate(DataLoader)#it.__next__"
PARTS = {LOADER: "data", "backward": "launch", "forward": "launch", OPTIMIZER: "launch", "checkpoint": "checkpoint"}
TOLERANCE_NS = 60_000  # beside the time between two readings of our clock that have the recorder's between them
NEAR_NS = 1_000_000
COMPUTE, COMMUNICATION, COPY = "compute", "communication", "copy"


class Span(NamedTuple):
    start_ns: int
    end_ns: int
    kind: str
    launched_ns: int = 0


class Truth(NamedTuple):
    activities: list[Span]
    states: list[tuple[int, str]]  # from when on the host did what
    syncs: list[Span]
    ends_ns: list[int]  # of the host's steps
    doubts: list[tuple[int, int]]  # when, and how far off it may be


@pytest.fixture(scope="module")
def driver(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"loop-{sanitizer}")
    make_driver(folder, sanitizer)
    found = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-lrankscope", "-l:libcupti.so.13")
    return compile_c(folder / "loop", HERE / "cuda" / "cuda_loop.c", *SANITIZERS[sanitizer], *found)


def play(driver: Path, folder: Path, script: Sequence[str], code: int = 0, **settings: str) -> Truth:
    environment = recording(folder, **{**STRICT, "RANK": "0", "WORLD_SIZE": "1", "FAKE_CUPTI_CLOCK": "1", **settings})
    text = "\n".join(script) + "\n"
    done = subprocess.run(
        [str(driver)], input=text, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert (done.returncode, done.stderr) == (code, "")
    return truth_of(done.stdout.splitlines())


def truth_of(lines: Sequence[str]) -> Truth:
    activities, syncs, ends, doubts = [], [], [], []
    states: list[tuple[int, str]] = []
    open_parts: list[str] = []
    extra: list[str] = []  # gc, compile: these come first

    def now_does(at_ns: int) -> None:
        states.append((at_ns, extra[-1] if extra else PARTS[open_parts[-1]] if open_parts else "gap"))

    for line in lines:
        word, *rest = line.split()
        if word in ("gc", "compile", "begin", "end"):
            doubts.append((int(rest[1]), int(rest[2]) - int(rest[1])))
        if word == "activity":
            kind, launched, start, end = rest
            activities.append(Span(int(start), int(end), kind, int(launched)))
        elif word == "sync":
            syncs.append(Span(int(rest[0]), int(rest[1]), "sync"))
        elif word in ("gc", "compile"):
            if rest[0] == "1":
                extra.append(word)
            else:
                extra.remove(word)
            now_does(int(rest[1]))
        else:
            name, at = rest[0], int(rest[1])
            if word == "begin":
                if name == "backward" and states and states[-1][1] == "gap":
                    states[-1] = (states[-1][0], "launch")
                open_parts.append(name)
            else:
                open_parts.remove(name)
            now_does(at)
            if word == "end" and name == OPTIMIZER:
                ends.append(at)
    return Truth(activities, states, syncs, ends, doubts)


def expected(truth: Truth) -> list[dict[str, float]]:
    """Step by step, by looking at every piece between two moments at which anything changes."""
    begin_ns, found = truth.states[0][0], []
    for number, end_ns in enumerate(truth.ends_ns):
        after_ns = truth.ends_ns[number - 1] if number else 0
        mine = [one for one in truth.activities if after_ns <= one.launched_ns < end_ns]
        kernels = [one for one in mine if one.kind != COPY]
        until_ns = max([begin_ns, *(one.end_ns for one in kernels or mine)] if mine else [begin_ns, end_ns])
        doubt = sum(ns for at, ns in truth.doubts if begin_ns - NEAR_NS < at < until_ns + NEAR_NS)
        told = {"begin": begin_ns, "end": until_ns, "kernels": len(kernels), "doubt": doubt + TOLERANCE_NS}
        found.append(swept(truth, begin_ns, until_ns) | told)
        begin_ns = until_ns
    return found


def swept(truth: Truth, from_ns: int, to_ns: int) -> dict[str, float]:
    spans = [one for one in truth.activities if one.end_ns > from_ns and one.start_ns < to_ns]
    moments = {from_ns, to_ns}
    for one in (*spans, *truth.syncs):
        moments |= {one.start_ns, one.end_ns}
    moments |= {at for at, _ in truth.states}
    cut = sorted(at for at in moments if from_ns <= at <= to_ns)
    sums: dict[str, float] = defaultdict(float)
    starts = np.array([at for at, _ in truth.states])
    for a, b in pairwise(cut):
        kinds = {one.kind for one in spans if one.start_ns <= a and one.end_ns >= b}
        if COMPUTE in kinds:
            sums["compute"] += b - a
            sums["hidden"] += (b - a) * (COMMUNICATION in kinds)
        elif COMMUNICATION in kinds:
            sums["exposed"] += b - a
        elif kinds:
            sums["copy"] += b - a
        else:
            at = int(np.searchsorted(starts, a, "right")) - 1
            state = truth.states[at][1] if at >= 0 else "unknown"
            if state in ("launch", "gap") and any(one.start_ns <= a and one.end_ns >= b for one in truth.syncs):
                state = "sync"
            sums["python" if state == "gap" else state] += b - a
    return sums


def rows_of(folder: Path) -> Any:
    rows = open_rank_file(only(folder)).parts(ChunkKind.DEVICE_STEPS)[0].rows
    return rows[rows["number"] > 0]


def told(row: Any) -> dict[str, float]:
    names = {"compute": "compute_ns", "hidden": "hidden_ns", "exposed": "exposed_ns", "copy": "copy_ns"}
    return {name: float(row[column]) for name, column in names.items()} | {
        cause.name.lower(): float(row["idle_ns"][cause]) for cause in Idle
    }


def compare(rows: Any, steps: Sequence[dict[str, float]]) -> None:
    by_number = {int(row["number"]): row for row in rows}
    for number, wanted in enumerate(steps, 1):
        row = by_number[number]
        seen = told(row)
        length = int(row["end_ns"]) - int(row["begin_ns"])
        assert abs(sum(seen.values()) - seen["hidden"] - length) <= 1e-5 * length + 100, number
        assert int(row["kernels"]) == wanted["kernels"], number
        assert abs(int(row["end_ns"]) - wanted["end"]) < wanted["doubt"], number
        for name, ns in seen.items():
            assert abs(ns - wanted.get(name, 0.0)) < wanted["doubt"], (number, name, seen, wanted)


def a_step(dice: random.Random) -> list[str]:
    """Data, forward, backward on a thread of its own beside all-reduces on another stream, the optimizer."""
    lines = [f"b {LOADER}", f"s {dice.choice((50, 3000))}", f"e {LOADER}", "l 0 0 300 copy"]
    lines += [f"l 0 0 {dice.randrange(50, 900)} compute" for _ in range(dice.randrange(3, 9))]
    if dice.random() < 0.3:
        lines += [f"s {dice.randrange(500, 3000)}"]
    lines += ["b backward"]
    for _ in range(dice.randrange(2, 6)):
        lines += [f"l 1 0 {dice.randrange(50, 900)} compute", f"s {dice.choice((0, 0, 800))}"]
        lines += [f"l 1 1 {dice.randrange(100, 2500)} communication"]
    lines += ["e backward"]
    if dice.random() < 0.4:
        lines += ["g 1", "s 1500", "g 0"]
    lines += [f"b {OPTIMIZER}", f"l 0 1 {dice.randrange(50, 300)} compute", f"e {OPTIMIZER}"]
    if dice.random() < 0.5:
        lines += [f"y 1 {dice.choice((0, 700))}"]
    if dice.random() < 0.3:
        lines += [f"s {dice.randrange(500, 4000)}"]
    return lines


@pytest.mark.parametrize("seed", range(6))
def test_parts_and_causes_of_every_step(driver: Path, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    script = []
    for _ in range(dice.choice((20, 120))):
        script += a_step(dice)
        script += [f"d {thread}" for thread in (1, 0, 1) if dice.random() < 0.2]
    truth = play(driver, tmp_path, [*script, "d 1", "d 0"])
    compare(rows_of(tmp_path), expected(truth))


def test_a_host_that_runs_ahead_launches_into_its_own_step(driver: Path, tmp_path: Path) -> None:
    """Ten steps are launched in a millisecond; the device needs 20 ms for each."""
    step = ["b backward", *["l 1 0 5000 compute"] * 4, "e backward", f"b {OPTIMIZER}", f"e {OPTIMIZER}"]
    truth = play(driver, tmp_path, [*step * 10, "y 0 0", "d 0", "d 1"])
    rows = rows_of(tmp_path)
    assert [int(row["kernels"]) for row in rows] == [4] * 10
    compare(rows, expected(truth))
    assert all(abs(float(row["compute_ns"]) - 20e6) < 1000 for row in rows[1:])


def test_compiling_is_told_from_launching(driver: Path, tmp_path: Path) -> None:
    step = ["l 0 0 200 compute", "b backward", "l 1 0 200 compute", "e backward", f"b {OPTIMIZER}", f"e {OPTIMIZER}"]
    truth = play(driver, tmp_path, ["b forward", "c 1", "s 20000", "c 0", "e forward", *step * 3, "d 1", "d 0"])
    first = rows_of(tmp_path)[0]
    assert float(first["idle_ns"][Idle.COMPILE]) > 19e6
    compare(rows_of(tmp_path), expected(truth))


def test_steps_are_there_before_the_end_and_after_a_kill(driver: Path, tmp_path: Path) -> None:
    step = ["b backward", "l 0 0 9000 compute", "y 0 0", "e backward", f"b {OPTIMIZER}", f"e {OPTIMIZER}", "d 0"]
    truth = play(driver, tmp_path, [*step * 500, "K"], code=-9)
    rows = rows_of(tmp_path)
    assert len(truth.ends_ns) == 500
    lost_s = (truth.ends_ns[-1] - int(rows["end_ns"].max())) / 1e9
    assert 0 <= lost_s < 3.0
    compare(rows[:100], expected(truth)[: min(100, len(rows))])
    shares = read_moment(only(tmp_path)).device_shares
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-6) and shares["compute"] > 0.5


def test_a_step_of_which_the_log_was_overwritten_is_marked(driver: Path, tmp_path: Path) -> None:
    """Forty thousand changes of the host before anybody has read one: what lies before the hole is not told."""
    step = ["b backward", "l 0 0 300 compute", "y 0 0", "e backward", f"b {OPTIMIZER}", f"e {OPTIMIZER}"]
    script = [*step * 3, *["b forward", "e forward"] * 20_000, *step * 5, "d 0"]
    truth = play(driver, tmp_path, script)
    rows = rows_of(tmp_path)
    assert [int(row["number"]) for row in rows] == [4, 5, 6, 7, 8]
    assert [bool(row["flags"] & DeviceStepFlag.CUT) for row in rows] == [True, False, False, False, False]
    by_number = dict(enumerate(expected(truth), 1))
    for row in rows[1:]:
        assert abs(float(row["compute_ns"]) - by_number[int(row["number"])]["compute"]) < 1000
