"""Where steps are in a trace, and what the loop's thread does in them: small cases by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rankscope.questions.steps import traced
from rankscope.questions.steps.traced import Range, TracedSteps, part_of

MS = 1_000_000
OPTIMIZER = "Optimizer.step#SGD.step"


def ms(name: str, start: float, end: float, thread: int = 1, number: int | None = None) -> Range:
    return Range(round(start * MS), round(end * MS), name, thread, number)


def spans(steps: TracedSteps | None) -> list[tuple[float, float]]:
    assert steps is not None
    return [(a / MS, b / MS) for a, b in zip(steps.begin_ns.tolist(), steps.end_ns.tolist(), strict=True)]


def test_the_profilers_steps_come_first_and_stubs_are_none() -> None:
    profiler = [ms(f"ProfilerStep#{n}", 10 * n, 10 * n + 9.9, number=n) for n in range(3, 6)]
    profiler.append(ms("ProfilerStep#6", 60, 60.1, number=6))
    found = traced.steps_of_ranges([ms(OPTIMIZER, 10 * n, 10 * n + 1) for n in range(9)], profiler)
    assert spans(found) == [(30, 40), (40, 50), (50, 59.9)]  # a little lies between: it belongs to the one before
    assert found is not None and (found.source, found.number.tolist()) == ("ProfilerStep", [3, 4, 5])
    assert found.joined.tolist() == [False, True, True]


def test_steps_that_the_profiler_did_not_record_are_not_joined() -> None:
    found = traced.steps_of_ranges([], [ms("", 10 * n, 10 * n + 10, number=n) for n in (1, 2, 7, 8)])
    assert found is not None and found.joined.tolist() == [False, True, False, True]


def test_optimizers_end_steps_as_the_recorder_has_it() -> None:
    one = [ms("enumerate(DataLoader)#x", 0, 1), *(ms(OPTIMIZER, 10 * n, 10 * n + 2) for n in range(1, 5))]
    assert spans(traced.steps_of_ranges(one, [])) == [(0, 12), (12, 22), (22, 32), (32, 42)]
    # nobody knows when the first began
    assert spans(traced.steps_of_ranges(one[1:], [])) == [(12, 22), (22, 32), (32, 42)]
    # two optimizers: D, G, D, G … are one step each two
    both = [ms(f"Optimizer.step#{'DG'[n % 2]}", 10 * n, 10 * n + 2) for n in range(8)]
    assert spans(traced.steps_of_ranges([ms("forward", -5, -1), *both], [])) == [(-5, 12), (12, 32), (32, 52), (52, 72)]


@pytest.mark.parametrize("name", ["step", "train_step {}", "iteration {}", "batch={}", "Iter: {}"])
def test_ranges_called_steps_are_steps(name: str) -> None:
    found = [ms("epoch", 0, 100), *(ms(name.format(n), 10 * n, 10 * n + 9) for n in range(6))]
    found += [ms("forward", 10 * n, 10 * n + 4) for n in range(6)]
    assert spans(traced.steps_of_ranges(found, []))[:2] == [(0, 10), (10, 20)]


def test_ranges_of_other_names_are_steps_only_if_nothing_else_is() -> None:
    found = [ms("measured 1", 0, 10), ms("measured 2", 10, 20), ms("measured 3", 20, 30), ms("forward", 0, 4)]
    assert traced.steps_of_ranges(found, []) is None
    assert spans(traced.repeated_ranges(found, traced.ANY_NAME, traced.MOST_COVER)) == [(0, 10), (10, 20), (20, 30)]
    overlapping = [ms("step", 0, 10), ms("step", 5, 15), ms("step", 10, 20)]
    assert traced.steps_of_ranges(overlapping, []) is None


@pytest.mark.parametrize("seed", range(4))
def test_kernels_that_repeat_give_the_steps_away(seed: int) -> None:
    """Layers that repeat inside a step, a kernel that comes now and then, and a pause before each step."""
    dice = random.Random(seed)
    step = [10, *[1, 2, 3, 2] * dice.randrange(3, 9), 11, *[4, 5, 4] * 5, 12]
    names: list[int] = []
    times: list[int] = []
    begins: list[int] = []
    now = 0
    for _ in range(20):
        now += 2000
        begins.append(now)
        for kernel in step:
            names.append(kernel)
            times.append(now)
            now += dice.randrange(5, 20)
        if dice.random() < 0.1:
            names.append(99)
            times.append(now)
    order = list(range(len(names)))
    dice.shuffle(order)  # activities come in any order
    found = traced.steps_of_kernels(np.array(names)[order], np.array(times)[order], np.full(len(names), 7))
    assert found is not None and (found.source, found.thread) == ("kernels", 7)
    assert found.begin_ns.tolist() == begins[: len(found.begin_ns)] and len(found.begin_ns) >= 19
    assert "a guess" in found.note


def test_kernels_without_a_pattern_have_no_steps() -> None:
    dice = random.Random(1)
    names = np.array([dice.randrange(40) for _ in range(2000)])
    assert traced.steps_of_kernels(names, np.arange(2000), np.zeros(2000)) is None
    assert traced.steps_of_kernels(np.zeros(2000, np.int64), np.arange(2000), np.zeros(2000)) is None  # a loop over one


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data"),
        ("## forward ##", "forward"),
        ("Backward", "backward"),
        ("Optimizer.zero_grad#AdamW.zero_grad", "zero_grad"),
        ("MPI_Allreduce", "communication"),
        ("_compile.compile_inner (dynamo_timed)", "compile"),
        ("nccl:all_reduce", ""),
        ("forward_hook_of_somebody", ""),
    ],
)
def test_names_of_parts(name: str, part: str) -> None:
    assert part_of(name) == part


def test_parts_add_up_and_what_comes_before_a_backward_is_forward() -> None:
    steps = TracedSteps("ranges", np.array([1, 2]), np.array([0, 100]), np.array([100, 200]))
    found = [
        Range(10, 30, "data", 1),
        Range(50, 70, "backward", 1),
        Range(70, 90, OPTIMIZER, 1),
        Range(75, 80, "x (dynamo_timed)", 1),  # inside the optimizer
        Range(150, 160, "backward", 1),
    ]
    moments = traced.parts_of_thread(found, steps)
    sums = {name: values.tolist() for name, values in traced.sums_of_parts(steps, moments).items()}
    assert {name: values for name, values in sums.items() if any(values)} == {
        "data": [20, 0],
        "forward": [30, 50],
        "backward": [20, 10],
        "optimizer": [15, 0],
        "other": [15, 40],
    }
    # from 90 on nothing is named, and a backward follows: forward, as the recorder has it, also across the step's end
    assert sum(map(sum, sums.values())) == 200
