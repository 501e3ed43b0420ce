"""Tables of growth: law and exponent of each series, projection, speed-up, and which part grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.analyse.law_intervals import coefficient_intervals
from rankscope.analyse.scale_series import RUNS
from rankscope.model import Cell, Column, Table, Unit
from rankscope.questions.scaling.growth import Growth

LAWS = (
    Column("series", Unit.NAME, "Series"),
    Column("what", Unit.NAME, "What"),
    Column("scales", Unit.COUNT, "Scales"),
    Column("smallest", Unit.NUMBER, "From"),
    Column("largest", Unit.NUMBER, "To"),
    Column("first", Unit.NAME, "There"),
    Column("last", Unit.NAME, "And there"),
    Column("exponent", Unit.NUMBER, "Exponent at the end"),
    Column("law", Unit.NAME, "Law"),
    Column("formula", Unit.NAME, "Fitted"),
    Column("relative_error", Unit.SHARE, "Scatter around it"),
)
PROJECTION = (
    Column("series", Unit.NAME, "Series"),
    Column("what", Unit.NAME, "What"),
    Column("scale", Unit.NUMBER, "At"),
    Column("value", Unit.NAME, "Value"),
    Column("low", Unit.NAME, "At least"),
    Column("high", Unit.NAME, "At most"),
    Column("refused", Unit.NAME, "Not foretold, because"),
)
SPEED_UP = (
    Column("series", Unit.NAME, "Series"),
    Column("what", Unit.NAME, "What"),
    Column("scale", Unit.NUMBER, "At"),
    Column("value", Unit.NAME, "Value"),
    Column("speed_up", Unit.NUMBER, "Speed-up"),
    Column("efficiency", Unit.SHARE, "Efficiency"),
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
    table = Table("scale_laws", "How it grows", LAWS, [])
    for one in grown:
        s, fit = one.series, one.choice.fit if one.choice else None
        ends = (shown(one.medians[0], s.unit), shown(one.medians[-1], s.unit))
        law: tuple[Cell, ...] = (
            (fit.law.name, _formula(one), fit.relative_error) if fit else ("none", "; ".join(one.doubts), None)
        )
        table.rows.append((s.name, s.what, len(one.scales), one.scales[0], one.scales[-1], *ends, one.exponent, *law))
    table.notes.append("Law: the one that foretells best a scale left out; a simpler one where that is not told apart.")
    table.notes.append("Exponent at the end: slope in logarithms over the last three: 0 constant, 1 proportional.")
    return table


def _formula(one: Growth) -> str:
    assert one.choice
    fit = one.choice.fit
    text = fit.law.formula
    values = list(zip("abc", fit.coefficients, coefficient_intervals(fit), strict=False))
    told = []
    for letter, value, (low, high) in values:
        if fit.law.of_logarithms and letter == "a":
            value, low, high = np.exp(value), np.exp(low), np.exp(high)
        unit = "" if fit.law.of_logarithms and letter == "b" else one.series.unit
        told.append(f"{letter} = {shown(value, unit)} ({shown(low, unit)} to {shown(high, unit)})")
    return f"{text}, {', '.join(told)}"


def projection(grown: Sequence[Growth], scales: Sequence[float]) -> Table:
    table = Table("scale_projection", "What it will be", PROJECTION, [])
    for one in grown:
        for scale in scales:
            found = one.at(scale)
            told: tuple[Cell, ...] = (
                (None, None, None, found)
                if isinstance(found, str)
                else (*(shown(v, one.series.unit) for v in (found.value, found.low, found.high)), None)
            )
            table.rows.append((one.series.name, one.series.what, scale, *told))
    table.notes.append("At least, at most: 95 % interval of the fitted law, not of one further measurement.")
    return table


def speed_up(grown: Sequence[Growth]) -> Table:
    """Of times whose job is the same at every scale T(first) / T(n), of throughputs the other way round."""
    table = Table("scale_speed_up", "Speed-up and efficiency", SPEED_UP, [])
    for one in grown:
        throughput = one.series.unit == "/s"
        if one.series.name != RUNS and not throughput:
            continue  # of what somebody has tabulated nobody knows whether the job was the same
        first, base = one.scales[0], one.medians[0]
        for scale, value in zip(one.scales, one.medians, strict=True):
            gained = value / base if throughput else base / value
            told = shown(value, one.series.unit)
            table.rows.append((one.series.name, one.series.what, scale, told, gained, gained / (scale / first)))
    if any(one.series.name == RUNS for one in grown):
        table.notes.append("Of times: as if the whole job were the same at every scale (strong scaling).")
    return table
