"""In which steps does which rank wait?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rankscope.analyse.lanes import Lanes, lanes
from rankscope.analyse.step_times import StepTimes, step_times
from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.collectives.matching import Log
from rankscope.questions.collectives.wait_and_transfer import Collectives, Split, collectives_of
from rankscope.questions.collectives.waiting import sums
from rankscope.questions.selection import ALL, Selection

Array = Any  # of numpy
COLUMNS = (Column("rank", Unit.NAME, "Rank"),)  # or a host, or several; then a column for each step
MOST_LANES = 128
MOST_STEPS = 240
SLICES = 120  # of the time, where there are no steps
FEWEST = 2


@dataclass(slots=True)
class _Columns:
    """The columns of the map, each some steps or a slice of time."""

    names: list[Column]
    of_step: Array  # the column of each step, by its place among the numbers
    edges_ns: Array = None  # of the slices, where there are no steps

    @property
    def sliced(self) -> bool:
        return self.edges_ns is not None


def wait_map(tables: Tables, selection: Selection = ALL) -> Table:
    """Mean waiting of each rank in each step; in slices of time where there are no steps. Many are put together."""
    known = collectives_of(tables)
    table = Table("wait_map", "Waiting by rank and step", COLUMNS, [])
    chosen = [selection.ranks is None or rank in selection.ranks for rank in known.log.ranks]
    places = np.flatnonzero(chosen)
    if not known.splits or len(places) < FEWEST:
        return table
    times = step_times(tables)
    columns = _steps(times) if times is not None and len(times.numbers) >= FEWEST else _slices(known)
    rows = lanes([known.log.ranks[at] for at in places], [known.log.hosts[at] for at in places], MOST_LANES)
    summed, counts = _sums(known, columns, rows, places)
    table.columns = (Column(rows.kind, Unit.NAME, rows.kind.capitalize()), *columns.names)
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, summed / np.maximum(counts, 1), np.nan)
    digits = 4 if columns.sliced else 0
    table.rows = [(label, *_cells(means[at], digits)) for at, label in enumerate(rows.labels)]
    table.title = "Waiting by rank and time" if columns.sliced else table.title
    table.notes.append(_note(columns, rows))
    return table


def _note(columns: _Columns, rows: Lanes) -> str:
    who = "" if rows.whole else f" Each row is the mean of the ranks of one or some {rows.kind.rstrip('s')}s."
    if not columns.sliced:
        told = "Waiting in collectives for the last to come, per step; of those in progress beside other work too."
        return f"{told} Empty where the log does not reach.{who}"
    return f"There are no steps: the share of each slice of time in which collectives wait for the last to come.{who}"


def _cells(values: Array, digits: int) -> tuple[Cell, ...]:
    rounded = [round(float(value), digits) for value in values]
    return tuple(None if value != value else value if digits else int(value) for value in rounded)


def _steps(times: StepTimes) -> _Columns:
    numbers = times.numbers
    size = -(-len(numbers) // MOST_STEPS)
    names = [_named(numbers[at : at + size]) for at in range(0, len(numbers), size)]
    return _Columns(names, np.arange(len(numbers)) // size)


def _named(numbers: Array) -> Column:
    first, last = int(numbers[0]), int(numbers[-1])
    told = str(first) if first == last else f"{first}–{last}"
    return Column(f"step_{told.replace('–', '_')}_ns", Unit.NS, told)


def _slices(known: Collectives) -> _Columns:
    """Slices of the time from the first to the last collective, the same for all."""
    ends = sums(known)
    first, last = ends.first_ns, ends.last_ns
    edges = np.linspace(first, last + 1, SLICES + 1)
    names = [Column(f"at_{at}_share", Unit.SHARE, f"{(edges[at] - first) / 1e9:.3g} s") for at in range(SLICES)]
    return _Columns(names, np.zeros(0, np.int64), edges)


def _sums(known: Collectives, columns: _Columns, rows: Lanes, places: Array) -> tuple[Array, Array]:
    """Of each cell: waiting of its ranks in its steps, and how many steps of how many ranks that is."""
    lane = np.full(len(known.log.ranks), -1)
    lane[places] = rows.of
    shape = len(rows.labels), len(columns.names)
    summed, counts = np.zeros(shape), np.zeros(shape)
    oldest = np.full(len(lane), np.inf)
    ask = _waits_by_slice if columns.sliced else _waits_by_step
    for members, begun, waits in known.of_each(partial(ask, columns=columns, lane=lane, shape=shape)):
        oldest[members] = np.minimum(oldest[members], begun)
        summed += waits
    for place in places.tolist():
        counts[lane[place]] += _reached(known.log, columns, place, oldest[place])
    return summed, counts


Waits = tuple[Array, Array, Array]  # the members, when each entered its first, and the waiting by lane and column


def _waits_by_step(log: Log, split: Split, columns: _Columns, lane: Array, shape: tuple[int, int]) -> Waits:
    members = split.group.members
    codes = log.steps.codes(split)
    inside = (codes >= 0) & (lane[members] >= 0)
    cells = (lane[members] * shape[1] + columns.of_step[codes])[inside]
    waits = np.bincount(cells, split.wait_ns[inside], shape[0] * shape[1])
    return members, split.group.enter_ns.min(axis=0), waits.reshape(shape)


def _waits_by_slice(log: Log, split: Split, columns: _Columns, lane: Array, shape: tuple[int, int]) -> Waits:
    members = split.group.members
    waited = np.diff(waited_until(columns.edges_ns, split.enter_ns, split.wait_ns), axis=0)
    waits = np.zeros(shape)
    chosen = lane[members] >= 0
    np.add.at(waits, lane[members][chosen], waited.T[chosen])
    return members, split.enter_ns.min(axis=0), waits


def _reached(log: Log, columns: _Columns, place: int, oldest_ns: float) -> Array:
    """Of each column how many steps of a rank, or how much time, its log reaches."""
    count = len(columns.names)
    if columns.sliced:
        return np.where(columns.edges_ns[1:] >= oldest_ns, np.diff(columns.edges_ns), 0.0)
    _, ends = log.steps.of(place)
    return np.bincount(columns.of_step[log.steps.places[place]][ends >= oldest_ns], minlength=count)


def waited_until(moments: Array, entered: Array, waited: Array) -> Array:
    """How long each member (column) has waited by each moment: a waiting may reach over many slices."""
    members = entered.shape[1]
    order = np.argsort(entered, axis=0)
    entered, waited = np.take_along_axis(entered, order, axis=0), np.take_along_axis(waited, order, axis=0)
    # of each moment how many were entered by then: each counts from the first moment on that is not before it
    first = np.searchsorted(moments, entered) * members + np.arange(members)
    begun = np.bincount(first.reshape(-1), minlength=(len(moments) + 1) * members).reshape(-1, members)
    begun = np.cumsum(begun, axis=0)[: len(moments)]
    so_far = np.take_along_axis(np.concatenate([np.zeros((1, members)), np.cumsum(waited, axis=0)]), begun, axis=0)
    last = np.maximum(begun - 1, 0)
    ends = np.take_along_axis(entered + waited, last, axis=0)
    to_come = np.where(begun > 0, ends - moments[:, None], 0.0)
    made: Array = so_far - np.maximum(to_come, 0.0)
    return made
