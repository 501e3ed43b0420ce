"""Growth as graphs: one for each quantity, with the measured points, the law through them and its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.analyse.law_intervals import Estimate, estimate
from rankscope.model import Unit
from rankscope.pictures import Curve, Graph
from rankscope.questions.scaling.crossovers import alike
from rankscope.questions.scaling.growth import Growth
from rankscope.questions.scaling.scaling import shown

FITTED_POINTS = 33
MOST_CURVES = 8  # that an eye can tell apart
MOST_GRAPHS = 8
STEADY = 1.1  # a factor below which nothing grows


def graphs(grown: Sequence[Growth], to: Sequence[float] = ()) -> list[Graph]:
    """In the order of the quantities; published series lie over every quantity in their unit and axis."""
    over = [one for one in grown if one.series.published]
    made = []
    for group in alike([one for one in grown if not one.series.published]) or alike(over):
        ours = group[0].series
        laid = [one for one in over if (one.series.unit, one.series.axis) == (ours.unit, ours.axis)]
        made.append(graph([*group, *(one for one in laid if one not in group)], to))
    return made[:: -(-len(made) // MOST_GRAPHS) or 1]  # of very many quantities some, from the first to the last


def graph(group: Sequence[Growth], to: Sequence[float]) -> Graph:
    """Those that grow most, where there are too many to be told apart."""
    kept = sorted(group, key=lambda one: (not one.series.published, _factor(one)), reverse=True)[:MOST_CURVES]
    shown_in_order = [one for one in group if one in kept]
    first = group[0].series
    curves = [Curve(one.series.name, one.series.points, _law(one, to), one.series.published) for one in shown_in_order]
    left_out = f" (the {len(kept)} of {len(group)} that grow most)" if len(kept) < len(group) else ""
    return Graph(f"{_sentence(group)}{left_out}", first.axis, first.what, _unit(first.unit), curves)


def _law(one: Growth, to: Sequence[float]) -> list[tuple[float, float, float, float]]:
    """As far as it may be asked: to the largest wanted scale for which the data support it."""
    if one.choice is None or one.doubts:
        return []
    allowed = [scale for scale in to if isinstance(one.at(scale), Estimate)]
    made = []
    for scale in np.geomspace(one.scales[0], max([one.scales[-1], *allowed]), FITTED_POINTS):
        found = estimate(one.choice.fit, float(scale))
        made.append((float(scale), found.value, found.low, found.high))
    return made


def _factor(one: Growth) -> float:
    return one.medians[-1] / one.medians[0]


def _sentence(group: Sequence[Growth]) -> str:
    """What the picture shows, with the number in it."""
    ours = [one for one in group if not one.series.published] or list(group)
    most, least = max(ours, key=_factor), min(ours, key=_factor)
    told = most if _factor(most) >= STEADY or _factor(least) > 1 / STEADY else least
    verb = "grows" if _factor(told) >= STEADY else "falls" if _factor(told) <= 1 / STEADY else "hardly changes"
    whose = told.series.name if len(ours) == 1 else f"{told.series.name} {verb} most"
    ends = [
        f"{shown(value, told.series.unit)} at {scale:g}"
        for scale, value in ((told.scales[0], told.medians[0]), (told.scales[-1], told.medians[-1]))
    ]
    body = whose if len(ours) > 1 else f"{whose} {verb}"
    if verb == "hardly changes" and len(ours) > 1:
        body = "none of them changes by more than a tenth; " + told.series.name
    return f"{told.series.what}: {body}, {ends[0]} to {ends[1]} {told.series.axis}"


def _unit(name: str) -> Unit:
    try:
        return Unit(name)
    except ValueError:
        return Unit.NUMBER
