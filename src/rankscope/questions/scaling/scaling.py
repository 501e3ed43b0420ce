"""Tables of growth: law and exponent of each series, projection, speed-up, and which part grows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.pictures import Curve, Graph
from rankscope.questions.run.overview import BY_DOCUMENT_SQL
from rankscope.questions.run.screen_ranks import NUMBERED
from rankscope.questions.scaling.crossovers import alike, scaled
from rankscope.questions.scaling.growth import Growth, Series
from rankscope.questions.scaling.models import BY_SCALE, BY_SIZE, LawEstimate, coefficient_intervals, estimate
from rankscope.questions.steps.phases import phases
from rankscope.questions.steps.steps import steps

# ---------------------------------------------------------------------------------------------------------------------
# Which quantities do runs of several sizes have in common, each as a series over the scale?
AXES = ("ranks", "hosts")
RUNS = "runs"  # the name of series of recorded runs
FIGURES = f"""
    SELECT series, name, coalesce(statistic, ''), scale_name, unit, scale, value FROM ({BY_DOCUMENT_SQL})
    WHERE scale IS NOT NULL AND value IS NOT NULL
    AND scale_name NOT IN {sql_list(NUMBERED)}
    ORDER BY ALL"""
HOSTS = "SELECT max(value) FROM figures WHERE scale IS NULL AND name = 'hostnames'"
OF_HOSTS = ("nodes", "hosts", "scale")  # axes that one host cannot have more than one point on
SIZES = """
    SELECT count(*), count(DISTINCT host), max(elapsed_ns) FROM ranks WHERE role = 'rank'"""


def of_documents(tables: Tables) -> list[Series]:
    """What somebody has tabulated by scale."""
    series = of_figures(tables.query(FIGURES))
    ((hosts,),) = tables.query(HOSTS)
    return [replace(each, objection=_of_one_host(each, float(hosts or 0))) for each in series]


def of_figures(rows: Iterable[tuple[Any, ...]]) -> list[Series]:
    """(series, name, statistic, axis, unit, scale, value), each a point of a series."""
    points_of: dict[tuple[str, str, str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for series, name, statistic, axis, unit, scale, value in rows:
        points_of[(series, name, statistic, axis or "scale", unit)].append((float(scale), float(value)))
    listed = []
    for (series, name, statistic, axis, unit), points in points_of.items():
        what = " ".join(word for word in (name, statistic) if word)
        laws = BY_SIZE if axis in ("bytes", "size") else BY_SCALE
        listed.append(Series(series, what, unit, axis, tuple(points), laws))
    return [series_entry for series_entry in listed if len({scale for scale, _ in series_entry.points}) > 1]


def summed(name: str, parts: Sequence[Series]) -> Series:
    """Their sum over all scales of any of them: where one has no value, its value at the largest scale below."""
    curves = [_medians(part) for part in parts]
    scales = sorted({scale for curve in curves for scale in curve})
    points = tuple((scale, sum(_held(curve, scale) for curve in curves)) for scale in scales)
    return replace(parts[0], name=name, points=points)


def _medians(series: Series) -> dict[float, float]:
    scales = dict.fromkeys(scale for scale, _ in series.points)
    return {scale: median(value for at, value in series.points if at == scale) for scale in scales}


def _held(curve: dict[float, float], scale: float) -> float:
    below = [known for known in curve if known <= scale]
    return curve[max(below) if below else min(curve)]


def _of_one_host(series: Series, hosts: float) -> str:
    """A profile whose own header counts fewer hosts than its rows are said to be of."""
    largest = max(scale for scale, _ in series.points)
    if not hosts or series.axis not in OF_HOSTS or hosts >= largest:
        return ""
    return f"the document's header counts {hosts:g} host{'s' * (hosts != 1)}, its rows go to {largest:g}"


def of_runs(runs: Sequence[Tables], axis: str = "ranks") -> list[Series]:
    """Of recorded runs: elapsed, its phases, the step and its parts; medians over the ranks and steps of each."""
    points_of: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for tables in runs:
        ranks, hosts, _ = tables.query(SIZES)[0]
        for what, value_ns in of_run(tables):
            points_of[what].append((float(ranks if axis == "ranks" else hosts), value_ns))
    series = [Series(RUNS, what, "ns", axis, tuple(points)) for what, points in points_of.items()]
    return [series_entry for series_entry in series if len({scale for scale, _ in series_entry.points}) > 1]


def of_run(tables: Tables) -> list[tuple[str, float]]:
    """Of one run: elapsed, its phases, the step and its parts."""
    ranks, _, elapsed_ns = tables.query(SIZES)[0]
    return [("elapsed", float(elapsed_ns)), *_parts(tables)] if ranks and elapsed_ns else []


def _parts(tables: Tables) -> list[tuple[str, float]]:
    """Of one run: the phases (median over ranks), the step and its parts (median over all steps)."""
    parts = []
    shown = phases(tables)
    at = {column.name: place for place, column in enumerate(shown.columns)}
    for row in shown.rows:
        parts.append((f"phase {row[at['phase']]}", float(row[at["median_ns"]] or 0)))
    shown = steps(tables)
    at = {column.name: place for place, column in enumerate(shown.columns)}
    for row in shown.rows:
        if row[at["rank"]] == "all":
            name = row[at["name"]]
            parts.append(("step" if name == "step" else f"step, {name}", float(row[at["p50_ns"]] or 0)))
    return [(what, value) for what, value in parts if value > 0]


# ---------------------------------------------------------------- scaling
LAWS = (
    Column("series", Unit.NAME, "Series"),
    Column("what", Unit.NAME, "What"),
    Column("scales", Unit.COUNT, "Scales", "number of different scales"),
    Column("smallest", Unit.NUMBER, "From", "smallest scale"),
    Column("largest", Unit.NUMBER, "To", "largest scale"),
    Column("first", Unit.NAME, "First value"),
    Column("last", Unit.NAME, "Last value"),
    Column(
        "exponent",
        Unit.NUMBER,
        "Exponent at the end",
        "slope of ln value over ln scale through the medians of the last three scales",
    ),
    Column("law", Unit.NAME, "Model"),
    Column("formula", Unit.NAME, "Fitted"),
    Column("relative_error", Unit.SHARE, "Scatter", "√(Σ ((value − law) ÷ law)² ÷ (values − coefficients))"),
)
PROJECTION = (
    Column("series", Unit.NAME, "Series"),
    Column("what", Unit.NAME, "What"),
    Column("scale", Unit.NUMBER, "At", "the scale to extrapolate to"),
    Column("value", Unit.NAME, "Value"),
    Column("low", Unit.NAME, "At least"),
    Column("high", Unit.NAME, "At most"),
    Column("refused", Unit.NAME, "No projection, because"),
)
SPEED_UP = (
    Column("series", Unit.NAME, "Series"),
    Column("what", Unit.NAME, "What"),
    Column("scale", Unit.NUMBER, "At", "the measured scale"),
    Column("value", Unit.NAME, "Value"),
    Column(
        "speed_up",
        Unit.NUMBER,
        "Speed-up",
        "value at the smallest scale ÷ value here; of throughputs the other way round",
    ),
    Column("efficiency", Unit.SHARE, "Efficiency", "`speed_up` ÷ (scale ÷ smallest scale)"),
)
FACTORS = {"ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs")), "bytes": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))}


def shown(value: float, unit: str) -> str:
    """With its unit, in figures that are easily read."""
    for factor, name in FACTORS.get(unit, ()):
        if abs(value) >= factor:
            return f"{value / factor:.4g} {name}"
    return f"{value:.4g} {unit}".strip()


def laws(grown: Sequence[Growth]) -> Table:
    """One line for each series."""
    table = Table("scale_laws", "How it grows", scaled(LAWS, grown), [])
    for growth in grown:
        s, fit = growth.series, growth.choice.fit if growth.choice else None
        ends = (shown(growth.medians[0], s.unit), shown(growth.medians[-1], s.unit))
        law: tuple[Cell, ...] = (
            (fit.law.name, formula(growth), fit.relative_error) if fit else ("none", "; ".join(growth.doubts), None)
        )
        table.rows.append(
            (s.name, s.what, len(growth.scales), growth.scales[0], growth.scales[-1], *ends, growth.exponent, *law)
        )
    table.notes.append(
        "Model: the one with the lowest leave-one-out error; a simpler one where the two are not distinguishable."
    )
    table.notes.append("Exponent at the end: slope in logarithms over the last three: 0 constant, 1 proportional.")
    return table


def formula(growth: Growth) -> str:
    """The law with its coefficients and their intervals."""
    assert growth.choice
    fit = growth.choice.fit
    text = fit.law.formula
    values = list(zip("abc", fit.coefficients, coefficient_intervals(fit), strict=False))
    parameters = []
    for letter, value, (low, high) in values:
        if fit.law.of_logarithms and letter == "a":
            value, low, high = np.exp(value), np.exp(low), np.exp(high)
        unit = "" if fit.law.of_logarithms and letter == "b" else growth.series.unit
        parameters.append(f"{letter} = {shown(value, unit)} ({shown(low, unit)} to {shown(high, unit)})")
    return f"{text}, {', '.join(parameters)}"


def projection(grown: Sequence[Growth], scales: Sequence[float]) -> Table:
    table = Table("scale_projection", "Projection", PROJECTION, [])
    for growth in grown:
        for scale in scales:
            value_there = growth.at(scale)
            cells: tuple[Cell, ...] = (
                (None, None, None, value_there)
                if isinstance(value_there, str)
                else (
                    *(shown(v, growth.series.unit) for v in (value_there.value, value_there.low, value_there.high)),
                    None,
                )
            )
            table.rows.append((growth.series.name, growth.series.what, scale, *cells))
    table.notes.append("At least, at most: 95 % interval of the fitted model, not of one further measurement.")
    return table


def speed_up(grown: Sequence[Growth]) -> Table:
    """Of times whose job is the same at every scale T(first) / T(n), of throughputs the other way round."""
    table = Table("scale_speed_up", "Speed-up and efficiency", SPEED_UP, [])
    for growth in grown:
        throughput = growth.series.unit == "/s"
        if growth.series.name != RUNS and not throughput:
            continue  # of what somebody has tabulated nobody knows whether the job was the same
        first, base = growth.scales[0], growth.medians[0]
        for scale, value in zip(growth.scales, growth.medians, strict=True):
            gained = value / base if throughput else base / value
            value_text = shown(value, growth.series.unit)
            table.rows.append(
                (growth.series.name, growth.series.what, scale, value_text, gained, gained / (scale / first))
            )
    if any(growth.series.name == RUNS for growth in grown):
        table.notes.append("Of times: as if the whole job were the same at every scale (strong scaling).")
    return table


# ---------------------------------------------------------------------------------------------------------------------
# Growth as graphs: one for each quantity, with the measured points, the law through them and its interval.
FITTED_POINTS = 33
MOST_CURVES = 8  # that an eye can tell apart
MOST_GRAPHS = 8
MOST_OTHERS = 2  # of them, quantities that are no times, where there are more times than fit
STEADY = 1.1  # a factor below which nothing grows


def graphs(grown: Sequence[Growth], to: Sequence[float] = ()) -> list[Graph]:
    """In the order of the quantities; published series lie over every quantity in their unit and axis."""
    over = [growth for growth in grown if growth.series.published]
    drawn = []
    for group in _growing_most(alike([growth for growth in grown if not growth.series.published]) or alike(over)):
        ours = group[0].series
        laid = [growth for growth in over if (growth.series.unit, growth.series.axis) == (ours.unit, ours.axis)]
        drawn.append(graph([*group, *(other for other in laid if other not in group)], to))
    return drawn


def _growing_most(groups: Sequence[Sequence[Growth]]) -> list[Sequence[Growth]]:
    """Of very many quantities those that grow most: times by how much, rates and counts by how many times."""
    others = [group for group in groups if group[0].series.unit != "ns"]
    times = [group for group in groups if group[0].series.unit == "ns"]
    others.sort(key=lambda group: -max(max(factor(growth), 1 / factor(growth)) for growth in group))
    times.sort(key=lambda group: -max(growth.medians[-1] - growth.medians[0] for growth in group))
    few = others[: max(MOST_OTHERS, MOST_GRAPHS - len(times))]
    shown_groups = [*few, *times[: MOST_GRAPHS - len(few)]]
    return [group for group in groups if group in shown_groups]


def graph(group: Sequence[Growth], to: Sequence[float]) -> Graph:
    """Those that grow most, where there are too many to be told apart."""
    steepest = sorted(group, key=lambda growth: (not growth.series.published, factor(growth)), reverse=True)[
        :MOST_CURVES
    ]
    shown_in_order = [growth for growth in group if growth in steepest]
    first = group[0].series
    curves = [
        Curve(growth.series.name, growth.series.points, _law(growth, to), growth.series.published)
        for growth in shown_in_order
    ]
    left_out = f" (the {len(steepest)} of {len(group)} that grow most)" if len(steepest) < len(group) else ""
    return Graph(f"{sentence(group)}{left_out}", first.axis, first.what, _unit(first.unit), curves)


def _law(growth: Growth, to: Sequence[float]) -> list[tuple[float, float, float, float]]:
    """As far as it may be asked: to the largest wanted scale for which the data support it."""
    if growth.choice is None or growth.doubts:
        return []
    allowed = [scale for scale in to if isinstance(growth.at(scale), LawEstimate)]
    curve = []
    for scale in np.geomspace(growth.scales[0], max([growth.scales[-1], *allowed]), FITTED_POINTS):
        value_there = estimate(growth.choice.fit, float(scale))
        curve.append((float(scale), value_there.value, value_there.low, value_there.high))
    return curve


def factor(growth: Growth) -> float:
    """Of the largest to the smallest scale."""
    return growth.medians[-1] / growth.medians[0]


def sentence(group: Sequence[Growth]) -> str:
    """What the picture shows, with the number in it."""
    ours = [growth for growth in group if not growth.series.published] or list(group)
    most, least = max(ours, key=factor), min(ours, key=factor)
    leading = most if factor(most) >= STEADY or factor(least) > 1 / STEADY else least
    verb = "grows" if factor(leading) >= STEADY else "falls" if factor(leading) <= 1 / STEADY else "hardly changes"
    whose = leading.series.name if len(ours) == 1 else f"{leading.series.name} {verb} most"
    ends = [
        f"{shown(value, leading.series.unit)} at {scale:g}"
        for scale, value in ((leading.scales[0], leading.medians[0]), (leading.scales[-1], leading.medians[-1]))
    ]
    body = whose if len(ours) > 1 else f"{whose} {verb}"
    if verb == "hardly changes" and len(ours) > 1:
        body = "none of them changes by more than a tenth; " + leading.series.name
    return f"{leading.series.what}: {body}, from {ends[0]} to {ends[1]} {leading.series.axis}"


def _unit(name: str) -> Unit:
    try:
        return Unit(name)
    except ValueError:
        return Unit.NUMBER
