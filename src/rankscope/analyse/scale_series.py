"""Which quantities do runs of several sizes have in common, each as a series over the scale?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from rankscope.model import Tables
from rankscope.questions.scaling.growth import Series
from rankscope.questions.scaling.models import BY_SCALE, BY_SIZE
from rankscope.questions.steps.phases import phases
from rankscope.questions.steps.steps import steps

AXES = ("ranks", "hosts")
RUNS = "runs"  # the name of series of recorded runs
FIGURES = """
    SELECT series, name, coalesce(statistic, ''), scale_name, unit, scale, value FROM figures
    WHERE scale IS NOT NULL AND value IS NOT NULL ORDER BY ALL"""
HOSTS = "SELECT max(value) FROM figures WHERE scale IS NULL AND name = 'hostnames'"
OF_HOSTS = ("nodes", "hosts", "scale")  # axes that one host cannot have more than one point on
SIZES = """
    SELECT count(*), count(DISTINCT host), max(elapsed_ns) FROM ranks WHERE role = 'rank'"""


def of_documents(tables: Tables) -> list[Series]:
    """What somebody has tabulated by scale."""
    made = of_figures(tables.query(FIGURES))
    ((hosts,),) = tables.query(HOSTS)
    return [replace(one, objection=_of_one_host(one, float(hosts or 0))) for one in made]


def of_figures(rows: Iterable[tuple[Any, ...]]) -> list[Series]:
    """(series, name, statistic, axis, unit, scale, value), each a point of a series."""
    found: dict[tuple[str, str, str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for series, name, statistic, axis, unit, scale, value in rows:
        found[(series, name, statistic, axis or "scale", unit)].append((float(scale), float(value)))
    made = []
    for (series, name, statistic, axis, unit), points in found.items():
        what = " ".join(word for word in (name, statistic) if word)
        laws = BY_SIZE if axis in ("bytes", "size") else BY_SCALE
        made.append(Series(series, what, unit, axis, tuple(points), laws))
    return [one for one in made if len({scale for scale, _ in one.points}) > 1]


def summed(name: str, parts: Sequence[Series]) -> Series:
    """Their sum over all scales of any of them: where one has no value, its value at the largest scale below."""
    curves = [_medians(one) for one in parts]
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
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for tables in runs:
        ranks, hosts, _ = tables.query(SIZES)[0]
        for what, value_ns in of_run(tables):
            found[what].append((float(ranks if axis == "ranks" else hosts), value_ns))
    made = [Series(RUNS, what, "ns", axis, tuple(points)) for what, points in found.items()]
    return [one for one in made if len({scale for scale, _ in one.points}) > 1]


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
