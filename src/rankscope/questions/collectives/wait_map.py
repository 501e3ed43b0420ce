"""In which steps does which rank wait?"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.collectives.matching import Array, CollectiveLog
from rankscope.questions.collectives.wait_and_transfer import (
    Collectives,
    Split,
    collectives_of,
    usually_asked,
    usually_asked_of_steps,
)
from rankscope.questions.collectives.waiting import sums
from rankscope.questions.condense import Lanes, lanes
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.waits import StepTimes, step_times

# ---------------------------------------------------------------------------------------------------------------------
# In which groups, phases and steps do ranks wait, and for whom there?
WAITING_PARTS_COLUMNS = (
    Column(
        "by",
        Unit.NAME,
        "By",
        "group, phase (of the group's first member) or, in runs that have them, step (in which a rank entered, by "
        "its own clock)",
    ),
    Column("part", Unit.NAME, "Group, phase or step", "which group, phase or step"),
    Column("collectives", Unit.COUNT, "Collectives", "number of matched collectives in it"),
    Column(
        "wait_ns", Unit.NS, "Wait, all ranks", "sum of the wait in it over the ranks, nonblocking operations included"
    ),
    Column(
        "wait_error_ns", Unit.NS, "Clock uncertainty", "how much of `wait_ns`, more or less, may be the clocks' error"
    ),
    Column(
        "transfer_ns",
        Unit.NS,
        "Transfer, all ranks",
        "sum of the transfer in it over the ranks, nonblocking operations included",
    ),
    Column(
        "leaving_ns",
        Unit.NS,
        "Exit skew, all ranks",
        "sum of the exit skew in it over the ranks, nonblocking operations included",
    ),
    Column("wait_share", Unit.SHARE, "Wait share", "`wait_ns` ÷ (`wait_ns` + `transfer_ns` + `leaving_ns`)"),
    Column("awaited_rank", Unit.NAME, "Most waited for", "the rank that the others wait for longest in it"),
    Column("caused_ns", Unit.NS, "Wait for it, all ranks", "wait of all others for that rank in it, summed over them"),
    Column("caused_share", Unit.SHARE, "% of the wait", "`caused_ns` ÷ `wait_ns`"),
)
RECORDED = "SELECT 1 FROM steps LIMIT 1"


@dataclass(slots=True)
class _Sums:
    first: int  # part that the others count from
    caused_ns: Array  # parts x ranks
    collectives: Array
    wait_ns: Array
    error_ns: Array
    transfer_ns: Array
    leaving_ns: Array
    stay_ns: Array

    @classmethod
    def none(cls, parts: int, ranks: int, first: int = 0) -> _Sums:
        return cls(first, np.zeros((parts, ranks)), *(np.zeros(parts) for _ in range(6)))

    def add(self, other: _Sums) -> None:
        """Those of another split, which may know fewer parts."""
        for field in fields(self)[1:]:
            values = getattr(other, field.name)
            getattr(self, field.name)[other.first : other.first + len(values)] += values


def waiting_parts(tables: Tables, selection: Selection = ALL) -> Table:
    """Wait and transfer by group, by phase, and by step where the run has steps."""
    known = collectives_of(tables)
    table = Table("waiting_parts", "Waiting by group, phase and step", WAITING_PARTS_COLUMNS, [])
    if not known.splits:
        return table
    labels = _labels(known)
    _add(table, known, "group", [labels.get(number, "") for number in range(max(labels) + 1)], known.of_each(_by_group))
    _add(table, known, "phase", list(known.log.phases), known.of_each(_by_phase))
    steps = step_times(tables) if tables.query(RECORDED) else None
    if steps is not None and steps.recorded:
        _add(table, known, "step", steps.numbers.tolist(), known.of_each(_by_step))
    return arranged(table, selection)


def _labels(known: Collectives) -> dict[int, str]:
    return dict(known.of_each(_label))


@usually_asked
def _label(log: CollectiveLog, split: Split) -> tuple[int, str]:
    return split.group.number, split.group.label


def _add(table: Table, known: Collectives, by: str, parts: list[Any], row_sums: list[_Sums]) -> None:
    sums_by_part = _Sums.none(len(parts), len(known.log.ranks))
    for part_sums in row_sums:
        sums_by_part.add(part_sums)
    order = np.arange(len(parts)) if by == "step" else np.argsort(-sums_by_part.stay_ns, kind="stable")
    for part in order.tolist():
        if sums_by_part.collectives[part]:
            table.rows.append((by, parts[part], *_part_cells(known, sums_by_part, part)))


def _part_cells(known: Collectives, sums_by_part: _Sums, part: int) -> tuple[Cell, ...]:
    wait_ns, total_ns = float(sums_by_part.wait_ns[part]), float(sums_by_part.stay_ns[part])
    caused = sums_by_part.caused_ns[part]
    place = int(np.argmax(caused))
    awaited: tuple[Cell, ...] = (None, None, None)
    if wait_ns:
        awaited = (known.log.ranks[place], float(caused[place]), float(caused[place]) / wait_ns)
    moved = (float(sums_by_part.transfer_ns[part]), float(sums_by_part.leaving_ns[part]))
    sums = (int(sums_by_part.collectives[part]), wait_ns, float(sums_by_part.error_ns[part]))
    return *sums, *moved, wait_ns / total_ns if total_ns else None, *awaited


@usually_asked
def _by_group(log: CollectiveLog, split: Split) -> _Sums:
    return _sums_by(log, split, split.group.number + 1, np.full((len(split.last), 1), split.group.number))


@usually_asked
def _by_phase(log: CollectiveLog, split: Split) -> _Sums:
    return _sums_by(log, split, len(log.phases), split.group.phase[:, None])


@usually_asked_of_steps
def _by_step(log: CollectiveLog, split: Split) -> _Sums:
    """Only of the steps that are there: a few of very many."""
    codes = log.steps.codes(split) if log.steps.recorded else np.zeros((0, 1), np.int64)
    if codes.max(initial=-1) < 0:
        return _Sums.none(0, len(log.ranks))
    first = int(codes[codes >= 0].min())
    step_sums = _sums_by(log, split, int(codes.max()) - first + 1, np.where(codes >= 0, codes - first, -1))
    step_sums.first = first
    return step_sums


def _sums_by(log: CollectiveLog, split: Split, parts: int, of_each: Array) -> _Sums:
    """Sums over the shares of all ranks, by part; the codes are K x M or K x 1, -1 for none."""
    sums_by_part = _Sums.none(parts, len(log.ranks))
    of_one = of_each[:, 0]
    sums_by_part.collectives += np.bincount(of_one[of_one >= 0], minlength=parts)
    values_of = {
        "wait_ns": split.wait_ns,
        "error_ns": split.error_ns,
        "transfer_ns": split.transfer_ns,
        "leaving_ns": split.leaving_ns,
        "stay_ns": split.stay_ns,
    }
    if of_each.shape[1] == 1:  # the same for all members: their sum first
        inside = of_one >= 0
        for name, values in values_of.items():
            getattr(sums_by_part, name)[:] += np.bincount(of_one[inside], values.sum(axis=1)[inside], parts)
    else:
        within = of_each >= 0
        for name, values in values_of.items():
            getattr(sums_by_part, name)[:] += np.bincount(of_each[within], values[within], parts)
    sums_by_part.caused_ns += _caused(len(log.ranks), split, parts, of_each)
    return sums_by_part


def _caused(ranks: int, split: Split, parts: int, of_each: Array) -> Array:
    """Parts x ranks: the waiting for each."""
    of_one = of_each[:, 0]
    together = split.for_one & (of_each.shape[1] == 1)  # all in one part wait for one: their sum is enough
    for_one, rest = together & (split.last >= 0) & (of_one >= 0), np.flatnonzero(~together)
    codes = of_one[for_one] * ranks + split.group.members[split.last[for_one]]
    sums = np.bincount(codes, split.wait_ns.sum(axis=1)[for_one], parts * ranks)
    if len(rest):
        cells, awaited = np.broadcast_to(of_each, split.wait_ns.shape)[rest], split.awaited[rest]
        waits = (cells >= 0) & (awaited >= 0)
        codes = cells[waits] * ranks + split.group.members[awaited[waits]]
        sums = sums + np.bincount(codes, split.wait_ns[rest][waits], parts * ranks)
    return sums.reshape(parts, ranks)


# ---------------------------------------------------------------- wait map
Grid = Any  # of numpy
WAIT_MAP_COLUMNS = (Column("rank", Unit.NAME, "Rank"),)  # or a host, or several; then a column for each step
STEP_FORMULA = "wait in the collectives entered in that step (these steps: the mean), nonblocking operations included"
SLICE_FORMULA = "wait in that slice of time ÷ its length"
MOST_LANES = 128
MOST_STEPS = 240
SLICES = 120  # of the time, where there are no steps
FEWEST = 2


@dataclass(slots=True)
class _Columns:
    """The columns of the map, each some steps or a slice of time."""

    names: list[Column]
    of_step: Grid  # the column of each step, by its place among the numbers
    edges_ns: Grid = None  # of the slices, where there are no steps

    @property
    def sliced(self) -> bool:
        return self.edges_ns is not None


def wait_map(tables: Tables, selection: Selection = ALL) -> Table:
    """Mean waiting of each rank in each step; in slices of time where there are no steps. Many are put together."""
    known = collectives_of(tables)
    table = Table("wait_map", "Waiting by rank and step", WAIT_MAP_COLUMNS, [])
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
    who = "" if rows.whole else f" Each row is the mean of the ranks of one or more {rows.kind.rstrip('s')}s."
    if not columns.sliced:
        text = (
            "Waiting in collectives for the last rank to arrive, per step, including collectives that overlap other "
            "work."
        )
        return f"{text} Empty where the log does not reach.{who}"
    return (
        "There are no steps: the share of each slice of time in which collectives wait for the last rank to "
        f"arrive.{who}"
    )


def _cells(values: Grid, digits: int) -> tuple[Cell, ...]:
    rounded = [round(float(value), digits) for value in values]
    return tuple(None if value != value else value if digits else int(value) for value in rounded)


def _steps(times: StepTimes) -> _Columns:
    numbers = times.numbers
    size = -(-len(numbers) // MOST_STEPS)
    names = [_named(numbers[at : at + size]) for at in range(0, len(numbers), size)]
    return _Columns(names, np.arange(len(numbers)) // size)


def _named(numbers: Grid) -> Column:
    first, last = int(numbers[0]), int(numbers[-1])
    span = str(first) if first == last else f"{first}–{last}"
    return Column(f"step_{span.replace('–', '_')}_ns", Unit.NS, span, STEP_FORMULA)


def _slices(known: Collectives) -> _Columns:
    """Slices of the time from the first to the last collective, the same for all."""
    ends = sums(known)
    first, last = ends.first_ns, ends.last_ns
    edges = np.linspace(first, last + 1, SLICES + 1)
    names = [
        Column(f"at_{at}_share", Unit.SHARE, f"{(edges[at] - first) / 1e9:.3g} s", SLICE_FORMULA)
        for at in range(SLICES)
    ]
    return _Columns(names, np.zeros(0, np.int64), edges)


def _sums(known: Collectives, columns: _Columns, rows: Lanes, places: Grid) -> tuple[Grid, Grid]:
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


Waits = tuple[Grid, Grid, Grid]  # the members, when each entered its first, and the waiting by lane and column


def _waits_by_step(log: CollectiveLog, split: Split, columns: _Columns, lane: Grid, shape: tuple[int, int]) -> Waits:
    members = split.group.members
    codes = log.steps.codes(split)
    inside = (codes >= 0) & (lane[members] >= 0)
    cells = (lane[members] * shape[1] + columns.of_step[codes])[inside]
    waits = np.bincount(cells, split.wait_ns[inside], shape[0] * shape[1])
    return members, split.group.enter_ns.min(axis=0), waits.reshape(shape)


def _waits_by_slice(log: CollectiveLog, split: Split, columns: _Columns, lane: Grid, shape: tuple[int, int]) -> Waits:
    members = split.group.members
    waited = np.diff(waited_until(columns.edges_ns, split.enter_ns, split.wait_ns), axis=0)
    waits = np.zeros(shape)
    chosen = lane[members] >= 0
    np.add.at(waits, lane[members][chosen], waited.T[chosen])
    return members, split.enter_ns.min(axis=0), waits


def _reached(log: CollectiveLog, columns: _Columns, place: int, oldest_ns: float) -> Grid:
    """Of each column how many steps of a rank, or how much time, its log reaches."""
    count = len(columns.names)
    if columns.sliced:
        return np.where(columns.edges_ns[1:] >= oldest_ns, np.diff(columns.edges_ns), 0.0)
    _, ends = log.steps.of(place)
    return np.bincount(columns.of_step[log.steps.places[place]][ends >= oldest_ns], minlength=count)


def waited_until(moments: Grid, entered: Grid, waited: Grid) -> Grid:
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
    until: Grid = so_far - np.maximum(to_come, 0.0)
    return until
