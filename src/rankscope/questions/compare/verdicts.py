"""Two sides held against each other: of every metric the change, its interval and what may be said of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from rankscope.questions.compare.measures import WHOLE, Measures, Metric
from rankscope.questions.compare.resampling import (
    SEED,
    chances,
    changes_of,
    drawn_steps,
    fewest_chance,
    paired_chance,
    paired_interval,
)

Array = Any
LEVEL = 0.05  # a false alarm of the headline is rarer than this, and so is one anywhere in the rest of the table
FEWEST_STEPS = 24
SMALLEST_SHARE = 0.005  # of the step or of the whole: what is smaller is not judged
FASTER, SLOWER, EQUAL, CANNOT_TELL = "faster", "slower", "equal", "cannot tell"
MORE, LESS = "more", "less"  # of what is not a time
PACED = ("part", "layer", "operation", "kernel", "range")  # they go with the pace of the run
NO_CPU = Metric("part", "runnable")
PRIMARY = (Metric("step", "step_p50"), Metric("total", "elapsed"))


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What counts as equal, and what two runs may differ by without any change where only one was made of each."""

    equal: float = 0.02
    run_to_run: float = 0.05
    sides: int = 1  # how many are compared with the first


@dataclass(slots=True)
class Side:
    """Repeats of the same."""

    name: str
    runs: list[Measures]


