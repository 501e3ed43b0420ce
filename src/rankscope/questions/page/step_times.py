"""How long is each step, is it getting longer, and which rank made it so?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.pictures import Chart, Section
from rankscope.questions.events.timeline import as_it_is, begin_of, clocks_of
from rankscope.questions.gpu.steps import BUSY, IDLE
from rankscope.questions.page.section import PageOptions, column, number
from rankscope.questions.steps.arrays import RankSteps, some_of
from rankscope.questions.steps.blocks import step_history
from rankscope.questions.steps.data import steps_of
from rankscope.questions.steps.steps import OWN, steps
from rankscope.questions.wording import seconds

MOST_ROWS = 600  # about as many as a picture has room for
MOST_STRETCHES = 300  # of a job whose first steps have been overwritten
MOST_CELLS = 20_000  # of the parts by group of steps: they are what a selection needs, and nothing that is looked at
SORTED_AT_ONCE = 1 << 22
Array = Any  # of numpy

GROUP = (
    Column("first_step", Unit.COUNT, "From step", "number of the first step in the row"),
    Column("last_step", Unit.COUNT, "To step", "number of the last step in the row"),
)
COLUMNS = (
    *GROUP,
    Column("values", Unit.COUNT, "Values", "steps × ranks"),
    Column("min_ns", Unit.NS, "Min", "the shortest of them"),
    Column("median_ns", Unit.NS, "Median", "median of them"),
    Column("max_ns", Unit.NS, "Max", "the longest of them"),
    Column("slowest_rank", Unit.NAME, "Slowest rank", "the rank that has the longest"),
    Column("begin_ns", Unit.NS, "Begins at", "since the run began, on its common clock: the first rank to begin"),
    Column("end_ns", Unit.NS, "Ends at", "since the run began, on its common clock: the last rank to end"),
)


@dataclass(frozen=True, slots=True)
class Groups:
    """Steady steps that follow each other, by their numbers."""

    first: int
    last: int
    width: int

    @property
    def count(self) -> int:
        return (self.last - self.first) // self.width + 1

    def of(self, numbers: Array) -> Array:
        return (numbers - self.first) // self.width

    def ends(self, at: int) -> tuple[int, int]:
        first = self.first + at * self.width
        return first, min(self.last, first + self.width - 1)


def groups_of(tables: Tables, most: int, multiple_of: int = 1) -> Groups | None:
    """The steady steps in as many groups as there may be; None where there are no steps."""
    measured = steps_of(tables)
    steady = [rank.number[measured.steady(rank)] for rank in measured.ranks]
    known = [numbers for numbers in steady if len(numbers)]
    if not known:
        return None
    first, last = min(int(numbers.min()) for numbers in known), max(int(numbers.max()) for numbers in known)
    width = -(-(last - first + 1) // max(1, most))
    return Groups(first, last, -(-width // multiple_of) * multiple_of)


def step_times_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """Step time over steps: the range over all ranks, the median, and the percentiles of the whole run. Where newer
    steps have overwritten older ones, first what is known of the whole job."""
    table = step_times(tables, wanted)
    if len(table.rows) < 2:
        return None
    spread = next(iter(steps(tables, wanted.selection, by_rank=False).rows), None)
    assert spread is not None
    lines = (("p50", number(spread[9])), ("p99", number(spread[11])))
    parts = ("min_ns", "median_ns", "max_ns")
    on_gpus = bool(tables.query("SELECT 1 FROM device_steps LIMIT 1"))  # then the first screen has their clock
    whole, axis = _whole_job(tables, wanted), "step time on the host" if on_gpus else "step time"
    title = _title(table, lines, on_gpus, is_end=whole is not None)
    chart = Chart("curve", table.name, title, "first_step", parts, axis, "step", lines=lines)
    section = Section("step_times", "Step time over steps", [table], [chart])
    if whole is not None:
        section.tables.append(whole)
        section.charts.insert(0, _whole_chart(whole, axis))
    return section


def _title(table: Table, lines: Sequence[tuple[str, float]], on_hosts: bool, is_end: bool) -> str:
    longest = [number(cell) for cell in column(table, "max_ns")]
    at = longest.index(max(longest))
    first, last, rank = (column(table, name)[at] for name in ("first_step", "last_step", "slowest_rank"))
    where = f"step {first}" if first == last else f"steps {first} to {last}"
    usual, slow = (seconds(value) for _, value in lines)
    longest_told = f"the longest {seconds(longest[at])} ({where}, rank {rank})"
    which = f"the last {number(table.rows[-1][1]) - number(table.rows[0][0]) + 1:,.0f} steps" if is_end else "the steps"
    half = "On the host, half" if on_hosts else "Half"
    return f"{half} of {which} take {usual} or less, 1 in 100 more than {slow}; {longest_told}"


def _whole_job(tables: Tables, wanted: PageOptions) -> Table | None:
    """All steps in stretches, of a job of which not every step has been kept."""
    kept = min((int(rank.number[0]) for rank in steps_of(tables).ranks if len(rank.number)), default=0)
    table = step_history(tables, wanted.selection, MOST_STRETCHES)
    return table if len(table.rows) > 1 and number(table.rows[0][0]) < kept else None


def _whole_chart(table: Table, axis: str) -> Chart:
    medians = [number(cell) for cell in column(table, "median_ns")]
    slowest = medians.index(max(medians))
    first, last = (column(table, name)[slowest] for name in ("first", "last"))
    most = f"{seconds(max(medians))} (steps {first:,} to {last:,})"
    count = f"All {number(table.rows[-1][1]):,.0f} steps of the job"
    title = f"{count}: the median step lies between {seconds(min(medians))} and {most}"
    parts = ("quarter_ns", "median_ns", "three_quarters_ns")
    middle = (("median", float(np.median(medians))),)
    return Chart("curve", table.name, title, "first", parts, axis, "step", lines=middle)


def step_curve(tables: Tables, most: int) -> list[float]:
    """Medians over ranks and neighbouring steps, from the first steady step to the last, in ns."""
    groups = groups_of(tables, most)
    if groups is None:
        return []
    ranks = [rank for rank in steps_of(tables).ranks if len(rank.number)]
    nowhere = np.zeros(groups.count)  # when they were is not asked
    return [number(row[4]) for row in _rows(ranks, groups, 0, groups.count, (nowhere, nowhere))]


def step_times(tables: Tables, wanted: PageOptions) -> Table:
    """The steady steps, some neighbours in a row where there are many."""
    table = Table("step_times", "Step time over steps", COLUMNS, [])
    groups = groups_of(tables, MOST_ROWS)
    if groups is None:
        return table
    measured, chosen = steps_of(tables), wanted.selection.ranks
    ranks = [rank for rank in measured.ranks if (chosen is None or rank.rank in chosen) and len(rank.number)]
    spans = _spans(tables, ranks, groups)
    at_once = max(1, SORTED_AT_ONCE // max(1, len(ranks) * groups.width))
    for first in range(0, groups.count, at_once):
        table.rows += _rows(ranks, groups, first, min(groups.count, first + at_once), spans)
    if measured.left_out:
        table.notes.append(f"Without {measured.left_out} steps of warm-up.")
    if groups.width > 1:
        table.notes.append(f"{groups.width} steps in a row of the table.")
    return table


def _spans(tables: Tables, ranks: Sequence[RankSteps], groups: Groups) -> tuple[Array, Array]:
    """When each group begins on the first rank and ends on the last."""
    clocks, base = clocks_of(tables), begin_of(tables)
    processes = {rank: process for process, rank in tables.query("SELECT process, rank FROM ranks WHERE role = 'rank'")}
    begin, end = np.full(groups.count, np.inf), np.full(groups.count, -np.inf)
    for rank_steps in ranks:
        steady = rank_steps.number >= groups.first
        at = groups.of(rank_steps.number[steady])
        clock = clocks.get(processes.get(rank_steps.rank, -1), as_it_is)
        begins = (clock(rank_steps.begin_ns[steady].astype(np.int64)) - base).astype(np.float64)
        np.minimum.at(begin, at, begins)
        np.maximum.at(end, at, begins + rank_steps.length_ns[steady])
    return begin, end


def _rows(
    ranks: Sequence[RankSteps], groups: Groups, first: int, last: int, spans: tuple[Array, Array]
) -> Iterator[tuple[Cell, ...]]:
    """Of some groups at a time: their values in order give least, median and most."""
    places, lengths, whose = [], [], []
    for rank_steps in ranks:
        low, high = np.searchsorted(rank_steps.number, (groups.ends(first)[0], groups.ends(last - 1)[1] + 1))
        places.append(groups.of(rank_steps.number[low:high]))
        lengths.append(some_of(rank_steps.values, "length_ns", int(low), int(high)))
        whose.append(np.full(int(high - low), rank_steps.rank))
    place, length, rank = (np.concatenate(part) for part in (places, lengths, whose))
    order = np.lexsort((length, place))
    place, length, rank = place[order], length[order], rank[order]
    edges = np.searchsorted(place, np.arange(first, last + 1))
    for at, low, high in zip(range(first, last), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if high > low:
            middle = float(length[(low + high - 1) // 2] + length[(low + high) // 2]) / 2
            values = float(length[low]), middle, float(length[high - 1]), int(rank[high - 1])
            yield (*groups.ends(at), high - low, *values, float(spans[0][at]), float(spans[1][at]))


# ---------------------------------------------------------------- the parts of some steps, for a selection of them
def host_groups(tables: Tables, drawn: Table) -> Table | None:
    """The parts of each rank's steps by group of steps; None where there are too many ranks for that."""
    names = [name for name in (f"{part}_ns" for part in OWN) if any(number(cell) for cell in column(drawn, name))]
    groups = _few_groups(tables, len(drawn.rows), len(names) + 5)
    if groups is None:
        return None
    measured = steps_of(tables)
    shown_columns = [each for each in drawn.columns if each.name in (*names, "exposed_ns")]
    table = Table("step_part_groups", "Parts of the step by group of steps", _group_columns("rank", shown_columns), [])
    shown = set(column(drawn, "rank"))
    for rank_steps in measured.ranks:
        mask = measured.steady(rank_steps)
        if rank_steps.rank in shown and mask.any():
            own_ns = {f"{name}_ns": values for name, values in rank_steps.own.items()} | {
                "exposed_ns": rank_steps.exposed_ns
            }
            parts = [
                own_ns[part.name][mask] if part.name in own_ns else np.zeros(int(mask.sum())) for part in shown_columns
            ]
            table.rows += _means(groups, groups.of(rank_steps.number[mask]), rank_steps.rank, parts)
    return table


