"""How long is a step, and how does each of its parts vary?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankscope.analyse.rank_steps import RankSteps
from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.analyse.step_data import TITLES, Steps, steps_of
from rankscope.analyse.words import counted
from rankscope.model import Cell, Column, Table, Tables, Unit

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("name", Unit.NAME, "Name"),
    Column("steps", Unit.COUNT, "Steps"),
    Column("share", Unit.SHARE, "Of step"),
    Column("min_ns", Unit.NS, "Min"),
    Column("max_ns", Unit.NS, "Max"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("variance_ms2", Unit.NUMBER, "Variance, ms²"),
    Column("stdev_ns", Unit.NS, "Std dev"),
    Column("p50_ns", Unit.NS, "p50"),
    Column("p90_ns", Unit.NS, "p90"),
    Column("p99_ns", Unit.NS, "p99"),
)


def steps(tables: Tables, selection: Selection = ALL, by_rank: bool = True) -> Table:
    """Minimum to p99 of the step and of its parts: all ranks pooled, then rank by rank."""
    found = steps_of(tables)
    chosen = [one for one in found.ranks if selection.ranks is None or one.rank in selection.ranks]
    table = Table("steps", "Steps", COLUMNS, [])
    steady = [(one, found.steady(one)) for one in chosen]
    if sum(int(mask.sum()) for _, mask in steady):
        table.rows += _rows("all", steady)
        for pair in steady if len(steady) > 1 and by_rank else []:
            table.rows += _rows(str(pair[0].rank), [pair])
        table.notes += step_notes(found, chosen)
    elif not found.ranks:
        table.notes += found.notes  # why there are none
    return arranged(table, selection)


def step_notes(found: Steps, chosen: Sequence[RankSteps]) -> list[str]:
    """How fast, what was left out, and what was lost."""
    lengths = [float(one.length_ns[found.steady(one)].mean()) for one in chosen if found.steady(one).any()]
    notes = [f"{1e9 / max(lengths):.4g} steps/s, by the mean step of the slowest rank."] if lengths else []
    if found.left_out:
        notes.append(f"Steady steps only, without {counted(found.left_out, 'step')} of warm-up.")
    return notes + found.notes


def _rows(who: str, of: Sequence[tuple[RankSteps, Any]]) -> list[tuple[Cell, ...]]:
    length = np.concatenate([one.length_ns[mask] for one, mask in of])
    rows = [_row(who, "step", length, length)]
    for name, values in _series(of).items():
        if values.any():
            rows.append(_row(who, TITLES[name], values, length))
    return rows


def _series(of: Sequence[tuple[RankSteps, Any]]) -> dict[str, Any]:
    first = of[0][0]
    made = {name: np.concatenate([one.own[name][mask] for one, mask in of]) for name in first.own}
    made["exposed"] = np.concatenate([one.exposed_ns[mask] for one, mask in of])
    for name in first.of_which:
        made[name] = np.concatenate([one.of_which[name][mask] for one, mask in of])
    return made


def _row(who: str, name: str, values: Any, length: Any) -> tuple[Cell, ...]:
    mean, variance = float(values.mean()), float(values.var(ddof=1)) if len(values) > 1 else None
    middle, high, highest = (float(value) for value in np.percentile(values, (50, 90, 99)))
    whole = float(length.sum())
    return (
        who,
        name,
        len(values),
        float(values.sum()) / whole if whole else None,
        float(values.min()),
        float(values.max()),
        mean,
        variance / 1e12 if variance is not None else None,
        variance**0.5 if variance is not None else None,
        *(middle, high, highest),
    )
