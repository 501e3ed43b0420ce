"""Limits on changes, as in `step_p50 > +5%`: is one exceeded for sure, kept for sure, or can it not be told?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.questions.compare.verdicts import LEVEL, Comparison

# the name is all up to the last sign: names of kernels may hold some
LIMIT = re.compile(r"\s*(.+)([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*", re.DOTALL)
EXCEEDED, KEPT, CANNOT_TELL = "exceeded", "kept", "cannot tell"


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
class Outcome:
    limit: Limit
    verdict: str
    why: str


def parse_limit(text: str) -> Limit:
    """The limit in typed form."""
    found = LIMIT.fullmatch(text)
    if found is None or not found.group(1).strip():
        raise BadLimit(f"--fail-if {text!r}: give a metric and by how much it may change, as in 'step_p50 > +5%'")
    name, sign, number = found.groups()
    return Limit(text.strip(), name.strip(), sign == ">", float(number) / 100)


def outcomes(made: Comparison, limits: Sequence[Limit]) -> list[Outcome]:
    """Each limit by the interval of its metric, the wider the more limits (and sides) there are."""
    found = {str(change.metric): change for change in made.changes}
    level = LEVEL / max(1, len(limits)) / made.options.sides
    told = []
    for limit in limits:
        if limit.metric not in found:
            why = f"no metric {limit.metric} in these runs: rankscope compare --list-metrics names them"
            told.append(Outcome(limit, CANNOT_TELL, why))
            continue
        low, high = found[limit.metric].interval(level)
        why = f"{100 * found[limit.metric].change:+.1f} %, interval {100 * low:+.1f} … {100 * high:+.1f} %"
        if low == float("-inf"):
            why = "too few repeats or steps for an interval"
        told.append(Outcome(limit, _verdict(limit, low, high), why))
    return told


def _verdict(limit: Limit, low: float, high: float) -> str:
    bound = limit.change
    if not limit.above:
        low, high, bound = -high, -low, -bound
    return EXCEEDED if low > bound else KEPT if high <= bound else CANNOT_TELL
