"""The program of a job whose operations are in a table: a row for each, with its times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rankscope.model.tables import Tables
from rankscope.questions.whatif.program import Builder, Program

Array = Any  # of numpy
SQL = """
    SELECT rank, step, kind, o.role, o.start_ns, o.end_ns, "group", peer, stage, chunk, micro_batch, sequence
    FROM operations AS o JOIN ranks USING (process) WHERE ranks.role = 'rank' ORDER BY rank, step, o.start_ns"""
SLACK = 1e-3  # of a step: by so much may one begin before the one that it follows has ended
ALWAYS = 0.9  # of the steps: what holds in fewer is chance
BUFFERED = 0.05  # of the messages: so many sends end before their receiver has come where sends do not wait for it
LANES = 12  # how many operations of one kind are looked at for the one that was followed


@dataclass(slots=True, eq=False)
class TimedOperation:
    """One operation of the steps of one layout: B steps."""

    key: tuple[Any, ...]  # rank, kind, chunk, micro-batch, sequence, which one of these
    role: str
    group: str
    peer: int
    stage: int
    start: Array  # B: since the step began
    end: Array
    usual_start: float  # medians of both
    usual_end: float

    @property
    def rank(self) -> int:
        return int(self.key[0])

    @property
    def kind(self) -> str:
        return str(self.key[1])

    @property
    def work(self) -> tuple[Any, ...]:
        """What it does, whichever rank does it."""
        return self.key[1:]


def has_operations(tables: Tables) -> bool:
    return bool(tables.query("SELECT 1 FROM operations LIMIT 1"))


def programs_of_operations(tables: Tables) -> tuple[list[Program], list[str]]:
    """A program for all steps that have the same operations, and what could not be used."""
    columns = tables.columns(SQL)
    ranks = sorted(set(columns["rank"].tolist()))
    programs: list[Program] = []
    circles = 0
    unmatched = 0
    for numbers, operations, length_ns, began_ns in layouts(columns):
        builder = Builder(len(numbers))
        unmatched += _build(builder, operations, ranks, float(np.median(length_ns)))
        program = builder.program(ranks, numbers, length_ns)
        if program is None:
            circles += len(numbers)
        else:
            program.began_ns = began_ns
            programs.append(program)
    notes = []
    if circles:
        notes.append(f"{circles} steps were left out: their operations seem to wait for each other in a circle.")
    if unmatched:
        notes.append(f"{unmatched} messages of a step have no counterpart: they are taken as the rank's own time.")
    return programs, notes


def layouts(columns: Mapping[str, Any]) -> list[tuple[Array, list[TimedOperation], Array, Array]]:
    """Step numbers, operations, step times and begins of the steps of each layout, the most frequent first."""
    if not len(columns["rank"]):
        return []
    kinds, roles, groups = (columns[name] for name in ("kind", "role", "group"))
    words = [
        *(columns["rank"], columns["step"], kinds.codes, columns["chunk"], columns["micro_batch"], columns["sequence"]),
    ]
    order = np.lexsort((columns["start_ns"], *(words[at] for at in (5, 4, 3, 2, 0, 1))))
    words = [word[order] for word in words]
    same = np.ones(len(order) - 1, bool)
    for word in words:
        same &= np.diff(word) == 0
    new = np.concatenate([[True], ~same])
    which = np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    ids = np.unique(np.stack([*words[:1], *words[2:], which], axis=1), axis=0, return_inverse=True)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(words[1])) + 1, [len(order)]]).tolist()
    of_layout: dict[bytes, list[tuple[int, int]]] = {}
    for low, high in pairwise(edges):
        of_layout.setdefault(ids[1].reshape(-1)[low:high].tobytes(), []).append((low, high))
    start, end = columns["start_ns"][order], columns["end_ns"][order]
    result = []
    for spans in sorted(of_layout.values(), key=len, reverse=True):
        low, high = spans[0]
        starts = np.stack([start[a:b] for a, b in spans], axis=1).astype(np.float64)
        ends = np.stack([end[a:b] for a, b in spans], axis=1).astype(np.float64)
        begin = starts.min(axis=0)
        starts, ends = starts - begin, ends - begin
        usual = np.median(starts, axis=1).tolist(), np.median(ends, axis=1).tolist()
        operations = []
        for at, row in enumerate(order[low:high].tolist()):
            key = (*(int(word[low + at]) for word in (words[0], words[3], words[4], words[5])), int(which[low + at]))
            named = (key[0], kinds.values[kinds.codes[row]], *key[1:])
            role, group = roles.values[roles.codes[row]], groups.values[groups.codes[row]]
            place = int(columns["peer"][row]), int(columns["stage"][row])
            operations.append(
                TimedOperation(named, role, group, *place, starts[at], ends[at], usual[0][at], usual[1][at])
            )
        numbers = np.array([words[1][a] for a, _ in spans])
        result.append((numbers, operations, ends.max(axis=0), begin))
    return result


def _build(builder: Builder, operations: Sequence[TimedOperation], ranks: Sequence[int], step_ns: float) -> int:
    """Add all operations; how many messages have no counterpart."""
    place = {rank: at for at, rank in enumerate(ranks)}
    of_rank: dict[int, list[TimedOperation]] = {}
    for operation in operations:
        of_rank.setdefault(operation.rank, []).append(operation)
    batches = [batch for mine in of_rank.values() for batch in _batches(mine)]
    other, unmatched = messages(operations)
    slack = SLACK * step_ns
    waiting = _waits_for_receiver(other, slack)
    number: dict[int, int] = {}  # by id of an operation: where it ends, in the program
    arrived: dict[int, int] = {}
    after = _followed(of_rank, slack)
    # in the order in which they begin, what an operation follows is there already
    for batch in sorted(batches, key=lambda batch: batch[0].usual_start):
        first = batch[0]
        before = list({id(operation): operation for operation in after[id(first)] if operation not in batch}.values())
        known = [number[id(operation)] for operation in before if id(operation) in number]
        gap = first.start - (np.max([operation.end for operation in before], axis=0) if known else 0.0)
        is_matched = any(id(operation) in other for operation in batch)
        about: dict[str, Any] = {"stage": first.stage}
        about |= {"peers": (first.stage, *first.work), "peers_of_stages": first.work}
        own_ns = np.zeros_like(gap) if is_matched else first.end - first.start
        if first.group:
            own_ns = first.end - first.start  # what of it is transfer is known when all members are
        at = builder.add(
            place[first.rank],
            first.kind,
            known,
            gap,
            own_ns,
            transfers=first.role != "compute" and not is_matched,
            **about,
        )
        for operation in batch:
            arrived[id(operation)] = number[id(operation)] = at
        if is_matched:  # where it ends comes later, but what follows may be added before that
            about |= {"peers": ("end", first.stage, *first.work), "peers_of_stages": ("end", *first.work)}
            end = builder.add(place[first.rank], first.kind, [at], np.zeros_like(gap), own_ns, transfers=True, **about)
            for operation in batch:
                number[id(operation)] = end
    _connect_messages(builder, batches, other, arrived, number, waiting, place)
    _connect_collectives(builder, operations, arrived)
    return unmatched


def _batches(mine: Sequence[TimedOperation]) -> list[list[TimedOperation]]:
    """Sends and receives that begin and end together were given to the library as one."""
    batches: dict[Any, list[TimedOperation]] = {}
    for operation in mine:
        together = (
            (operation.start.tobytes(), operation.end.tobytes())
            if operation.role in ("send", "receive")
            else id(operation)
        )
        batches.setdefault(together, []).append(operation)
    return list(batches.values())


def messages(operations: Sequence[TimedOperation]) -> tuple[dict[int, TimedOperation], int]:
    """For each matched send and receive the other end: the n-th of its kind between two ranks is the n-th there."""
    ends: dict[Any, dict[str, list[TimedOperation]]] = {}
    for operation in sorted(operations, key=lambda operation: (operation.key[4], operation.usual_start)):
        if operation.role in ("send", "receive") and operation.peer >= 0:
            direction = operation.kind.replace("send", "").replace("recv", "").replace("receive", "")
            pair = (operation.rank, operation.peer) if operation.role == "send" else (operation.peer, operation.rank)
            ends.setdefault((direction, *pair), {"send": [], "receive": []})[operation.role].append(operation)
    other: dict[int, TimedOperation] = {}
    lost = 0
    for both in ends.values():
        if len(both["send"]) != len(both["receive"]):
            lost += max(map(len, both.values()))
            continue
        for sent, received in zip(both["send"], both["receive"], strict=True):
            other[id(sent)], other[id(received)] = received, sent
    return other, lost


def _waits_for_receiver(other: Mapping[int, TimedOperation], slack: float) -> bool:
    """Whether a send lasts until its receiver has come, as far as the times allow that."""
    early = [
        receive.start - there.end > slack
        for there in other.values()
        if there.role == "send"
        for receive in [other[id(there)]]
    ]
    return not early or float(np.mean(early)) < BUFFERED


def _followed(of_rank: Mapping[int, Sequence[TimedOperation]], slack: float) -> dict[int, list[TimedOperation]]:
    """What each operation follows on its own rank: of each kind the latest that had ended in nearly all steps."""
    followers: dict[int, list[TimedOperation]] = {}
    for mine in of_rank.values():
        ordered = sorted(mine, key=lambda operation: operation.usual_start)
        lanes: dict[str, list[TimedOperation]] = {}
        for operation in ordered:
            before: list[TimedOperation] = []
            for lane in lanes.values():
                predecessor = next(
                    (late for late in reversed(lane[-LANES:]) if _is_after(operation, late, slack)), None
                )
                if predecessor is not None:
                    before.append(predecessor)
            before.sort(key=lambda late: -late.usual_end)
            predecessors: list[TimedOperation] = []
            for late in before:  # what another of them follows is followed anyway
                if not any(_is_after(of, late, slack) for of in predecessors):
                    predecessors.append(late)
            followers[id(operation)] = predecessors
            lanes.setdefault(operation.kind, []).append(operation)
    return followers


def _is_after(operation: TimedOperation, before: TimedOperation, slack: float) -> bool:
    if before.usual_end > operation.usual_start + slack:
        return False
    ended = np.count_nonzero((before.end <= operation.start + slack) & (before.start < operation.start))
    return bool(ended >= ALWAYS * len(operation.start))


def _connect_messages(
    builder: Builder,
    batches: Sequence[Sequence[TimedOperation]],
    other: Mapping[int, TimedOperation],
    arrived: Mapping[int, int],
    number: Mapping[int, int],
    waiting: bool,
    place: Mapping[int, int],
) -> None:
    """A message takes its transfer from the moment at which both ends have come; a batch ends with its last one."""
    message: dict[int, tuple[int, Array]] = {}  # by the receiving end: in the program, and when it is over
    for batch in batches:
        for operation_of in batch:
            if operation_of.role == "receive" and id(operation_of) in other:
                sent = other[id(operation_of)]
                both = np.maximum(operation_of.start, sent.start)
                over = np.minimum(operation_of.end, sent.end) if waiting else operation_of.end
                transfer = np.maximum(over - both, 0.0)
                at = builder.add(
                    place[operation_of.rank],
                    operation_of.kind,
                    [arrived[id(operation_of)], arrived[id(sent)]],
                    np.zeros_like(both),
                    transfer,
                    stage=operation_of.stage,
                    transfers=True,
                    peers=("message", operation_of.stage, *operation_of.work),
                    peers_of_stages=("message", *operation_of.work),
                )
                message[id(operation_of)] = at, both + transfer
    for batch in batches:
        if not any(id(operation_of) in other for operation_of in batch):
            continue
        end = number[id(batch[0])]
        parts = [operation_of for operation_of in batch if operation_of.role == "receive" or waiting]
        mine = [message[id(part if part.role == "receive" else other[id(part)])] for part in parts if id(part) in other]
        over = np.max([batch[0].start, *(when for _, when in mine)], axis=0)
        builder.follows[end] += [at for at, _ in mine]
        builder.own_ns[end] = np.maximum(batch[0].end - over, 0.0)


def _connect_collectives(builder: Builder, operations: Sequence[TimedOperation], arrived: Mapping[int, int]) -> None:
    """The n-th of a kind in a group is the same on all members."""
    by_group: dict[Any, list[TimedOperation]] = {}
    for operation in operations:
        if operation.group:
            by_group.setdefault((operation.group, *operation.work), []).append(operation)
    for members in by_group.values():
        last = np.max([operation.start for operation in members], axis=0)
        for operation in members:
            builder.own_ns[arrived[id(operation)]] = np.maximum(operation.end - last, 0.0)
            builder.transfers[arrived[id(operation)]] = True
        builder.join([arrived[id(operation)] for operation in members])
