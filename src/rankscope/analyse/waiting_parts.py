"""In which groups, phases and steps do ranks wait, and for whom there?"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rankscope.analyse.step_times import step_times
from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.collectives.matching import Array, Log
from rankscope.questions.collectives.wait_and_transfer import (
    Collectives,
    Split,
    collectives_of,
    usually_asked,
    usually_asked_of_steps,
)
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("by", Unit.NAME, "By"),
    Column("part", Unit.NAME, "Group, phase or step"),
    Column("collectives", Unit.COUNT, "Collectives"),
    Column("wait_ns", Unit.NS, "Waiting"),
    Column("wait_error_ns", Unit.NS, "± by clocks"),
    Column("transfer_ns", Unit.NS, "Moving"),
    Column("leaving_ns", Unit.NS, "Leaving"),
    Column("wait_share", Unit.SHARE, "Wait share"),
    Column("awaited_rank", Unit.NAME, "Most waited for"),
    Column("caused_ns", Unit.NS, "For that rank"),
    Column("caused_share", Unit.SHARE, "Of the waiting"),
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
        for one in fields(self)[1:]:
            values = getattr(other, one.name)
            getattr(self, one.name)[other.first : other.first + len(values)] += values


def waiting_parts(tables: Tables, selection: Selection = ALL) -> Table:
    """Waiting and moving by group, by phase, and by step where the run has steps."""
    known = collectives_of(tables)
    table = Table("waiting_parts", "Waiting by group, phase and step", COLUMNS, [])
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
def _label(log: Log, split: Split) -> tuple[int, str]:
    return split.group.number, split.group.label


def _add(table: Table, known: Collectives, by: str, parts: list[Any], told: list[_Sums]) -> None:
    found = _Sums.none(len(parts), len(known.log.ranks))
    for one in told:
        found.add(one)
    order = np.arange(len(parts)) if by == "step" else np.argsort(-found.stay_ns, kind="stable")
    for part in order.tolist():
        if found.collectives[part]:
            table.rows.append((by, parts[part], *_cells(known, found, part)))


def _cells(known: Collectives, found: _Sums, part: int) -> tuple[Cell, ...]:
    wait_ns, total_ns = float(found.wait_ns[part]), float(found.stay_ns[part])
    caused = found.caused_ns[part]
    place = int(np.argmax(caused))
    awaited: tuple[Cell, ...] = (None, None, None)
    if wait_ns:
        awaited = (known.log.ranks[place], float(caused[place]), float(caused[place]) / wait_ns)
    moved = (float(found.transfer_ns[part]), float(found.leaving_ns[part]))
    sums = (int(found.collectives[part]), wait_ns, float(found.error_ns[part]))
    return *sums, *moved, wait_ns / total_ns if total_ns else None, *awaited


@usually_asked
def _by_group(log: Log, split: Split) -> _Sums:
    return _sums_by(log, split, split.group.number + 1, np.full((len(split.last), 1), split.group.number))


@usually_asked
def _by_phase(log: Log, split: Split) -> _Sums:
    return _sums_by(log, split, len(log.phases), split.group.phase[:, None])


@usually_asked_of_steps
def _by_step(log: Log, split: Split) -> _Sums:
    """Only of the steps that are there: a few of very many."""
    codes = log.steps.codes(split) if log.steps.recorded else np.zeros((0, 1), np.int64)
    if codes.max(initial=-1) < 0:
        return _Sums.none(0, len(log.ranks))
    first = int(codes[codes >= 0].min())
    found = _sums_by(log, split, int(codes.max()) - first + 1, np.where(codes >= 0, codes - first, -1))
    found.first = first
    return found


def _sums_by(log: Log, split: Split, parts: int, of_each: Array) -> _Sums:
    """Sums over the shares of all ranks, by part; the codes are K x M or K x 1, -1 for none."""
    found = _Sums.none(parts, len(log.ranks))
    of_one = of_each[:, 0]
    found.collectives += np.bincount(of_one[of_one >= 0], minlength=parts)
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
            getattr(found, name)[:] += np.bincount(of_one[inside], values.sum(axis=1)[inside], parts)
    else:
        within = of_each >= 0
        for name, values in values_of.items():
            getattr(found, name)[:] += np.bincount(of_each[within], values[within], parts)
    found.caused_ns += _caused(len(log.ranks), split, parts, of_each)
    return found


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
