"""The page of growth: how it scales, what grows and what it will be, then graphs and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope.model.tables import Table
from rankscope.pictures import Advice, AnswerPage, Figure, Graph, Points, Section
from rankscope.questions.scaling.break_even import BYTES
from rankscope.questions.scaling.growth import Growth
from rankscope.questions.scaling.models import LawEstimate
from rankscope.questions.scaling.scaling import STEADY, factor, formula, shown
from rankscope.questions.wording import percent

MOST_POINTS = 7
PER_SECOND = "/s"
ALIKE = 0.1  # by which quantities of one series may differ that are not listed twice, as least and most of all ranks
REPEATS = "median of the repeats at that scale"
ONE_SIZE = "There is one size only: run several to see how anything grows."
# the tables of growth in the order of the page; what else there is was measured
GROWTH = {
    "scale_laws": ("How does it grow?", "Growth"),
    "scale_speed_up": ("How much faster is it at a larger size?", "Growth"),
    "scale_break_even": ("Where does one become better than another?", "Growth"),
    "scale_projection": ("What is the projection?", "Projection"),
    "size_laws": ("How does it grow with the size of the message?", "Message sizes"),
    "size_break_even": ("Where does one become better than another, by the size of the message?", "Message sizes"),
}
DETAILS = {"cells": "Which cells ran?", "environment": "Where did it run?"}


@dataclass(frozen=True, slots=True)
class Scaling:
    """What a page of growth is made of."""

    name: str
    facts: Sequence[str]
    grown: Sequence[Growth]
    tables: Sequence[Table]  # of a study its own ones, too
    graphs: Mapping[str, Sequence[Graph]]  # by the name of the table that they belong to
    to: Sequence[float] = ()


def growth_page(scaling: Scaling, kind: str = "Growth") -> AnswerPage:
    """The answer on the first screen with the graph of what grows most; then what was measured, and all of growth."""
    ranked = _ranked([growth for growth in scaling.grown if not growth.series.published])
    first = _first_graph(ranked, scaling.graphs)
    left = {name: [graph for graph in some if graph is not first] for name, some in scaling.graphs.items()}
    sections = _sections(scaling.tables, left)
    if first is not None:
        sections.insert(0, Section("growth", "How does it scale?", [], graphs=[first], group="Growth"))
    return AnswerPage(
        kind,
        scaling.name,
        scaling.facts,
        _verdict(ranked),
        _figures(ranked, scaling.to),
        [
            Points(
                "grows",
                "What grows?",
                [_point(growth, scaling.to) for growth in _unlike(ranked)[:MOST_POINTS]],
                ONE_SIZE,
            )
        ],
        sections,
        list(dict.fromkeys(text for table in scaling.tables for text in table.warnings)),
        "growth" if first is not None else "",
    )


def _ranked(grown: Sequence[Growth]) -> list[Growth]:
    """Times by what they grow by in all, then all else by its factor; sizes of messages only where nothing else is."""
    by_scale = [growth for growth in grown if growth.series.axis != BYTES] or list(grown)
    times = [growth for growth in by_scale if growth.series.unit == "ns"]
    others = [growth for growth in by_scale if growth.series.unit != "ns"]
    times.sort(key=lambda growth: -(growth.medians[-1] - growth.medians[0]))
    return [*times, *sorted(others, key=lambda growth: -max(factor(growth), 1 / factor(growth)))]


def _unlike(ranked: Sequence[Growth]) -> list[Growth]:
    """Without those that say what one before them has said."""
    distinct: list[Growth] = []
    for growth in ranked:
        ends = [(other.medians[0], other.medians[-1]) for other in distinct if other.series.name == growth.series.name]
        if not any(_near(growth.medians[0], first) and _near(growth.medians[-1], last) for first, last in ends):
            distinct.append(growth)
    return distinct


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= ALIKE * max(abs(one), abs(other))


def _first_graph(ranked: Sequence[Growth], graphs: Mapping[str, Sequence[Graph]]) -> Graph | None:
    every = [graph for some in graphs.values() for graph in some]
    if not ranked or not every:
        return every[0] if every else None
    most = ranked[0].series
    named = [
        graph
        for graph in every
        if graph.value_axis == most.what and most.name in {curve.name for curve in graph.curves}
    ]
    return (named or every)[0]


# ---------------------------------------------------------------- the answer
def _verdict(ranked: Sequence[Growth]) -> str:
    if not ranked:
        return ONE_SIZE
    sentences = [_scaling(best)] if (best := _best(ranked)) is not None else []
    growing = [growth for growth in ranked if growth.series.unit == "ns" and factor(growth) >= STEADY]
    if growing:
        most = growing[0]
        sentences.append(f"{_what(most)} adds the most time: {_ends(most)}, {factor(most):.2g} times as long.")
    verdict = " ".join(sentences) or "Nothing grows by more than a tenth."
    return verdict[0].upper() + verdict[1:]


def _best(ranked: Sequence[Growth]) -> Growth | None:
    """The throughput that scales best."""
    rates = [growth for growth in ranked if growth.series.unit == PER_SECOND]
    return max(rates, key=_efficiency, default=None)


def _efficiency(growth: Growth) -> float:
    return factor(growth) / (growth.scales[-1] / growth.scales[0])


def _scaling(best: Growth) -> str:
    return f"{best.series.name} scales best: {_ends(best)}, {percent(_efficiency(best))} of perfect scaling."


def _figures(ranked: Sequence[Growth], to: Sequence[float]) -> list[Figure]:
    if not ranked:
        return []
    most = ranked[0]
    axis, unit = most.series.axis, most.series.unit
    figures = [
        Figure("Measured sizes", f"{most.scales[0]:g} to {most.scales[-1]:g} {axis}", "smallest and largest scale")
    ]
    figures += [
        Figure(f"At {scale:g} {axis[:-1] if scale == 1 else axis}", shown(value, unit), REPEATS, _what(most))
        for scale, value in ((most.scales[0], most.medians[0]), (most.scales[-1], most.medians[-1]))
    ]
    if most.exponent is not None:
        meaning = "slope of ln value over ln scale through the medians of the last three scales"
        figures.append(Figure("Exponent at the end", f"{most.exponent:.2f}", meaning, "0 constant, 1 proportional"))
    if to:
        value, detail = _projected(most, max(to))
        figures.append(Figure(f"Projected to {max(to):g} {axis}", value, "the fitted model at that scale", detail))
    return figures


def _projected(growth: Growth, scale: float) -> tuple[str, str]:
    """The value and its interval, or why there is none."""
    value_there = growth.at(scale)
    if not isinstance(value_there, LawEstimate):
        return "not supported", value_there
    value, low, high = (
        shown(each, growth.series.unit) for each in (value_there.value, value_there.low, value_there.high)
    )
    return value, f"95 % interval {low} to {high}"


def _point(growth: Growth, to: Sequence[float]) -> Advice:
    """One series: what it does, by which law, and where that leads."""
    level = "GROWS" if factor(growth) >= STEADY else "FALLS" if factor(growth) <= 1 / STEADY else "STEADY"
    fit = growth.choice.fit if growth.choice else None
    law = f"by the model {formula(growth)}" if fit else f"no model ({'; '.join(growth.doubts)})"
    texts = [f"at {scale:g} {growth.series.axis}: {' – '.join(_projected(growth, scale))}" for scale in to]
    what = _what(growth)
    return Advice(level, f"{what[0].upper()}{what[1:]}: {_ends(growth)}", "; ".join([law, *texts]), [], "")


def _what(growth: Growth) -> str:
    statistic, _, quantity = growth.series.what.partition(", ")
    if quantity and statistic in ("Min", "Median", "Mean", "Max"):
        return f"{quantity} of {growth.series.name} ({statistic.lower()} over the ranks)"
    return f"{growth.series.what} of {growth.series.name}"


def _ends(growth: Growth) -> str:
    first, last = (shown(value, growth.series.unit) for value in (growth.medians[0], growth.medians[-1]))
    return f"from {first} at {growth.scales[0]:g} to {last} at {growth.scales[-1]:g} {growth.series.axis}"


# ---------------------------------------------------------------- below
def _sections(tables: Sequence[Table], graphs: Mapping[str, Sequence[Graph]]) -> list[Section]:
    """What was measured first, unfolded; where it ran last."""
    named = _distinct([table for table in tables if table.rows or table.notes])
    measured = [table for table in named if table.name not in GROWTH and table.name not in DETAILS]
    sections = [
        Section("results", "What was measured?", [table], unfolded=True, group="Measured") for table in measured[:1]
    ]
    if measured[1:]:
        sections.append(Section("measured", "What else was measured?", measured[1:], group="Measured"))
    for name, (question, group) in GROWTH.items():
        of_name = [table for table in named if table.name == name]
        if of_name or graphs.get(name):
            sections.append(Section(name, question, of_name, graphs=graphs.get(name, ()), group=group))
    for name, question in DETAILS.items():
        of_name = [table for table in named if table.name == name]
        sections += [Section(f"about-{name}", question, of_name, group="Details")] if of_name else []
    return sections


def _distinct(tables: Sequence[Table]) -> list[Table]:
    """With names that a page can tell apart, and without warnings, which come before all else."""
    seen: Counter[str] = Counter()
    distinct = []
    for table in tables:
        seen[table.name] += 1
        again = f"_{seen[table.name]}" if seen[table.name] > 1 else ""
        distinct.append(replace(table, name=f"{table.name}{again}", warnings=[]))
    return distinct
