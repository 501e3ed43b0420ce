"""How long is a step, and how does each of its parts vary?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.data import OF_WHICH, PARTS, TITLES, Steps, steps_of
from rankscope.questions.steps.waits import StepWaits, waits_per_step
from rankscope.questions.wording import counted

STEPS_COLUMNS = (
    Column("rank", Unit.NAME, "Rank", "the rank, or all: pooled over the ranks"),
    Column(
        "name",
        Unit.NAME,
        "Name",
        "step, one of its parts, or a time within the parts or beside them: overlapped communication, garbage "
        "collection, waiting for a CPU, CPU time of the thread and of the process",
    ),
    Column("steps", Unit.COUNT, "Steps", "number of values: steady steps × ranks"),
    Column(
        "share",
        Unit.SHARE,
        "% of step",
        "sum of the values ÷ sum of the lengths of the steps; above 1 for the CPU time of a process with several busy "
        "threads",
    ),
    Column("min_ns", Unit.NS, "Min", "smallest value"),
    Column("max_ns", Unit.NS, "Max", "largest value"),
    Column("mean_ns", Unit.NS, "Mean", "sum of the values ÷ `steps`"),
    Column("variance_ms2", Unit.NUMBER, "Variance, ms²", "Σ(value − mean)² ÷ (`steps` − 1), in ms²"),
    Column("stdev_ns", Unit.NS, "Std dev", "√`variance_ms2`"),
    Column("p50_ns", Unit.NS, "p50", "median of the values"),
    Column("p90_ns", Unit.NS, "p90", "90th percentile of the values, linear between neighbours"),
    Column("p99_ns", Unit.NS, "p99", "99th percentile of the values, linear between neighbours"),
)
Array = Any  # of numpy
STEP = "step"
CELLS = 1 << 18  # values that are looked at at a time


def steps(tables: Tables, selection: Selection = ALL, by_rank: bool = True) -> Table:
    """Minimum to p99 of the step and of its parts: all ranks pooled, then rank by rank."""
    measured = steps_of(tables)
    chosen = [
        rank_steps for rank_steps in measured.ranks if selection.ranks is None or rank_steps.rank in selection.ranks
    ]
    table = Table("steps", "Steps", STEPS_COLUMNS, [])
    steady = [rank_steps for rank_steps in chosen if measured.steady(rank_steps).any()]
    if steady:
        table.rows += _pooled(measured, steady)
        table.rows += _each(measured, steady) if len(chosen) > 1 and by_rank else []
        table.notes += step_notes(measured, chosen)
    return arranged(table, selection)


def step_notes(measured: Steps, chosen: Sequence[RankSteps]) -> list[str]:
    """How fast, what was left out, and what was lost."""
    lengths = [
        float(rank_steps.length_ns[measured.steady(rank_steps)].mean())
        for rank_steps in chosen
        if measured.steady(rank_steps).any()
    ]
    notes = [f"{1e9 / max(lengths):.4g} steps/s, by the mean step of the slowest rank."] if lengths else []
    if measured.left_out:
        notes.append(f"Steady steps only, without {counted(measured.left_out, 'step')} of warm-up.")
    return notes + measured.notes


@dataclass(slots=True)
class _Spread:
    """How a part of the step varies, of several series of as many values each."""

    count: int
    columns: list[Array]  # those of the table before the variance
    variance: Array
    percentiles: Array
    any: Array  # whether there is anything but zeros

    @classmethod
    def of(cls, values: Array, length: Array) -> _Spread:
        """Series × values, and the sums of the steps that they are parts of."""
        variance = values.var(axis=1, ddof=1) if values.shape[1] > 1 else np.full(len(values), np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(length != 0, values.sum(axis=1) / length, np.nan)
        return cls(
            values.shape[1],
            [share, values.min(axis=1), values.max(axis=1), values.mean(axis=1)],
            variance,
            np.percentile(values, (50, 90, 99), axis=1),
            values.any(axis=1),
        )

    def row(self, who: str, name: str, place: int) -> tuple[Cell, ...]:
        variance = _number(self.variance[place])
        spread = (None, None) if variance is None else (variance / 1e12, variance**0.5)
        first, last = ([_number(column[place]) for column in columns] for columns in (self.columns, self.percentiles))
        return (who, TITLES.get(name, name), self.count, *first, *spread, *last)


def _names(rank_steps: RankSteps) -> list[str]:
    return [STEP, *rank_steps.own, "exposed", *rank_steps.of_which]


def _values(rank_steps: RankSteps, name: str) -> Array:
    if name == STEP:
        return rank_steps.length_ns
    return (
        rank_steps.exposed_ns
        if name == "exposed"
        else rank_steps.own[name]
        if name in rank_steps.own
        else rank_steps.of_which[name]
    )


def _pooled(measured: Steps, ranks: Sequence[RankSteps]) -> list[tuple[Cell, ...]]:
    """The rows of all ranks together."""
    rows, length = [], np.zeros(1)
    for name in _names(ranks[0]):
        values = measured.pooled(ranks, partial(_values, name=name))[None, :]
        length = values.sum(axis=1) if name == STEP else length
        if name == STEP or values.any():
            rows.append(_Spread.of(values, length).row("all", name, 0))
    return rows


def _each(measured: Steps, ranks: Sequence[RankSteps]) -> list[tuple[Cell, ...]]:
    """The rows of each rank: many ranks of as many steps at a time."""
    rows: dict[int, list[tuple[Cell, ...]]] = {}
    of_count: dict[int, list[RankSteps]] = {}
    for rank_steps in ranks:
        of_count.setdefault(int(measured.steady(rank_steps).sum()), []).append(rank_steps)
    for count, alike in of_count.items():
        at_once = max(1, CELLS // count)
        for first in range(0, len(alike), at_once):
            some, length = alike[first : first + at_once], np.zeros(1)
            for name in _names(some[0]):
                values = np.stack([_values(each, name)[measured.steady(each)] for each in some])
                length = values.sum(axis=1) if name == STEP else length
                spread = _Spread.of(values, length)
                for place, rank_steps in enumerate(some):
                    if name == STEP or spread.any[place]:
                        rows.setdefault(rank_steps.rank, []).append(spread.row(str(rank_steps.rank), name, place))
    return [row for rank_steps in ranks for row in rows[rank_steps.rank]]


def _number(value: Any) -> float | None:
    return None if value != value else float(value)


# ---------------------------------------------------------------- where does the step of each rank go?
OWN = (*PARTS[:5], "checkpoint", "compute", "other")
OWN_FORMULA = "mean of the part, less what was blocked in collectives within it"
OWN_FORMULAS = {
    "compute": "steps of a pattern: mean time outside collectives",
    "other": "mean of what is in no other part, less what was blocked in collectives within it",
}
HEADINGS = {part: part.replace("_", " ").capitalize() for part in OWN} | {"data": "Data loading"}
STEP_PARTS_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("steps", Unit.COUNT, "Steps", "number of steady steps"),
    Column("step_ns", Unit.NS, "Step", "mean length of the steady steps"),
    *(
        Column(
            f"{part}_ns",
            Unit.NS,
            HEADINGS[part],
            OWN_FORMULAS.get(part, OWN_FORMULA),
        )
        for part in OWN
    ),
    Column(
        "exposed_ns",
        Unit.NS,
        "Exposed comm.",
        "mean exposed communication: blocked in collectives, in whatever part; steps of a pattern: inside collectives",
    ),
    Column("sum_share", Unit.SHARE, "Sum/step", "(sum of the parts + `exposed_ns`) ÷ `step_ns`"),
    Column("exposed_share", Unit.SHARE, "Exposed share", "`exposed_ns` ÷ `step_ns`"),
    Column(
        "exposed_wait_ns",
        Unit.NS,
        "Exposed wait",
        "wait of the blocking ones of the collectives of `wait_ns`, and what nonblocking ones add to it",
    ),
    Column(
        "exposed_transfer_ns",
        Unit.NS,
        "Exposed transfer",
        "transfer and exit skew of the blocking ones; of the rest of `exposed_ns` (nonblocking ones), transfer and "
        "exit skew as far as they go, then wait: wait comes first in a collective, its end holds up the loop",
    ),
    Column(
        "exposed_unmatched_ns",
        Unit.NS,
        "Exposed, not split",
        "`exposed_ns` − `exposed_wait_ns` − `exposed_transfer_ns`: in point-to-point messages (mostly the bubble of a "
        "pipeline), and in collectives that were not recorded on all their ranks",
    ),
    Column(
        "wait_ns",
        Unit.NS,
        "Wait, exposed or not",
        "wait of the matched collectives begun in the steady steps ÷ steps that the log reaches; collectives side "
        "by side are summed",
    ),
    Column("transfer_ns", Unit.NS, "Transfer, exposed or not", "transfer of the same collectives ÷ the same steps"),
    Column("leaving_ns", Unit.NS, "Exit skew", "exit skew of the same collectives ÷ the same steps"),
    Column(
        "hidden_ns",
        Unit.NS,
        "Overlapped",
        "mean overlapped communication: a collective was in progress and the loop was not blocked by it",
    ),
    Column("gc_ns", Unit.NS, "GC", "mean time of garbage collection, within the parts"),
    Column(
        "runnable_ns",
        Unit.NS,
        "Runnable, no CPU",
        "mean time in which the loop's thread could have run and had no CPU, within the parts or while blocked",
    ),
    Column("cpu_ns", Unit.NS, "CPU time", "mean CPU time of the loop's thread"),
)


def step_parts(tables: Tables, selection: Selection = ALL) -> Table:
    """The mean steady step of each rank, part by part; the parts and the communication add up to the step."""
    measured = steps_of(tables)
    chosen = [each for each in measured.ranks if selection.ranks is None or each.rank in selection.ranks]
    waits = waits_per_step(tables, measured)
    table = Table("step_parts", "Parts of the step, mean", STEP_PARTS_COLUMNS, [])
    for rank_steps in chosen:
        mask = measured.steady(rank_steps)
        if mask.any():
            table.rows.append(_row(rank_steps, mask, waits.get(rank_steps.rank)))
    if table.rows:
        table.notes += step_notes(measured, chosen)
        table.notes.append("Parts exclude the time blocked in collectives, which is all in Communication.")
    return arranged(table, selection)


def _row(rank_steps: RankSteps, mask: Any, waits: StepWaits | None) -> tuple[Cell, ...]:
    step = float(rank_steps.length_ns[mask].mean())
    own_ns = {name: float(values[mask].mean()) for name, values in rank_steps.own.items()}
    exposed = float(rank_steps.exposed_ns[mask].mean())
    accounted = (sum(own_ns.values()) + exposed) / step if step else None
    within = {name: float(np.mean(rank_steps.of_which[name][mask])) for name in OF_WHICH if name in rank_steps.of_which}
    return (
        *(rank_steps.rank, rank_steps.host, int(mask.sum()), step),
        *(own_ns.get(name) for name in OWN),
        *(exposed, accounted, exposed / step if step else None),
        *(waits.exposed(exposed) if waits else (None, None, None)),
        *((waits.wait_ns, waits.transfer_ns, waits.leaving_ns) if waits else (None, None, None)),
        *(within.get(name) for name in ("hidden", "gc", "runnable", "cpu")),
    )
