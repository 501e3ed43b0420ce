"""In which groups, phases and steps do ranks wait, and for whom there?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.analyse.matching import Array
from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.analyse.splitting import Collectives, Split, collectives_of
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

Codes = Callable[[Split], Array]  # K x M: the part that each rank's share of a collective belongs to, -1 for none


@dataclass(slots=True)
class _Sums:
    caused_ns: Array  # parts x ranks
    collectives: Array
    wait_ns: Array
    error_ns: Array
    transfer_ns: Array
    leaving_ns: Array
    stay_ns: Array


def waiting_parts(tables: Tables, selection: Selection = ALL) -> Table:
    """Waiting and moving by group, by phase, and by step where the run has steps."""
    known = collectives_of(tables)
    table = Table("waiting_parts", "Waiting by group, phase and step", COLUMNS, [])
    if not known.splits:
        return table
    groups = {id(split): number for number, split in enumerate(known.splits)}
    labels = [split.group.label for split in known.splits]
    _add(table, known, "group", labels, lambda split: np.full((len(split.last), 1), groups[id(split)]))
    _add(table, known, "phase", list(known.log.phases), lambda split: split.group.phase[:, None])
    steps = _steps(tables)
    if steps:
        numbers = np.unique(np.concatenate([one[0] for one in steps.values()]))
        _add(table, known, "step", numbers.tolist(), lambda split: step_codes(known, split, steps, numbers))
    return arranged(table, selection)


def _add(table: Table, known: Collectives, by: str, parts: list[Any], codes: Codes) -> None:
    found = sums_by(known, len(parts), codes)
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


def sums_by(known: Collectives, parts: int, codes: Codes) -> _Sums:
    """Sums over the shares of all ranks, by part."""
    ranks = len(known.log.ranks)
    found = _Sums(np.zeros((parts, ranks)), *(np.zeros(parts) for _ in range(6)))
    for split in known.splits:
        of_each = codes(split)
        of_one = of_each[:, 0]
        found.collectives += np.bincount(of_one[of_one >= 0], minlength=parts)
        cells = np.broadcast_to(of_each, split.wait_ns.shape)
        inside = cells >= 0
        for total, values in (
            (found.wait_ns, split.wait_ns),
            (found.error_ns, split.error_ns),
            (found.transfer_ns, split.transfer_ns),
            (found.leaving_ns, split.leaving_ns),
            (found.stay_ns, split.stay_ns),
        ):
            total += np.bincount(cells[inside], values[inside], parts)
        waits = inside & (split.awaited >= 0)
        awaited = split.group.members[split.awaited[waits]]
        found.caused_ns += np.bincount(cells[waits] * ranks + awaited, split.wait_ns[waits], parts * ranks).reshape(
            parts, ranks
        )
    return found


Steps = Mapping[int, Array]  # by process: rows of numbers, beginnings and ends (Unix time), in order of time


def _steps(tables: Tables) -> Steps:
    """The steps of each process, where the run has a table of them."""
    if not {"process", "number", "begin_ns", "end_ns"} <= {row[0] for row in tables.query(STEP_COLUMNS)}:
        return {}
    found: dict[int, list[Any]] = {}
    for row in tables.query(STEPS):
        found.setdefault(row[0], []).append(row[1:])
    return {process: np.array(told).T for process, told in found.items()}


def step_codes(known: Collectives, split: Split, steps: Steps, numbers: Array) -> Array:
    """The step of each rank in which it entered each collective, by its own clock."""
    codes = np.full(split.wait_ns.shape, -1)
    for member, place in enumerate(split.group.members.tolist()):
        told = steps.get(known.log.processes[place])
        if told is None:
            continue
        number, begin_ns, end_ns = told
        when = split.group.enter_ns[:, member].astype(np.int64) + known.log.base_ns
        at = np.searchsorted(begin_ns, when, side="right") - 1
        inside = (at >= 0) & (when <= end_ns[np.maximum(at, 0)])
        codes[inside, member] = np.searchsorted(numbers, number[at[inside]])
    return codes
