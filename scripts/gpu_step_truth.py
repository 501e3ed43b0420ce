"""What a scripted training loop did on a device, and what its steps are made of by a plain sweep over every moment.

The loops themselves are tests/native/cuda/cuda_loop.c, on a CUPTI without a GPU, and gpu_truth.py, on a GPU: both play
the same scripts and print the same lines.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

OPTIMIZER = "Optimizer.step#SGD.step"
LOADER = "enumerate(DataLoader)#it.__next__"
PARTS = {LOADER: "data", "backward": "launch", "forward": "launch", OPTIMIZER: "launch", "checkpoint": "checkpoint"}
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
        told = {"begin": begin_ns, "end": until_ns, "kernels": len(kernels), "doubt": doubt}
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
    starts = [at for at, _ in truth.states]
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
            at = bisect_right(starts, a) - 1
            state = truth.states[at][1] if at >= 0 else "unknown"
            if state in ("launch", "gap") and any(one.start_ns <= a and one.end_ns >= b for one in truth.syncs):
                state = "sync"
            sums["python" if state == "gap" else state] += b - a
    return sums


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
