"""What the operations of a table are: which compute, which are messages and to whom, and whom a collective connects."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.model.tables import Words

Array = Any  # of numpy


@dataclass(slots=True)
class Operations:
    """All operations of a table, those of a rank together, by step and start."""

    rank: Array
    step: Array  # its number in the table
    kind: Words
    start_ns: Array
    end_ns: Array
    stage: Array  # -1 where the table has none, as of the next ones
    data_rank: Array
    tensor_rank: Array
    chunk: Array
    micro_batch: Array
    sequence: Array
    group: list[str] = field(default_factory=list)  # of each row: of a collective
    peer: Array = None  # of each row: of a message; -1: none
    step_begin_ns: dict[int, int] = field(default_factory=dict)
    step_end_ns: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------------------------
# What a kind of operation is, by its name; and who takes part in it.
SEND, RECEIVE, COLLECTIVE, COMPUTE, UNKNOWN = "send", "receive", "collective", "compute", "unknown"
OF_NAMES = (  # the first that is in the name decides
    (re.compile(r"recv|receive"), RECEIVE),
    (re.compile(r"send"), SEND),
    (re.compile(r"all.?gather|reduce.?scatter|all.?reduce|broadcast|all.?to.?all|barrier"), COLLECTIVE),
    (re.compile(r"compute|forward|backward|^gc$|data|checkpoint"), COMPUTE),
)
OPERATION = re.compile(r"all.?gather|reduce.?scatter|all.?reduce|broadcast|all.?to.?all|barrier")
STEP_PARTS = (  # of compute
    (re.compile(r"data|load"), "data"),
    (re.compile(r"forward|^fwd"), "forward"),
    (re.compile(r"backward|^bwd|^grad"), "backward"),
    (re.compile(r"optim|^step$"), "optimizer"),
    (re.compile(r"checkpoint|save"), "checkpoint"),
)


def role_of(kind: str) -> str:
    """Whether such an operation computes, sends, receives or is a collective; "unknown": its times must tell."""
    return next((role for pattern, role in OF_NAMES if pattern.search(kind.lower())), UNKNOWN)


def connect(operations: Operations) -> None:
    """Give collectives their groups and messages their peers."""
    operations.group, operations.peer = [""] * len(operations.rank), np.full(len(operations.rank), -1)
    for code, kind in enumerate(operations.kind.values):
        rows = np.flatnonzero(operations.kind.codes == code)
        role = role_of(kind)
        if role in (SEND, RECEIVE):
            _set_peers(operations, rows, kind, role)
        elif role in (COLLECTIVE, UNKNOWN) and len(rows):
            _set_groups(operations, rows, kind, role)


def _set_peers(operations: Operations, rows: Array, kind: str, role: str) -> None:
    """Forward goes to the next stage and backward to the one before; the last stage sends on to the first."""
    stages = int(operations.stage.max()) + 1
    if stages < 2:
        return
    up = "backward" not in kind.lower() and not kind.lower().startswith("bwd")
    there = (operations.stage[rows] + (1 if up == (role == SEND) else -1)) % stages
    _, first = np.unique(operations.rank, return_index=True)
    coordinates = np.stack(
        [operations.data_rank[first], operations.tensor_rank[first], operations.stage[first]], axis=1
    )
    places = {tuple(key): rank for key, rank in zip(coordinates.tolist(), operations.rank[first].tolist(), strict=True)}
    coordinates_there = zip(
        operations.data_rank[rows].tolist(), operations.tensor_rank[rows].tolist(), there.tolist(), strict=True
    )
    operations.peer[rows] = [places.get(key, -1) for key in coordinates_there]


@dataclass(frozen=True, slots=True)
class Partition:
    """One way to share out the ranks: those alike in these coordinates are one group."""

    name: str
    alike: tuple[str, ...]


ALONE = Partition("", ("rank",))
TENSOR = Partition("tensor-parallel", ("stage", "data_rank"))
DATA = Partition("data-parallel", ("stage", "tensor_rank"))
PIPELINE = Partition("pipeline", ("data_rank", "tensor_rank"))
WORLD = Partition("world", ())
CANDIDATES = (ALONE, TENSOR, DATA, PIPELINE, WORLD)
EXPECTED = (  # by the name of the kind: what Megatron's are
    (re.compile(r"embedding"), Partition("embedding", ("data_rank", "tensor_rank"))),
    (re.compile(r"layernorm|sequence"), TENSOR),
    (re.compile(r"param|grad"), DATA),
)
POSSIBLE = 0.95  # of the collectives: nobody may end before the last has begun
EXPLAINED = 0.7  # of the time in it: more than this must be left for it to be the rank's own
FINER = 1.1
TOLERANCE = 1e-3  # of a step


@dataclass(slots=True)
class Matrix:
    """The operations of one kind, where each rank that has it has it equally often."""

    kind: str
    ranks: Array
    rows: Array  # of the table: by step and occurrence in the step, and rank


def matrix_of(operations: Operations, rows: Array, kind: str) -> Matrix | None:
    """None: not so."""
    if not len(rows):
        return None
    ranks, column = np.unique(operations.rank[rows], return_inverse=True)
    occurrence = _occurrence(operations, rows)
    keys, line = np.unique(operations.step[rows] * (1 << 20) + occurrence, return_inverse=True)
    if len(ranks) * len(keys) != len(rows):
        return None
    matrix = np.empty((len(keys), len(ranks)), np.int64)
    matrix[line, column] = rows
    return Matrix(kind, ranks, matrix)


def _set_groups(operations: Operations, rows: Array, kind: str, role: str) -> None:
    """The ranks that such an operation connects: those of its name, where times allow it; else as times tell."""
    matrix = matrix_of(operations, rows, kind)
    if matrix is None:
        return
    first = matrix.rows[0]
    begin = np.array([operations.step_begin_ns[number] for number in operations.step[matrix.rows[:, 0]].tolist()])
    start, end = (values[matrix.rows] - begin[:, None] for values in (operations.start_ns, operations.end_ns))
    slack = TOLERANCE * float(np.median([operations.step_end_ns[s] - b for s, b in operations.step_begin_ns.items()]))
    expected = [partition for pattern, partition in EXPECTED if role == COLLECTIVE and pattern.search(kind.lower())][:1]
    chosen, left = ALONE, np.inf
    for partition in expected or CANDIDATES:
        member = members_of(operations, first, partition)
        last = np.stack([start[:, member == at].max(axis=1) for at in range(member.max() + 1)], axis=1)[:, member]
        possible = float((end >= last - slack).all(axis=1).mean())
        unexplained_ns = float(np.maximum(end - last, 0).sum())
        if partition is ALONE:
            left = unexplained_ns * EXPLAINED if role == UNKNOWN else unexplained_ns
        elif expected or (possible >= POSSIBLE and unexplained_ns * FINER < left):
            chosen, left = partition, unexplained_ns
    if chosen is ALONE:
        return
    for at, name in enumerate(group_names(operations, first, chosen)):
        for row in matrix.rows[:, at].tolist():
            operations.group[row] = name


def _occurrence(operations: Operations, rows: Array) -> Array:
    """Which one of its kind it is in its step, on its rank."""
    new = np.concatenate([[True], (np.diff(operations.rank[rows]) != 0) | (np.diff(operations.step[rows]) != 0)])
    begins = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    return np.arange(len(rows)) - begins


def members_of(operations: Operations, first: Array, partition: Partition) -> Array:
    if not partition.alike:
        return np.zeros(len(first), np.int64)
    keys = np.stack([getattr(operations, name)[first] for name in partition.alike], axis=1)
    return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)


def group_names(operations: Operations, first: Array, partition: Partition) -> list[str]:
    """Equal on all members; "" where a rank is alone."""
    member = members_of(operations, first, partition)
    sizes = np.bincount(member)
    names = []
    for row, at in zip(first.tolist(), member.tolist(), strict=True):
        known = [name for name in partition.alike if getattr(operations, name)[row] >= 0]
        place = ", ".join(f"{name.partition('_')[0]} {getattr(operations, name)[row]}" for name in known)
        names.append("" if sizes[at] < 2 else f"{partition.name} ({place})" if place else WORLD.name)
    return names


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The ranks that send each other messages, in order."""

    name: str
    ranks: list[int]


def pipelines_of(operations: Operations) -> dict[int, Pipeline]:
    """By rank; none where messages have no peers."""
    if not (operations.peer >= 0).any():
        return {}
    ranks, first = np.unique(operations.rank, return_index=True)
    member, names = members_of(operations, first, PIPELINE), group_names(operations, first, PIPELINE)
    all_pipelines = {
        at: Pipeline(names[int(np.argmax(member == at))], ranks[member == at].tolist()) for at in set(member.tolist())
    }
    return {
        rank: all_pipelines[at]
        for rank, at in zip(ranks.tolist(), member.tolist(), strict=True)
        if len(all_pipelines[at].ranks) > 1
    }


def nth_of(codes: Array) -> Array:
    """Which one of its code each is, from 1."""
    order = np.argsort(codes, kind="stable")
    new = np.concatenate([[True], np.diff(codes[order]) != 0]) if len(codes) else np.zeros(0, bool)
    begins = np.maximum.accumulate(np.where(new, np.arange(len(codes)), 0))
    result = np.empty(len(codes), np.int64)
    result[order] = np.arange(len(codes)) - begins + 1
    return result
