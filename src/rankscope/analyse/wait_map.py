"""In which steps does which rank wait?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.analyse.lanes import Lanes, lanes
from rankscope.analyse.rank_steps import RankSteps
from rankscope.analyse.selection import ALL, Selection
from rankscope.analyse.splitting import Collectives, Split, collectives_of
from rankscope.analyse.step_data import steps_of
from rankscope.analyse.waiting import sums
from rankscope.model import Cell, Column, Table, Tables, Unit

Array = Any  # of numpy
COLUMNS = (Column("rank", Unit.NAME, "Rank"),)  # or a host, or several; then a column for each step
MOST_LANES = 128
MOST_STEPS = 240
SLICES = 120  # of the time, where there are no steps
FEWEST = 2


@dataclass(slots=True)
class _Columns:
    """The columns of the map: which of them each moment of a rank lies in."""

    names: list[Column]
    begins: list[Array]  # by place of the rank: when each of its steps begins, since Log.base_ns, by its own clock
    ends: list[Array]
    column: list[Array]  # of each step


def wait_map(tables: Tables, selection: Selection = ALL) -> Table:
    """Mean waiting of each rank in each step; in slices of time where there are no steps. Many are put together."""
    known = collectives_of(tables)
    table = Table("wait_map", "Waiting by rank and step", COLUMNS, [])
    chosen = [selection.ranks is None or rank in selection.ranks for rank in known.log.ranks]
    places = np.flatnonzero(chosen)
    if not known.splits or len(places) < FEWEST:
        return table
    columns = _steps(tables, known) or _slices(known)
    rows = lanes([known.log.ranks[at] for at in places], [known.log.hosts[at] for at in places], MOST_LANES)
    summed, counts = _sums(known, columns, rows, places)
    table.columns = (Column(rows.kind, Unit.NAME, rows.kind.capitalize()), *columns.names)
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, summed / np.maximum(counts, 1), np.nan)
    digits = 0 if columns.names[0].unit is Unit.NS else 4
    table.rows = [(label, *_cells(means[at], digits)) for at, label in enumerate(rows.labels)]
    table.title = table.title if columns.names[0].unit is Unit.NS else "Waiting by rank and time"
    table.notes.append(_note(columns, rows))
    return table


def _note(columns: _Columns, rows: Lanes) -> str:
    who = "" if rows.whole else f" Each row is the mean of the ranks of one or some {rows.kind.rstrip('s')}s."
    if columns.names[0].unit is Unit.NS:
        told = "Waiting in collectives for the last to come, per step; of those in progress beside other work too."
        return f"{told} Empty where the log does not reach.{who}"
    return f"There are no steps: the share of each slice of time in which collectives wait for the last to come.{who}"


def _cells(values: Array, digits: int) -> tuple[Cell, ...]:
    rounded = [round(float(value), digits) for value in values]
    return tuple(None if value != value else value if digits else int(value) for value in rounded)


def _steps(tables: Tables, known: Collectives) -> _Columns | None:
    of_rank = {one.rank: one for one in steps_of(tables).ranks}
    found = [of_rank.get(rank) for rank in known.log.ranks]
    numbers = np.unique(np.concatenate([one.number for one in found if one is not None] or [np.zeros(0, np.int64)]))
    if len(numbers) < FEWEST:
        return None
    size = -(-len(numbers) // MOST_STEPS)
    names = [_named(numbers[at : at + size]) for at in range(0, len(numbers), size)]
    columns = _Columns(names, [], [], [])
    for one in found:
        begin, end, number = _times(one, known.log.base_ns)
        columns.begins.append(begin)
        columns.ends.append(end)
        columns.column.append(np.searchsorted(numbers, number) // size)
    return columns


def _named(numbers: Array) -> Column:
    first, last = int(numbers[0]), int(numbers[-1])
    told = str(first) if first == last else f"{first}–{last}"
    return Column(f"step_{told.replace('–', '_')}_ns", Unit.NS, told)


def _times(one: RankSteps | None, base_ns: int) -> tuple[Array, Array, Array]:
    if one is None:
        return np.zeros(0), np.zeros(0), np.zeros(0, np.int64)
    begin = (one.begin_ns - base_ns).astype(np.float64)
    return begin, begin + one.length_ns, one.number


def _slices(known: Collectives) -> _Columns:
    """Slices of the time from the first to the last collective, the same for all."""
    ends = sums(known)
    first, last = ends.first_ns, ends.last_ns
    edges = np.linspace(first, last + 1, SLICES + 1)
    names = [Column(f"at_{at}_share", Unit.SHARE, f"{(edges[at] - first) / 1e9:.3g} s") for at in range(SLICES)]
    count = len(known.log.ranks)
    return _Columns(names, [edges[:-1]] * count, [edges[1:]] * count, [np.arange(SLICES)] * count)


def _sums(known: Collectives, columns: _Columns, rows: Lanes, places: Array) -> tuple[Array, Array]:
    """Of each cell: waiting of its ranks in its steps, and how many steps of how many ranks that is."""
    shape = len(rows.labels), len(columns.names)
    summed, counts = np.zeros(shape), np.zeros(shape)
    wanted = np.isin(np.arange(len(columns.begins)), places)
    sliced = columns.names[0].unit is Unit.SHARE
    waits = [np.zeros(len(begins)) for begins in columns.begins]
    oldest = np.full(len(waits), np.inf)
    for split in known.splits:
        for member, place in enumerate(split.group.members.tolist()):
            if len(waits[place]) and wanted[place]:
                begun = _add(waits[place], split, member, columns.begins[place], columns.ends[place], sliced)
                oldest[place] = min(oldest[place], begun)
    for lane, place in zip(rows.of.tolist(), places.tolist(), strict=True):
        begins, ends, column = columns.begins[place], columns.ends[place], columns.column[place]
        kept = ends >= oldest[place]
        weight = (ends - begins)[kept] if sliced else np.ones(int(kept.sum()))
        summed[lane] += np.bincount(column[kept], waits[place][kept], shape[1])
        counts[lane] += np.bincount(column[kept], weight, shape[1])
    return summed, counts


def _add(wait: Array, split: Split, member: int, begins: Array, ends: Array, sliced: bool) -> float:
    """Adds the waiting of one rank in one group to the steps it lies in, and tells its first moment."""
    waited = split.wait_ns[:, member]
    entered = (split.enter_ns if sliced else split.group.enter_ns)[:, member]
    if sliced:
        wait += np.diff(_waited_until(np.append(begins, ends[-1]), entered, waited))
    else:
        at = np.searchsorted(begins, entered, side="right") - 1
        inside = (at >= 0) & (entered <= ends[np.maximum(at, 0)])
        wait += np.bincount(at[inside], waited[inside], len(wait))
    return float(entered.min())


def _waited_until(moments: Array, entered: Array, waited: Array) -> Array:
    """How long a rank has waited by each moment: a waiting may reach over many slices."""
    order = np.argsort(entered)
    begun = np.searchsorted(entered[order], moments, side="right")
    so_far = np.concatenate([[0.0], np.cumsum(waited[order])])[begun]
    last = order[np.maximum(begun - 1, 0)]
    to_come = np.where(begun > 0, entered[last] + waited[last] - moments, 0.0)
    return so_far - np.maximum(to_come, 0.0)