DEVICE_SQL = f"""
    SELECT rank, device, number, {", ".join(f"d.{name}_ns" for name in BUSY)}, {", ".join(IDLE.values())}
    FROM device_steps d JOIN ranks USING (process) LEFT JOIN steps s USING (process, number)
    WHERE role = 'rank' AND NOT d.cut AND number >= ? ORDER BY rank, device, number"""


def device_groups(tables: Tables, drawn: Table) -> Table | None:
    """The parts of each GPU's steps by group of steps; None where there are too many GPUs for that."""
    every = [f"{name}_ns" for name in (*BUSY, *IDLE)]
    names = [name for name in every if any(number(cell) for cell in column(drawn, name))]
    groups = _few_groups(tables, len(drawn.rows), len(names) + 4)
    if groups is None:
        return None
    shown_columns = [next(each for each in drawn.columns if each.name == name) for name in names]
    table = Table(
        "gpu_step_groups", "Parts of the step on the GPUs by group of steps", _group_columns("gpu", shown_columns), []
    )
    rows = tables.query(DEVICE_SQL, (steps_of(tables).first_steady,))
    shown = set(column(drawn, "gpu"))
    by_device: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        by_device.setdefault(f"{row[0]}/{row[1]}", []).append(row[2:])
    for where, step_rows in by_device.items():
        if where in shown:
            values = np.array(step_rows, np.float64)
            at = groups.of(values[:, 0].astype(np.int64))
            table.rows += _means(groups, at, where, [values[:, 1 + every.index(name)] for name in names])
    return table


def _few_groups(tables: Tables, rows: int, cells: int) -> Groups | None:
    shown = groups_of(tables, MOST_ROWS)
    most = MOST_CELLS // max(1, rows * cells)
    return groups_of(tables, min(MOST_ROWS, most), shown.width) if shown is not None and most >= 4 else None


def _group_columns(who: str, parts: Sequence[Column]) -> tuple[Column, ...]:
    return (
        *GROUP,
        Column(who, Unit.NAME, {"rank": "Rank", "gpu": "Rank/GPU"}[who]),
        Column("steps", Unit.COUNT, "Steps", "steady steps in the group"),
        *(replace(part, formula=f"mean over `steps`: {part.formula}") for part in parts),
    )


def _means(groups: Groups, at: Array, who: Cell, parts: Sequence[Array]) -> Iterator[tuple[Cell, ...]]:
    counts = np.bincount(at, minlength=groups.count)
    sums = [np.bincount(at, weights=part, minlength=groups.count) for part in parts]
    for place in np.flatnonzero(counts).tolist():
        means = (round(float(values[place]) / int(counts[place])) for values in sums)
        yield (*groups.ends(place), who, int(counts[place]), *means)
