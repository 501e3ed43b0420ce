"""Waits that a table of operations shows without saying for whom.

Some jobs synchronise a group of ranks outside all recorded operations: every member goes on only when the last one has
come, and the table has a hole there. As a hole it would be each rank's own time, and the ranks that wait would be
blamed instead of the one they wait for. Where the times leave no doubt, the hole becomes an operation: a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.formats.operation_groups import (
    DATA,
    PIPELINE,
    POSSIBLE,
    RECEIVE,
    SEND,
    TENSOR,
    TOLERANCE,
    WORLD,
    Matrix,
    Operations,
    group_names,
    matrix_of,
    members_of,
    role_of,
)
from rankscope.model.tables import Words

Array = Any  # of numpy
CANDIDATES = (DATA, TENSOR, PIPELINE, WORLD)
LEFT = 0.25  # of the usual wait: so much may pass before the usual one of those who waited goes on


@dataclass(slots=True)
class _Hole:
    """What lies between the operations of one kind and those before them: steps (and occurrences) by ranks."""

    matrix: Matrix
    idle_from: tuple[Array, ...]  # since when the rank has done nothing that is recorded: with sends, without
    start: Array


@dataclass(slots=True)
class _Barrier:
    kind: str
    group: str
    columns: Array  # of the matrix: the members
    start: Array  # by line and member
    end: Array
    waited_ns: float
    came_ns: float  # mean time at which the last one came


def infer(operations: Operations) -> None:
    """Add the barriers that nobody recorded, and say so."""
    step_ns = float(np.median([operations.step_end_ns[s] - b for s, b in operations.step_begin_ns.items()]))
    found: list[tuple[_Hole, _Barrier]] = []
    added = []
    for hole in _holes(operations, step_ns):
        known: list[str] = []
        while (barrier := _earliest(operations, hole, step_ns, known)) is not None:
            known.append(barrier.group)
            added.append(_rows(operations, hole, barrier))
            for idle_from in hole.idle_from:
                idle_from[:, barrier.columns] = np.maximum(idle_from[:, barrier.columns], barrier.end)
            found.append((hole, barrier))
    if found:
        _insert(operations, added)
        operations.notes += [_said(hole, barrier, len(operations.step_begin_ns)) for hole, barrier in found]


def _said(hole: _Hole, barrier: _Barrier, steps: int) -> str:
    before = hole.matrix.kind
    return (
        f"{barrier.group}: its ranks wait for each other before {before}, and the table has no operation for it; "
        f"read as a barrier ({barrier.waited_ns / 1e9 / steps / len(barrier.columns):.3g} s of each rank and step)"
    )


def _holes(operations: Operations, step_ns: float) -> Iterator[_Hole]:
    """Of every kind that comes equally often on all ranks that have it."""
    # a send may go on beside what its rank does next
    is_send = np.array([role_of(kind) == SEND for kind in operations.kind.values])[operations.kind.codes]
    ends = operations.end_ns, np.where(is_send, operations.start_ns, operations.end_ns)
    idle_from_ns = [_idle_from(operations, end_ns) for end_ns in ends]
    for code, kind in enumerate(operations.kind.values):
        rows = np.flatnonzero(operations.kind.codes == code)
        matrix = None if role_of(kind) in (SEND, RECEIVE) else matrix_of(operations, rows, kind)
        if matrix is None or len(matrix.ranks) < 2:
            continue
        idle_from = tuple(values[matrix.rows].astype(np.float64) for values in idle_from_ns)
        start = operations.start_ns[matrix.rows].astype(np.float64)
        if np.mean((start - idle_from[1]).max(axis=1)) > TOLERANCE * step_ns:
            yield _Hole(matrix, idle_from, start)


def _idle_from(operations: Operations, end_ns: Array) -> Array:
    """When all earlier operations of its rank and step had ended, for each row; at most its start."""
    rank, step, start = operations.rank, operations.step, operations.start_ns
    all_rows = np.arange(len(rank))
    new = np.concatenate([[True], (np.diff(rank) != 0) | (np.diff(step) != 0)])
    segment = np.cumsum(new)
    by_end = np.argsort(end_ns, kind="stable")
    place = np.empty_like(by_end)
    place[by_end] = all_rows
    latest = end_ns[by_end[np.maximum.accumulate(place + segment * len(rank)) - segment * len(rank)]]
    # operations that begin at the same time are beside this one, not before it
    new_start = new | np.concatenate([[True], np.diff(start) != 0])
    before = np.maximum.accumulate(np.where(new_start, all_rows, 0)) - 1
    begins = np.array([operations.step_begin_ns[number] for number in np.unique(step).tolist()])
    begin = begins[np.unique(step, return_inverse=True)[1].reshape(-1)]
    inside = (before >= 0) & (segment[before] == segment)
    return np.minimum(np.where(inside, np.maximum(latest[before], begin), begin), start)


def _earliest(operations: Operations, hole: _Hole, step_ns: float, known: Sequence[str]) -> _Barrier | None:
    """The group whose members are the first to wait for each other in what is left of the holes."""
    first_one: _Barrier | None = None
    seen = set()
    for partition in CANDIDATES:
        first = hole.matrix.rows[0]
        member = members_of(operations, first, partition)
        names = group_names(operations, first, partition)
        for at in range(int(member.max()) + 1):
            columns = np.flatnonzero(member == at)
            if len(columns) < 2 or columns.tobytes() in seen or names[columns[0]] in known:
                continue
            if names[columns[0]] == operations.group[first[columns[0]]]:  # which waits for the same ranks itself
                continue
            seen.add(columns.tobytes())
            kind = f"unrecorded {partition.name} barrier"
            tried = (_barrier(hole, which, columns, kind, names[columns[0]], step_ns) for which in (0, 1))
            barrier = next(filter(None, tried), None)
            if barrier and (first_one is None or barrier.came_ns < first_one.came_ns):
                first_one = barrier
    return first_one


def _barrier(hole: _Hole, which: int, columns: Array, kind: str, group: str, step_ns: float) -> _Barrier | None:
    """The barrier of these ranks, if nobody goes on before the last has come, and those who wait go on soon after."""
    idle_from, start = hole.idle_from[which][:, columns], hole.start[:, columns]
    last, released = idle_from.max(axis=1), start.min(axis=1)
    waits = last[:, None] - idle_from
    waited_ns = float(waits.sum())
    possible = float((released >= last - TOLERANCE * step_ns).mean())
    if possible < POSSIBLE or waited_ns <= TOLERANCE * step_ns * len(last):
        return None
    late = np.where(waits > 0, start - last[:, None], np.nan)[waited := waits.max(axis=1) > 0]
    if np.nanmedian(late, axis=1).sum() > LEFT * np.nanmean(np.where(waits > 0, waits, np.nan)[waited], axis=1).sum():
        return None
    end = np.maximum(idle_from, released[:, None])
    return _Barrier(kind, group, columns, idle_from, end, waited_ns, float(last.mean()))


@dataclass(slots=True)
class _Rows:
    like: Array  # rows of the table: the operations before which the barriers are
    start_ns: Array
    end_ns: Array
    kind: str
    group: str


def _rows(operations: Operations, hole: _Hole, barrier: _Barrier) -> _Rows:
    like = hole.matrix.rows[:, barrier.columns].ravel()
    begin = np.array([operations.step_begin_ns[number] for number in operations.step[like].tolist()])
    start = barrier.start.ravel().astype(np.int64)
    # before that operation also where both begin together
    start = np.maximum(np.minimum(start, operations.start_ns[like] - 1), begin)
    return _Rows(like, start, np.maximum(barrier.end.ravel().astype(np.int64), start), barrier.kind, barrier.group)


def _insert(operations: Operations, added: list[_Rows]) -> None:
    words = list(dict.fromkeys(rows.kind for rows in added))
    codes = np.concatenate([np.full(len(rows.like), words.index(rows.kind), np.int32) for rows in added])
    codes = np.concatenate([operations.kind.codes, codes + np.int32(len(operations.kind.values))])
    like = np.concatenate([np.arange(len(operations.rank)), *(rows.like for rows in added)])
    start_ns = np.concatenate([operations.start_ns, *(rows.start_ns for rows in added)])
    end_ns = np.concatenate([operations.end_ns, *(rows.end_ns for rows in added)])
    group = operations.group + [rows.group for rows in added for _ in rows.like]
    order = np.lexsort((start_ns, operations.step[like], operations.rank[like]))
    operations.peer = np.where(np.arange(len(like)) < len(operations.rank), operations.peer[like], -1)[order]
    operations.kind = Words(codes[order], [*operations.kind.values, *words])
    operations.start_ns, operations.end_ns = start_ns[order], end_ns[order]
    operations.group = [group[row] for row in order.tolist()]
    for name in ("rank", "step", "stage", "data_rank", "tensor_rank", "chunk", "micro_batch", "sequence"):
        setattr(operations, name, getattr(operations, name)[like][order])
