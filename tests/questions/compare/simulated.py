"""Runs by a known law: noise from run to run, steps that are alike their neighbours, stalls, and disturbed runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.questions.compare.measures import QUANTILES, Measures, Metric
from rankscope.questions.compare.resampling import middle_mean
from rankscope.questions.compare.verdicts import Side

MILLI, SECOND = 1e6, 1e9
PARTS_MS = {"data": 8.0, "forward": 20.0, "backward": 40.0, "optimizer": 6.0, "communication": 15.0}
PHASES_S = {"imports": 3.0, "init": 1.0, "first collective": 0.2, "first step": 0.4, "finalize": 0.1}
CALLS_MS = {"MPI_Allreduce": 12.0, "MPI_Bcast": 2.0, "MPI_Barrier": 1.0}


@dataclass(frozen=True)
class Law:
    """How much runs, parts of runs and steps vary by themselves."""

    run: float = 0.01
    part: float = 0.008
    step: float = 0.05
    alike: float = 0.6  # correlation of neighbouring steps
    stalls: float = 0.02  # share of steps
    disturbed: float = 0.05  # share of runs that are slower altogether, by 5 to 30 %
    phase: float = 0.1
    steps: int = 60


def run_by(random: np.random.Generator, law: Law, slower: Mapping[str, float]) -> Measures:
    """One run; `slower` are factors of parts, phases and operations."""
    whole = random.lognormal(0, law.run)
    if random.random() < law.disturbed:
        whole *= 1 + random.uniform(0.05, 0.3)
    made = Measures("run", ranks=4, hosts=("node",), commands=("train",), steps=law.steps)
    length = np.zeros(law.steps)
    for name, mean_ms in PARTS_MS.items():
        level = mean_ms * MILLI * whole * random.lognormal(0, law.part) * slower.get(name, 1.0)
        series = level * np.exp(_alike(random, law))
        series += (random.random(law.steps) < law.stalls) * random.exponential(level, law.steps)
        made.series[Metric("part", name)] = series
        made.values[Metric("part", name)] = float(middle_mean(series))
        length += series
    made.series[Metric("step", "step_p50")] = length
    made.values |= {Metric("step", name): float(np.percentile(length, at)) for name, at in QUANTILES.items()}
    made.values[Metric("step", "step_mean")] = float(length.mean())
    for name, mean_s in PHASES_S.items():
        made.values[Metric("phase", name)] = mean_s * SECOND * random.lognormal(0, law.phase) * slower.get(name, 1.0)
    for name, mean_ms in CALLS_MS.items():
        value = mean_ms * MILLI * whole * random.lognormal(0, 2 * law.part) * slower.get(name, 1.0)
        made.values[Metric("operation", name)] = value
    phases = sum(value for metric, value in made.values.items() if metric.kind == "phase")
    made.values[Metric("total", "elapsed")] = phases + float(length.sum())
    return made


def _alike(random: np.random.Generator, law: Law) -> Any:
    noise = random.normal(0, law.step * (1 - law.alike**2) ** 0.5, law.steps)
    made = np.zeros(law.steps)
    made[0] = random.normal(0, law.step)
    for at in range(1, law.steps):
        made[at] = law.alike * made[at - 1] + noise[at]
    return made


def side_by(random: np.random.Generator, name: str, repeats: int, law: Law, slower: Mapping[str, float]) -> Side:
    """Repeats of the same."""
    return Side(name, [run_by(random, law, slower) for _ in range(repeats)])