@dataclass(slots=True)
class Change:
    """One metric on both sides."""

    metric: Metric
    before: float
    after: float
    change: float  # of the medians
    bounds: Callable[[float], tuple[float, float]] | None = None  # interval at a level; None: nothing can be said
    chance: float | None = (
        None  # of such a difference if nothing had changed; of the headline alone, else anywhere in the table
    )
    verdict: str = CANNOT_TELL

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Misses the true change as rarely as the level says."""
        return self.bounds(level) if self.bounds else (-1.0, np.inf)

    @property
    def difference(self) -> float:
        return self.after - self.before

    @property
    def changed(self) -> bool:
        return self.verdict not in (EQUAL, CANNOT_TELL)


@dataclass(slots=True)
class Comparison:
    """All changes from one side to another."""

    before: Side
    after: Side
    options: CompareOptions
    by: str  # "repeats", "steps" or ""
    changes: list[Change] = field(default_factory=list)
    only: dict[str, list[Metric]] = field(default_factory=dict)  # of which side: what the other has not
    too_small: int = 0

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.before, self.after

    @property
    def headline(self) -> Change | None:
        """The one metric that is tested by itself."""
        return next((change for metric in PRIMARY for change in self.changes if change.metric == metric), None)


def compare(before: Side, after: Side, options: CompareOptions) -> Comparison:
    """By repeats where there are enough of them, else by steps."""
    level = LEVEL / options.sides
    if fewest_chance(len(before.runs), len(after.runs)) <= level:
        comparison = Comparison(before, after, options, "repeats")
        _by_repeats(comparison, level)
    else:
        steps = [sum(len(s) for run in side.runs for s in list(run.series.values())[:1]) for side in (before, after)]
        comparison = Comparison(before, after, options, "steps" if min(steps) >= FEWEST_STEPS else "")
        _by_steps(comparison, level)
    return comparison


def _shared(comparison: Comparison) -> list[Metric]:
    """The metrics that every run has; those of one side only are noted, as are those too small to matter."""
    sets = [[set(run.values) for run in side.runs] for side in comparison.sides]
    everywhere = [set.intersection(*side) for side in sets]
    for side, at, other in ((comparison.before, 0, 1), (comparison.after, 1, 0)):
        anywhere_else = set.union(*sets[other])
        comparison.only[side.name] = sorted(metric for metric in everywhere[at] if metric not in anywhere_else)
    shared = [metric for metric in comparison.before.runs[0].values if metric in everywhere[0] & everywhere[1]]
    if len({run.steps for side in comparison.sides for run in side.runs}) > 1:
        shared = [metric for metric in shared if str(metric) not in WHOLE]
    notable = [metric for metric in shared if _matters(comparison, metric)]
    comparison.too_small = len(shared) - len(notable)
    return notable


def _matters(comparison: Comparison, metric: Metric) -> bool:
    if metric.kind in ("total", "step"):
        return True
    total_metric = Metric("total", "elapsed") if metric.kind == "phase" else PRIMARY[0]
    for side in comparison.sides:
        values = [run.values[metric] for run in side.runs]
        wholes = [run.values.get(total_metric, run.values.get(PRIMARY[1], 0.0)) for run in side.runs]
        if np.median(values) > SMALLEST_SHARE * np.median(wholes):
            return True
    return False


def _by_repeats(comparison: Comparison, level: float) -> None:
    """The headline by its own pairs of runs, which agrees with its interval; the others all at once."""
    metrics = _shared(comparison)
    if not metrics:
        return
    first, second = (
        np.array([[run.values[metric] for run in side.runs] for metric in metrics]) for side in comparison.sides
    )
    alone = next((metrics.index(metric) for metric in PRIMARY if metric in metrics), None)
    rest = np.array([at for at in range(len(metrics)) if at != alone], int)
    chance = np.ones(len(metrics))
    if len(rest):
        paced = np.array([metrics[at].kind in PACED for at in rest])
        chance[rest] = chances(first[rest], second[rest], paced)
    if alone is not None:
        chance[alone] = paired_chance(first[alone], second[alone])
    for at, metric in enumerate(metrics):
        before, after = float(np.median(first[at])), float(np.median(second[at]))
        bounds = partial(paired_interval, first[at], second[at])
        change = Change(metric, before, after, _ratio(before, after), bounds, float(chance[at]))
        sure = bool(chance[at] <= level)
        if at == alone:
            low, high = change.interval(level)
            sure = low > 0 or high < 0
        change.verdict = _verdict(change, comparison.options.equal, sure)
        comparison.changes.append(change)


def _by_steps(comparison: Comparison, level: float) -> None:
    """Only what has a value for every step can be judged; what else there is, is shown."""
    metrics = _shared(comparison)
    judged = [metric for metric in metrics if comparison.by and _has_series(comparison, metric)]
    drawn = dict(zip(judged, _drawn_changes(comparison, judged), strict=True)) if judged else {}
    headline = next((metric for metric in PRIMARY if metric in drawn), None)
    rest = [draws for metric, draws in drawn.items() if metric != headline]
    errors = _simultaneous(np.stack(rest), level) if rest else 0.0
    for metric in metrics:
        before, after = (float(np.median([run.values[metric] for run in side.runs])) for side in comparison.sides)
        change = Change(metric, before, after, _ratio(before, after))
        if metric in drawn:
            draws, margin = drawn[metric], _margin(comparison, metric)
            change.bounds = partial(_drawn_interval, draws, margin)
            reach = errors * float(draws.std())
            low, high = _widened(change.change - reach, change.change + reach, margin)
            if metric == headline:
                low, high = change.interval(level)
            change.verdict = _verdict(change, comparison.options.equal, low > 0 or high < 0)
        comparison.changes.append(change)


def _drawn_interval(draws: Array, margin: float, level: float) -> tuple[float, float]:
    low, high = np.percentile(draws, (50 * level, 100 - 50 * level))
    return _widened(float(low), float(high), margin)


def _widened(low: float, high: float, margin: float) -> tuple[float, float]:
    """By noise that makes a run as many times longer or shorter: nothing gets shorter than nothing."""
    return max(0.0, 1 + low) / (1 + margin) - 1, (1 + high) * (1 + margin) - 1


def no_cpu_share(side: Side) -> float:
    """Of the step: how long ranks could have run and had no CPU, in the run where it was most."""
    shares = [run.values.get(NO_CPU, 0.0) / (run.values.get(PRIMARY[0], 0.0) or np.inf) for run in side.runs]
    return float(max(shares))


def _margin(comparison: Comparison, metric: Metric) -> float:
    """What runs differ by without any change: as assumed, as the few runs of a side do, or as they lacked CPUs."""
    seen = [comparison.options.run_to_run, *(no_cpu_share(side) for side in comparison.sides)]
    for side in comparison.sides:
        values = [run.values[metric] for run in side.runs]
        seen.append((max(values) - min(values)) / (float(np.median(values)) or np.inf))
    return max(seen)


def _has_series(comparison: Comparison, metric: Metric) -> bool:
    return all(metric in run.series for side in comparison.sides for run in side.runs)


def _drawn_changes(comparison: Comparison, judged: Sequence[Metric]) -> Array:
    random = np.random.default_rng(SEED)
    drawn = []
    for side in comparison.sides:
        drawn.append(drawn_steps([np.stack([run.series[metric] for metric in judged]) for run in side.runs], random))
    return changes_of(drawn[0], drawn[1])


def _simultaneous(ratios: Array, level: float) -> float:
    """How many standard errors all intervals have to be wide so that all of them hold at once."""
    errors = ratios.std(axis=1, keepdims=True)
    centred = (ratios - np.median(ratios, axis=1, keepdims=True)) / np.where(errors > 0, errors, 1.0)
    return float(np.quantile(np.abs(centred).max(axis=0), 1 - level))


def _verdict(change: Change, equal: float, sure: bool) -> str:
    if sure and abs(change.change) > equal:
        names = (LESS, MORE) if change.metric.name == "memory" else (FASTER, SLOWER)
        return names[change.change > 0]
    low, high = change.interval()
    return EQUAL if -equal <= low and high <= equal else CANNOT_TELL


def _ratio(before: float, after: float) -> float:
    return after / before - 1 if before else (0.0 if after == before else np.inf)


# ---------------------------------------------------------------------------------------------------------------------
# Limits on changes, as in `step_p50 > +5%`: is one exceeded for sure, kept for sure, or can it not be told?
# the name is all up to the last sign: names of kernels may hold some
LIMIT = re.compile(r"\s*(.+)([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*", re.DOTALL)
EXCEEDED, KEPT, UNDECIDED = "exceeded", "kept", "cannot tell"


class BadLimit(ValueError):
    """A limit that says nothing, in one line."""


@dataclass(frozen=True, slots=True)
class Limit:
    """It is exceeded where the change of the metric is larger (or smaller) than so much."""

    text: str
    metric: str
    above: bool
    change: float


@dataclass(frozen=True, slots=True)
class LimitOutcome:
    limit: Limit
    verdict: str
    why: str


def parse_limit(text: str) -> Limit:
    """The limit in typed form."""
    match = LIMIT.fullmatch(text)
    if match is None or not match.group(1).strip():
        raise BadLimit(f"--fail-if {text!r}: give a metric and by how much it may change, as in 'step_p50 > +5%'")
    name, sign, number = match.groups()
    return Limit(text.strip(), name.strip(), sign == ">", float(number) / 100)


def outcomes(comparison: Comparison, limits: Sequence[Limit]) -> list[LimitOutcome]:
    """Each limit by the interval of its metric, the wider the more limits (and sides) there are."""
    changes = {str(change.metric): change for change in comparison.changes}
    level = LEVEL / max(1, len(limits)) / comparison.options.sides
    results = []
    for limit in limits:
        if limit.metric not in changes:
            why = f"no metric {limit.metric} in these runs: rankscope compare --list-metrics names them"
            results.append(LimitOutcome(limit, UNDECIDED, why))
            continue
        low, high = changes[limit.metric].interval(level)
        why = f"{100 * changes[limit.metric].change:+.1f} %, interval {100 * low:+.1f} … {100 * high:+.1f} %"
        if changes[limit.metric].bounds is None:
            why = "too few repeats or steps for an interval"
        results.append(LimitOutcome(limit, _limit_verdict(limit, low, high), why))
    return results


def _limit_verdict(limit: Limit, low: float, high: float) -> str:
    bound = limit.change
    if not limit.above:
        low, high, bound = -high, -low, -bound
    return EXCEEDED if low > bound else KEPT if high <= bound else UNDECIDED
