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
    made: list[Program] = []
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
            made.append(program)
    notes = []
    if circles:
        notes.append(f"{circles} steps were left out: their operations seem to wait for each other in a circle.")
    if unmatched:
        notes.append(f"{unmatched} messages of a step have no counterpart: they are taken as the rank's own time.")
    return made, notes


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
    made = []
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
        made.append((numbers, operations, ends.max(axis=0), begin))
    return made


def _build(builder: Builder, operations: Sequence[TimedOperation], ranks: Sequence[int], step_ns: float) -> int:
    """Add all operations; how many messages have no counterpart."""
    place = {rank: at for at, rank in enumerate(ranks)}
    of_rank: dict[int, list[TimedOperation]] = {}
    for one in operations:
        of_rank.setdefault(one.rank, []).append(one)
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
        before = list({id(one): one for one in after[id(first)] if one not in batch}.values())
        known = [number[id(one)] for one in before if id(one) in number]
        gap = first.start - (np.max([one.end for one in before], axis=0) if known else 0.0)
        is_matched = any(id(one) in other for one in batch)
        about: dict[str, Any] = {"stage": first.stage}
        about |= {"peers": (first.stage, *first.work), "peers_of_stages": first.work}
        own = np.zeros_like(gap) if is_matched else first.end - first.start
        if first.group:
            own = first.end - first.start  # what of it is transfer is known when all members are
        at = builder.add(
            place[first.rank],
            first.kind,
            known,
            gap,
            own,
            transfers=first.role != "compute" and not is_matched,
            **about,
        )
        for one in batch:
            arrived[id(one)] = number[id(one)] = at
        if is_matched:  # where it ends comes later, but what follows may be added before that
            about |= {"peers": ("end", first.stage, *first.work), "peers_of_stages": ("end", *first.work)}
            end = builder.add(place[first.rank], first.kind, [at], np.zeros_like(gap), own, transfers=True, **about)
            for one in batch:
                number[id(one)] = end
    _connect_messages(builder, batches, other, arrived, number, waiting, place)
    _connect_collectives(builder, operations, arrived)
    return unmatched


def _batches(mine: Sequence[TimedOperation]) -> list[list[TimedOperation]]:
    """Sends and receives that begin and end together were given to the library as one."""
    made: dict[Any, list[TimedOperation]] = {}
    for one in mine:
        together = (one.start.tobytes(), one.end.tobytes()) if one.role in ("send", "receive") else id(one)
        made.setdefault(together, []).append(one)
    return list(made.values())


def messages(operations: Sequence[TimedOperation]) -> tuple[dict[int, TimedOperation], int]:
    """For each matched send and receive the other end: the n-th of its kind between two ranks is the n-th there."""
    ends: dict[Any, dict[str, list[TimedOperation]]] = {}
    for one in sorted(operations, key=lambda one: (one.key[4], one.usual_start)):
        if one.role in ("send", "receive") and one.peer >= 0:
            direction = one.kind.replace("send", "").replace("recv", "").replace("receive", "")
            pair = (one.rank, one.peer) if one.role == "send" else (one.peer, one.rank)
            ends.setdefault((direction, *pair), {"send": [], "receive": []})[one.role].append(one)
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
        one.start - there.end > slack for there in other.values() if there.role == "send" for one in [other[id(there)]]
    ]
    return not early or float(np.mean(early)) < BUFFERED


def _followed(of_rank: Mapping[int, Sequence[TimedOperation]], slack: float) -> dict[int, list[TimedOperation]]:
    """What each operation follows on its own rank: of each kind the latest that had ended in nearly all steps."""
    made: dict[int, list[TimedOperation]] = {}
    for mine in of_rank.values():
        ordered = sorted(mine, key=lambda one: one.usual_start)
        lanes: dict[str, list[TimedOperation]] = {}
        for one in ordered:
            before: list[TimedOperation] = []
            for lane in lanes.values():
                found = next((late for late in reversed(lane[-LANES:]) if _is_after(one, late, slack)), None)
                if found is not None:
                    before.append(found)
            before.sort(key=lambda late: -late.usual_end)
            kept: list[TimedOperation] = []
            for late in before:  # what another of them follows is followed anyway
                if not any(_is_after(of, late, slack) for of in kept):
                    kept.append(late)
            made[id(one)] = kept
            lanes.setdefault(one.kind, []).append(one)
    return made


def _is_after(one: TimedOperation, before: TimedOperation, slack: float) -> bool:
    if before.usual_end > one.usual_start + slack:
        return False
    ended = np.count_nonzero((before.end <= one.start + slack) & (before.start < one.start))
    return bool(ended >= ALWAYS * len(one.start))


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
        for one in batch:
            if one.role == "receive" and id(one) in other:
                sent = other[id(one)]
                both = np.maximum(one.start, sent.start)
                over = np.minimum(one.end, sent.end) if waiting else one.end
                transfer = np.maximum(over - both, 0.0)
                at = builder.add(
                    place[one.rank],
                    one.kind,
                    [arrived[id(one)], arrived[id(sent)]],
                    np.zeros_like(both),
                    transfer,
                    stage=one.stage,
                    transfers=True,
                    peers=("message", one.stage, *one.work),
                    peers_of_stages=("message", *one.work),
                )
                message[id(one)] = at, both + transfer
    for batch in batches:
        if not any(id(one) in other for one in batch):
            continue
        end = number[id(batch[0])]
        parts = [one for one in batch if one.role == "receive" or waiting]
        mine = [message[id(one if one.role == "receive" else other[id(one)])] for one in parts if id(one) in other]
        over = np.max([batch[0].start, *(when for _, when in mine)], axis=0)
        builder.follows[end] += [at for at, _ in mine]
        builder.own_ns[end] = np.maximum(batch[0].end - over, 0.0)


def _connect_collectives(builder: Builder, operations: Sequence[TimedOperation], arrived: Mapping[int, int]) -> None:
    """The n-th of a kind in a group is the same on all members."""
    found: dict[Any, list[TimedOperation]] = {}
    for one in operations:
        if one.group:
            found.setdefault((one.group, *one.work), []).append(one)
    for members in found.values():
        last = np.max([one.start for one in members], axis=0)
        for one in members:
            builder.own_ns[arrived[id(one)]] = np.maximum(one.end - last, 0.0)
            builder.transfers[arrived[id(one)]] = True
        builder.join([arrived[id(one)] for one in members])
