"""In which groups, phases and steps do ranks wait, and for whom there?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from rankscope.analyse.matching import Array, Log
from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.analyse.splitting import Collectives, Split, collectives_of, usually_asked
from rankscope.model import Cell, Column, Table, Tables, Unit

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
STEP_COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_name = 'steps'"
STEPS = "SELECT process, number, begin_ns, end_ns FROM steps ORDER BY process, begin_ns"


@dataclass(slots=True)
class _Sums:
    caused_ns: Array  # parts x ranks
    collectives: Array
    wait_ns: Array
    error_ns: Array
    transfer_ns: Array
    leaving_ns: Array
    stay_ns: Array

    @classmethod
    def none(cls, parts: int, ranks: int) -> _Sums:
        return cls(np.zeros((parts, ranks)), *(np.zeros(parts) for _ in range(6)))

    def add(self, other: _Sums) -> None:
        """Those of another split, which may know fewer parts."""
        for one in fields(self):
            values = getattr(other, one.name)
            getattr(self, one.name)[: len(values)] += values


def waiting_parts(tables: Tables, selection: Selection = ALL) -> Table:
    """Waiting and moving by group, by phase, and by step where the run has steps."""
    known = collectives_of(tables)
    table = Table("waiting_parts", "Waiting by group, phase and step", COLUMNS, [])
    if not known.splits:
        return table
    labels = _labels(known)
    _add(table, known, "group", [labels.get(number, "") for number in range(max(labels) + 1)], known.of_each(_by_group))
    _add(table, known, "phase", list(known.log.phases), known.of_each(_by_phase))
    steps = _steps(tables)
    if steps:
        numbers = np.unique(np.concatenate([one[0] for one in steps.values()]))
        by_step = partial(_by_step, steps=steps, numbers=numbers)
        _add(table, known, "step", numbers.tolist(), known.of_each(by_step))
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


def _by_step(log: Log, split: Split, steps: Steps, numbers: Array) -> _Sums:
    return _sums_by(log, split, len(numbers), step_codes(log, split, steps, numbers))


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


Steps = Mapping[int, Array]  # by process: rows of numbers, beginnings and ends (Unix time), in order of time


def _steps(tables: Tables) -> Steps:
    """The steps of each process, where the run has a table of them."""
    if not {"process", "number", "begin_ns", "end_ns"} <= {row[0] for row in tables.query(STEP_COLUMNS)}:
        return {}
    found = tables.columns(STEPS)
    process = found["process"]
    if not len(process):
        return {}
    rows = np.split(np.stack([found["number"], found["begin_ns"], found["end_ns"]]), _edges(process), axis=1)
    return {int(own): told for own, told in zip(process[np.append(0, _edges(process))], rows, strict=True)}


def _edges(process: Array) -> Array:
    return np.flatnonzero(np.diff(process)) + 1


def step_codes(log: Log, split: Split, steps: Steps, numbers: Array) -> Array:
    """The step of each rank in which it entered each collective, by its own clock."""
    codes = np.full(split.wait_ns.shape, -1)
    for member, place in enumerate(split.group.members.tolist()):
        told = steps.get(log.processes[place])
        if told is None:
            continue
        number, begin_ns, end_ns = told
        when = split.group.enter_ns[:, member].astype(np.int64) + log.base_ns
        at = np.searchsorted(begin_ns, when, side="right") - 1
        inside = (at >= 0) & (when <= end_ns[np.maximum(at, 0)])
        codes[inside, member] = np.searchsorted(numbers, number[at[inside]])
    return codes
