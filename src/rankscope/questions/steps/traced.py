"""Where are the steps in a trace, and what did the thread that runs the loop do in them?

Steps are where the trace says so: ranges of the profiler's schedule, else of optimizers, else of the program, which
repeat one after the other; else where its kernels repeat a pattern. Parts have the names that the recorder gives them
(docs/reference/steps.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rankscope.model.records import Step
from rankscope.model.tables import names_of

Array = Any  # of numpy
PROFILER, OPTIMIZER, RANGES, KERNELS = "ProfilerStep", "optimizer", "ranges", "kernels"
OPERATIONS = "operations"
SAID = {
    PROFILER: "Steps are the profiler's (ProfilerStep#)",
    OPTIMIZER: "Steps end with the ranges of the optimizer",
    OPERATIONS: "Steps are those of the table of operations, from the first of any rank to the last",
    RANGES: "Steps are ranges of the program that repeat",
    KERNELS: "Steps are inferred from a pattern that the kernels repeat, not from ranges: where they begin is a guess",
}


class Range(NamedTuple):
    """A range of one thread."""

    start_ns: int
    end_ns: int
    name: str
    thread: int
    number: int | None = None  # of a profiler's step


# ---------------------------------------------------------------- parts, by the names of ranges
DATA, ZERO_GRAD, FORWARD, BACKWARD, OPTIMIZING, COMMUNICATION, SAVING = (
    *("data", "zero_grad", "forward", "backward", "optimizer", "communication", "checkpoint"),
)
COMPILING, OTHER = "compile", "other"
PARTS = (DATA, ZERO_GRAD, FORWARD, BACKWARD, OPTIMIZING, COMMUNICATION, SAVING, OTHER)
PREFIXES = (
    ("enumerate(DataLoader)#", DATA),
    ("Optimizer.zero_grad#", ZERO_GRAD),
    ("Optimizer.step#", OPTIMIZING),
    ("DistributedDataParallel.forward", FORWARD),
    ("DataParallel.forward", FORWARD),
    ("FullyShardedDataParallel.forward", FORWARD),
    ("torch.autograd.backward", BACKWARD),
    ("torch.save", SAVING),
    ("torch.distributed.checkpoint.", SAVING),
    ("MPI_", COMMUNICATION),
)
WORDS = {
    **dict.fromkeys(("data", "dataloader", "data loading", "data_loading", "load batch", "batch generator"), DATA),
    **dict.fromkeys(("zero_grad", "zero grad"), ZERO_GRAD),
    **dict.fromkeys(("forward", "fwd", "forward pass", "forward_pass"), FORWARD),
    **dict.fromkeys(("backward", "bwd", "backward pass", "backward_pass"), BACKWARD),
    **dict.fromkeys(("optimizer", "opt", "optimizer step", "optimizer_step"), OPTIMIZING),
    "checkpoint": SAVING,
}
AROUND = re.compile(r"^[^a-z]+|[^a-z]+$")


def part_of(name: str) -> str:
    """The part of the step that a range of this name is, "" where it is none."""
    for prefix, part in PREFIXES:
        if name.startswith(prefix):
            return part
    if name.endswith("(dynamo_timed)"):
        return COMPILING
    return WORDS.get(AROUND.sub("", name.lower()), "")


# ---------------------------------------------------------------- where steps are
FEWEST_RANGES = 3
LEAST_COVER, MOST_COVER = 0.5, 0.8  # of the time from first to last that ranges fill: those called steps, and others
STUB = 0.02  # of the median: a step of the profiler's schedule that was cut off at once; the first may compile for long
ANY_NAME = re.compile("")
STEP_NAME = re.compile(
    r"(?i)(?:^|[^a-z])(?:train(?:ing)?[ _]?)?(?:step|iter|iteration|batch|train[ _]batch)(?:$|[^a-z])"
)
NUMBERED = re.compile(r"[\s#:_=\-(\[]*\d+[)\]]?\s*$")
NEAR = 0.5  # of a median step: what lies between two that belong together


@dataclass(slots=True)
class TracedSteps:
    """The steps of one process, on its host."""

    source: str
    number: Array
    begin_ns: Array
    end_ns: Array
    thread: int | None = None  # which runs the loop
    named: str = ""  # what the ranges are called
    joined: Array = field(default_factory=lambda: np.zeros(0, bool))  # begins where the one before ended

    @property
    def note(self) -> str:
        """How they were found."""
        named = f" ({self.named})" if self.named else ""
        return f"{SAID[self.source]}{named}: {len(self.number)} of them"


def steps_of_ranges(ranges: Sequence[Range], profiler: Sequence[Range]) -> TracedSteps | None:
    """The steps that ranges tell of."""
    return _of_profiler(profiler) or _of_optimizers(ranges) or repeated_ranges(ranges, STEP_NAME, LEAST_COVER)


def _of_profiler(ranges: Sequence[Range]) -> TracedSteps | None:
    mine = sorted(_of_busiest_thread([range_ for range_ in ranges if range_.number is not None]))
    if not mine:
        return None
    median_ns = float(np.median([range_.end_ns - range_.start_ns for range_ in mine]))
    for end in (0, -1):
        if len(mine) > 1 and mine[end].end_ns - mine[end].start_ns < STUB * median_ns:
            del mine[end]
    steps = _made(PROFILER, mine, [range_.number or 0 for range_ in mine])
    steps.joined[1:] &= np.diff(steps.number) == 1
    return steps


def _of_busiest_thread(ranges: Sequence[Range]) -> list[Range]:
    threads = [range_.thread for range_ in ranges]
    most = max(sorted(set(threads)), key=threads.count, default=None)
    return [range_ for range_ in ranges if range_.thread == most]


def _made(source: str, ranges: Sequence[Range], numbers: Sequence[int], named: str = "") -> TracedSteps:
    begin_ns, end_ns = (np.array([range_[at] for range_ in ranges], np.int64) for at in (0, 1))
    # a step goes on to the next one, where that is near: a little of the loop lies between ranges
    near_ns = NEAR * float(np.median(end_ns - begin_ns))
    joined = np.concatenate([[False], begin_ns[1:] - end_ns[:-1] <= near_ns])
    end_ns[:-1] = np.where(joined[1:], begin_ns[1:], end_ns[:-1])
    return TracedSteps(source, np.array(numbers, np.int64), begin_ns, end_ns, ranges[0].thread, named, joined)


def _of_optimizers(ranges: Sequence[Range]) -> TracedSteps | None:
    """As the recorder: an optimizer that has not stepped since the last step ended belongs to that one."""
    mine = _of_busiest_thread([range_ for range_ in ranges if part_of(range_.name) == OPTIMIZING])
    ends: list[int] = []
    stepped: set[str] = set()
    done_ns = -(2**63)
    for step_range in sorted(mine, key=lambda range_: (range_.start_ns, -range_.end_ns)):
        if step_range.end_ns <= done_ns:  # inside another
            continue
        done_ns = step_range.end_ns
        if ends and step_range.name not in stepped:
            ends[-1] = step_range.end_ns
        else:
            ends.append(step_range.end_ns)
            stepped = set()
        stepped.add(step_range.name)
    if len(ends) < FEWEST_RANGES:
        return None
    first_ns = min(range_.start_ns for range_ in ranges if range_.thread == mine[0].thread and part_of(range_.name))
    begins = [first_ns, *ends[:-1]]
    if first_ns == min(mine).start_ns:  # nobody knows when the first step began
        begins, ends = begins[1:], ends[1:]
    spans = [Range(begin, end, "", mine[0].thread) for begin, end in zip(begins, ends, strict=True)]
    return _made(OPTIMIZER, spans, range(1, len(spans) + 1), mine[0].name)


def repeated_ranges(ranges: Sequence[Range], called: re.Pattern[str], least_cover: float) -> TracedSteps | None:
    """Of ranges that come again and again on one thread and leave little out, those that fill most time."""
    families: dict[tuple[int, str], list[Range]] = {}
    for range_ in ranges:
        families.setdefault((range_.thread, NUMBERED.sub("", range_.name)), []).append(range_)
    filled: dict[tuple[int, str], int] = {}
    for key, members in families.items():
        members.sort()
        span_ns, filled_ns = (
            members[-1].end_ns - members[0].start_ns,
            sum(range_.end_ns - range_.start_ns for range_ in members),
        )
        is_apart = all(after.start_ns >= before.end_ns for before, after in pairwise(members))
        is_called = called.search(key[1]) is not None and not part_of(key[1])
        if len(members) >= FEWEST_RANGES and is_apart and is_called and filled_ns >= least_cover * span_ns:
            filled[key] = filled_ns
    if not filled:
        return None
    best = max(sorted(filled), key=lambda key: filled[key])
    return _made(RANGES, families[best], range(1, len(families[best]) + 1), best[1])


# ---------------------------------------------------------------- a pattern that kernels repeat
LOOKED_AT = 1 << 16  # kernels, the latest
FEWEST_STEPS = 5
FEWEST_KERNELS = 8  # of a step: a loop over one kernel is no training
RAREST = 24  # kernels that are asked for the period: those of a step's beginning or end are rare
LAGS = 6
ALIKE = 0.8  # of the kernels must be the same one period later
NEARLY = 0.02


def steps_of_kernels(names: Array, launched_ns: Array, threads: Array) -> TracedSteps | None:
    """The steps that kernels give away which come again and again: by the order in which they were launched."""
    order = np.argsort(launched_ns, kind="stable")
    names, launched_ns, threads = names[order], launched_ns[order], threads[order]
    period = _period(names[-LOOKED_AT:])
    if not period:
        return None
    first = _first_kernels(names, launched_ns, period)
    if len(first) < FEWEST_STEPS:
        return None
    begin_ns = launched_ns[first]
    if len(names) - first[-1] >= period:  # the last one is whole, too
        begin_ns = np.append(begin_ns, launched_ns[min(int(first[-1]) + period, len(names) - 1)] + 1)
    thread = int(threads[first[0]])
    spans = [Range(a, b, "", thread) for a, b in zip(begin_ns.tolist(), begin_ns[1:].tolist(), strict=False)]
    return _made(KERNELS, spans, range(1, len(spans) + 1), f"{period} kernels")


def _period(names: Array) -> int:
    """After how many kernels the same ones begin again; 0 where they do not."""
    codes, counts = np.unique(names, return_counts=True)
    often = codes[counts >= FEWEST_STEPS]
    rarest = often[np.argsort(counts[counts >= FEWEST_STEPS], kind="stable")][:RAREST]
    lags: set[int] = set()
    for code in rarest.tolist():
        places = np.flatnonzero(names == code)
        for lag in range(1, min(LAGS, len(places) // FEWEST_STEPS) + 1):
            lags.add(int(np.median(places[lag:] - places[:-lag])))
    lags = {lag for lag in lags if FEWEST_KERNELS <= lag <= len(names) // FEWEST_STEPS}
    alike = {lag: float((names[lag:] == names[:-lag]).mean()) for lag in lags}
    best = max(alike.values(), default=0.0)
    return min((lag for lag, share in alike.items() if share >= max(ALIKE, best - NEARLY)), default=0)


def _first_kernels(names: Array, launched_ns: Array, period: int) -> Array:
    """Of the kernels that come once in each period, the places of the one before which the host pauses longest."""
    pause_ns = np.diff(launched_ns, prepend=launched_ns[:1])
    best: tuple[float, Array] = (-1.0, np.zeros(0, np.int64))
    codes, counts = np.unique(names, return_counts=True)
    expected = len(names) / period
    for code in codes[(counts >= 0.6 * expected) & (counts <= 1.2 * expected)].tolist():
        places = np.flatnonzero(names == code)
        if len(places) < FEWEST_STEPS or (np.diff(places) == period).mean() < ALIKE / 2:
            continue
        pause = float(np.median(pause_ns[places]))
        if pause > best[0]:
            best = (pause, places)
    return best[1]


# ---------------------------------------------------------------- what the thread did
def parts_of_thread(ranges: Iterable[Range], steps: TracedSteps) -> list[tuple[int, str]]:
    """From when on the thread did what: of ranges inside each other the innermost counts.

    What nobody names is the forward pass where a backward pass follows, as the recorder has it; "" else.
    """
    mine = [(range_.start_ns, -range_.end_ns, part) for range_ in ranges if (part := part_of(range_.name))]
    moments: list[tuple[int, str]] = []
    open_ranges: list[tuple[int, str]] = []

    def end_until(until_ns: int) -> None:
        while open_ranges and open_ranges[-1][0] <= until_ns:
            ended_ns, _ = open_ranges.pop()
            while open_ranges and open_ranges[-1][0] <= ended_ns:
                open_ranges.pop()
            moments.append((ended_ns, open_ranges[-1][1] if open_ranges else ""))

    for start_ns, end_ns, part in sorted(mine):
        end_until(start_ns)
        open_ranges.append((-end_ns, part))
        moments.append((start_ns, part))
    end_until(2**63 - 1)
    begin_ns = int(steps.begin_ns[0])
    if not moments or moments[0][0] > begin_ns:
        moments.insert(0, (begin_ns, ""))
    parts = []
    for at, (moment_ns, part) in enumerate(moments):
        follows = next((next_part for _, next_part in moments[at + 1 : at + 2]), "")
        parts.append((moment_ns, FORWARD if not part and follows == BACKWARD else part))
    return parts


def sums_of_parts(steps: TracedSteps, moments: Sequence[tuple[int, str]]) -> dict[str, Array]:
    """Of each step and part: how long."""
    at_ns = np.array([moment for moment, _ in moments], np.int64)
    codes = np.array([PARTS.index(part) if part in PARTS else PARTS.index(OTHER) for _, part in moments], np.int64)
    bounds = np.unique(np.concatenate([at_ns, steps.begin_ns, steps.end_ns]))
    piece_ns, middle = np.diff(bounds), bounds[:-1]
    state = np.searchsorted(at_ns, middle, "right") - 1
    part = np.where(state >= 0, codes[np.maximum(state, 0)], PARTS.index(OTHER))
    step = np.searchsorted(steps.begin_ns, middle, "right") - 1
    inside = (step >= 0) & (middle < steps.end_ns[np.maximum(step, 0)])
    sums = np.zeros((len(steps.number), len(PARTS)), np.int64)
    np.add.at(sums, (step[inside], part[inside]), piece_ns[inside])
    return {name: sums[:, place] for place, name in enumerate(PARTS)}


def step_columns(steps: TracedSteps, moments: Sequence[tuple[int, str]], counts: dict[str, Array]) -> dict[str, Any]:
    """The columns of model.Step: parts as far as ranges tell them, and 0 for all that a trace does not tell."""
    rows = len(steps.number)
    columns: dict[str, Any] = {name: np.zeros(rows, np.int64) for name in names_of(Step)}
    columns |= {name: np.zeros(rows, bool) for name in ("warmup", "accumulated", "skipped", "told", "by_backward")}
    columns |= {"number": steps.number, "begin_ns": steps.begin_ns, "end_ns": steps.end_ns}
    columns |= {f"{name}_ns": sums for name, sums in sums_of_parts(steps, moments).items()}
    blocked_ns = columns["communication_ns"]
    columns |= {"blocked_communication_ns": blocked_ns, "exposed_ns": blocked_ns}
    return columns | counts
