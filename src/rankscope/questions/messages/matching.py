"""Which send and which receive are one and the same message, and when was it there, on one clock?

MPI matches the messages of one envelope (communicator, sender, receiver, tag) in the order in which they were posted on
both sides. So the n-th send of an envelope and its n-th receive are one message, and nothing else has to be known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.records import Layer
from rankscope.model.tables import Tables, Words
from rankscope.questions.collectives.clock_offsets import Clocks
from rankscope.questions.collectives.wait_and_transfer import collectives_of

Array = Any  # of numpy, one value for each message

BLOCK_ROWS = 2_000_000  # ends that are looked at in one go
CAUSALITY_NS = 2_000  # ticks of two processes of a host become Unix time to about half of this
# Why an end is in no message, beside what its own rank file says (rank_files/messages.py).
NO_GROUP = "on communicators whose identity is a guess or not unique, or between two groups"
NO_PARTNER = "whose other end is in no log: overwritten there, never posted, or of a process without a file"
UNENDED = "not complete at one end"
DISAGREE = "of envelopes whose two ends contradict each other in size or time"
GROUPS = """
    SELECT process, name, identity, my_rank, coalesce(guessed, false) OR named > 1 OR alike > 1
        OR identity = '0000000000000000' AS is_unsure
    FROM (SELECT g.*, count(*) OVER (PARTITION BY process, name) AS named,
            count(*) OVER (PARTITION BY g.kind, identity, my_rank) AS alike
        FROM groups AS g JOIN ranks USING (process) WHERE role = 'rank' AND identity <> '')"""
ENDS = f"""
    SELECT e.process, e.layer, e.kind, e."group", g.identity, g.my_rank, peer, tag, number, begin_ns, end_ns,
        coalesce(waited_ns, end_ns - begin_ns) AS blocked_ns, bytes, posted, e.thread, doubt,
        doubt = '' AND NOT coalesce(g.is_unsure, true) AS is_sure
    FROM message_ends AS e JOIN ranks USING (process) LEFT JOIN ({GROUPS}) AS g
    ON g.process = e.process AND g.name = e."group" WHERE role = 'rank'"""
PAIRS = f"""
    WITH ends AS ({ENDS})
    SELECT s.process AS send_process, r.process AS recv_process, s."group", s.identity, s.layer, s.tag,
        s.bytes AS sent_bytes, r.bytes, s.begin_ns AS send_begin_ns, s.end_ns AS send_end_ns,
        r.begin_ns AS recv_begin_ns, r.end_ns AS recv_end_ns, s.blocked_ns AS send_blocked_ns,
        r.blocked_ns AS recv_blocked_ns, s.posted AS send_posted, r.posted AS recv_posted,
        s.thread AS send_thread, r.thread AS recv_thread
    FROM ends AS s JOIN ends AS r ON s.layer = r.layer AND s.identity = r.identity AND s.tag = r.tag
        AND s.number = r.number AND s.peer = r.my_rank AND r.peer = s.my_rank
    WHERE s.kind = 'send' AND r.kind = 'receive' AND s.is_sure AND r.is_sure
        AND r.process BETWEEN ? AND ? AND s.end_ns IS NOT NULL AND r.end_ns IS NOT NULL
    ORDER BY r.process, r.thread, r.posted"""
KERNELS = f"""
    SELECT process, thread, posted, begin_ns, end_ns FROM message_ends JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = '{Layer.NCCL}' AND end_ns IS NOT NULL ORDER BY process, thread, posted"""
COUNTS = """
    SELECT process, count(*) FROM message_ends JOIN ranks USING (process)
    WHERE role = 'rank' AND kind = 'receive' GROUP BY process ORDER BY process"""
REASONS = f"""
    SELECT kind, CASE WHEN doubt <> '' THEN doubt WHEN NOT is_sure THEN '{NO_GROUP}'
        WHEN end_ns IS NULL THEN '{UNENDED}' ELSE '' END AS why, count(*)
    FROM ({ENDS}) GROUP BY ALL ORDER BY ALL"""


@dataclass(slots=True)
class Messages:
    """Matched messages, in the order of their receiver and of the posting there. Times are on the reference's clock."""

    sender: Array  # ranks
    receiver: Array
    group: Words
    tag: Array
    bytes: Array
    send_begin_ns: Array  # the call that posted it
    send_end_ns: Array  # return of a blocking call, else the end of the one that completed it
    recv_begin_ns: Array
    recv_end_ns: Array
    send_blocked_ns: Array  # inside the call that ended it: the last part of its time
    recv_blocked_ns: Array
    send_posted: Array  # place in the order in which the thread posted sends and receives
    recv_posted: Array
    send_thread: Array
    recv_thread: Array
    error_ns: Array  # by how much one end may be off against the other, because of the clocks

    def __len__(self) -> int:
        return len(self.sender)

    @property
    def wait_ns(self) -> Array:
        """Late sender: the receiver stands in its call and the send is not posted yet."""
        return np.clip(self.send_begin_ns - (self.recv_end_ns - self.recv_blocked_ns), 0, self.recv_blocked_ns)

    @property
    def send_wait_ns(self) -> Array:
        """Late receiver: the sender stands in its call and the receive is not posted yet.

        A send that was over before the receive was posted has waited for nobody: its data were put aside.
        """
        until = self.recv_begin_ns - (self.send_end_ns - self.send_blocked_ns)
        return np.where(self.send_end_ns < self.recv_begin_ns, 0, np.clip(until, 0, self.send_blocked_ns))

    @property
    def transfer_ns(self) -> Array:
        """The rest of the receiver's time in its call, in which it may have waited for the receiver of its own send."""
        return self.recv_blocked_ns - np.maximum(self.wait_ns, self._own_send_wait_ns)

    @property
    def _own_send_wait_ns(self) -> Array:
        """Of a receive by MPI_Sendrecv: how long the send of the same call waited; 0 of others.

        Both halves are one record, so that they are posted as the same one.
        """
        sends = _packed(self.sender, self.send_thread, self.send_posted)
        receives = _packed(self.receiver, self.recv_thread, self.recv_posted)
        order = np.argsort(sends, kind="stable")
        if not len(order):
            return np.zeros(0, np.int64)
        at = order[np.minimum(np.searchsorted(sends[order], receives), len(order) - 1)]
        return np.where(sends[at] == receives, self.send_wait_ns[at], 0)

    def only(self, chosen: Array) -> Messages:
        """These messages."""
        group = Words(self.group.codes[chosen], self.group.values)
        others = {field.name: getattr(self, field.name)[chosen] for field in fields(self) if field.name != "group"}
        return Messages(group=group, **others)


def _packed(place: Array, thread: Array, posted: Array) -> Array:
    """A record by its rank or process, its thread and its number there."""
    return place << 44 | thread << 32 | (posted & 0xFFFFFFFF)


_KEPT: WeakKeyDictionary[Tables, Messages] = WeakKeyDictionary()


def matched_messages(tables: Tables) -> Messages:
    """All matched messages of a run; worked out once for each run that is open."""
    if tables not in _KEPT:
        _KEPT[tables] = joined(list(message_blocks(tables)))
    return _KEPT[tables]


def message_blocks(tables: Tables) -> Iterator[Messages]:
    """The same, the receivers of some ranks at a time: of a large run they may be too many for memory."""
    for block, _ in _blocks(tables):
        yield block


def _blocks(tables: Tables) -> Iterator[tuple[Messages, int]]:
    """The messages of some receivers, and how many pairs were left out because they contradict each other."""
    counts = tables.query(COUNTS)
    if not counts:
        return
    places = _Places(tables)
    first, rows = 0, 0
    for at, (process, receives) in enumerate(counts):
        rows += receives
        if rows >= BLOCK_ROWS or at == len(counts) - 1:
            yield _block(places, tables.columns(PAIRS, [first, process]))
            first, rows = process + 1, 0


def joined(blocks: Sequence[Messages]) -> Messages:
    """Several blocks as one."""
    if not blocks:
        nothing = np.zeros(0, np.int64)
        others: dict[str, Any] = {field.name: nothing for field in fields(Messages) if field.name != "group"}
        return Messages(group=Words(nothing, []), **others)
    if len(blocks) == 1:
        return blocks[0]
    values = list(dict.fromkeys(value for block in blocks for value in block.group.values))
    code_of = {value: code for code, value in enumerate(values)}
    codes = [np.array([code_of[value] for value in b.group.values], np.int64)[b.group.codes] for b in blocks]
    others = {
        field.name: np.concatenate([getattr(block, field.name) for block in blocks])
        for field in fields(Messages)
        if field.name != "group"
    }
    return Messages(group=Words(np.concatenate(codes), values), **others)


class _Places:
    """Ranks and clocks of processes."""

    def __init__(self, tables: Tables) -> None:
        known = collectives_of(tables)
        self.clocks: Clocks = known.clocks
        self.base_ns = known.log.base_ns
        highest = max(known.log.processes, default=-1) + 1
        self.rank = np.full(highest, -1, np.int64)
        self.clock = np.zeros(highest, np.int64)
        for place, process in enumerate(known.log.processes):
            self.rank[process] = known.log.ranks[place]
            self.clock[process] = self.clocks.of_rank[place]
        self.kernels = _Kernels(tables)

    def corrected(self, process: Array, begin_ns: Array) -> tuple[Array, Array]:
        """Times as the reference's clock would show them, and their errors."""
        clock_of = self.clock[process]
        if (clock_of == 0).all():
            return begin_ns, np.zeros(len(begin_ns))
        moved, error = begin_ns.copy(), np.zeros(len(begin_ns))
        for place in np.unique(clock_of).tolist():
            here = np.flatnonzero(clock_of == place)
            time_ns = (begin_ns[here] - self.base_ns).astype(np.float64)
            reference_ns, error[here] = self.clocks.clocks[place].to_reference(time_ns)
            moved[here] += np.round(reference_ns - time_ns).astype(np.int64)
        return moved, error


class _Kernels:
    """What NCCL does in one kernel begins together, though its plugin hears of each send and receive by itself.

    Kernels of a communicator run one after the other, so that what overlaps and was posted in a row is one kernel.
    """

    def __init__(self, tables: Tables) -> None:
        rows = tables.columns(KERNELS)
        self.key = _packed(*(rows[name].astype(np.int64) for name in ("process", "thread", "posted")))
        begin, end = rows["begin_ns"].astype(np.int64), rows["end_ns"].astype(np.int64)
        lane = rows["process"].astype(np.int64) << 32 | rows["thread"].astype(np.int64)
        self.begin = begin
        if len(begin):
            order = np.argsort(self.key, kind="stable")
            self.key, begin, end, lane = self.key[order], begin[order], end[order], lane[order]
            first = np.flatnonzero(_kernel_starts(begin, end, lane))
            self.begin = np.repeat(np.minimum.reduceat(begin, first), np.diff(np.append(first, len(begin))))

    def begins(self, rows: Mapping[str, Any], end: str) -> Array:
        """When the kernels of these ends began; of what is not NCCL's when it was posted."""
        own_ns = rows[f"{end}_begin_ns"].astype(np.int64)
        if not len(self.key):
            return own_ns
        names = (f"{end}_process", f"{end}_thread", f"{end}_posted")
        key = _packed(*(rows[name].astype(np.int64) for name in names))
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where((self.key[at] == key) & _of_nccl(rows), self.begin[at], own_ns)


def _kernel_starts(begin: Array, end: Array, lane: Array) -> Array:
    """Which of them, in the order of posting, begin a new kernel: all before have ended, or it is another's lane."""
    starts = np.ones(len(begin), bool)
    over = end[0]
    for at in range(1, len(begin)):
        starts[at] = lane[at] != lane[at - 1] or begin[at] >= over
        over = end[at] if starts[at] else max(over, end[at])
    return starts


def _block(places: _Places, rows: Mapping[str, Any]) -> tuple[Messages, int]:
    sender, receiver = rows["send_process"], rows["recv_process"]
    rows = dict(rows)
    for end in ("send", "recv"):
        begin = places.kernels.begins(rows, end)
        rows[f"{end}_blocked_ns"] = rows[f"{end}_blocked_ns"] + (rows[f"{end}_begin_ns"] - begin)
        rows[f"{end}_begin_ns"] = begin
    send_begin, send_error = places.corrected(sender, rows["send_begin_ns"].astype(np.int64))
    recv_begin, recv_error = places.corrected(receiver, rows["recv_begin_ns"].astype(np.int64))
    same = places.clock[sender] == places.clock[receiver]
    messages = Messages(
        sender=places.rank[sender],
        receiver=places.rank[receiver],
        group=rows["group"],
        tag=rows["tag"].astype(np.int64),
        bytes=rows["bytes"].astype(np.int64),
        send_begin_ns=send_begin,
        send_end_ns=send_begin + (rows["send_end_ns"] - rows["send_begin_ns"]).astype(np.int64),
        recv_begin_ns=recv_begin,
        recv_end_ns=recv_begin + (rows["recv_end_ns"] - rows["recv_begin_ns"]).astype(np.int64),
        send_blocked_ns=_within(rows, "send"),
        recv_blocked_ns=_within(rows, "recv"),
        send_posted=rows["send_posted"].astype(np.int64),
        recv_posted=rows["recv_posted"].astype(np.int64),
        send_thread=rows["send_thread"].astype(np.int64),
        recv_thread=rows["recv_thread"].astype(np.int64),
        error_ns=np.where(same, 0.0, send_error + recv_error),
    )
    _end_late(messages, rows)
    good = _consistent(messages, rows, same)
    return messages if good.all() else messages.only(good), int(np.count_nonzero(~good))


def _end_late(messages: Messages, rows: Mapping[str, Any]) -> None:
    """A kernel of NCCL that sends and receives is heard to end as soon as it has sent: what it receives after that ends
    when it was sent."""
    early = messages.recv_end_ns < messages.send_begin_ns - np.where(
        np.isfinite(messages.error_ns), messages.error_ns, np.inf
    )
    early &= _of_nccl(rows)
    messages.recv_end_ns = np.where(early, messages.send_end_ns, messages.recv_end_ns)
    messages.recv_blocked_ns = np.where(early, messages.recv_end_ns - messages.recv_begin_ns, messages.recv_blocked_ns)


def _of_nccl(rows: Mapping[str, Any]) -> Array:
    layers = rows["layer"]
    return (np.array(layers.values, object) == Layer.NCCL)[layers.codes]


def _within(rows: Mapping[str, Any], end: str) -> Array:
    """Time in the call that ended it: no more than there was."""
    stay = (rows[f"{end}_end_ns"] - rows[f"{end}_begin_ns"]).astype(np.int64)
    return np.clip(rows[f"{end}_blocked_ns"].astype(np.int64), 0, np.maximum(stay, 0))


def _consistent(messages: Messages, rows: Mapping[str, Any], same_clock: Array) -> Array:
    """A pair whose sizes differ, or that was received before it was sent, proves that its envelope was miscounted.

    Not NCCL's times: a send begins when its plugin hears of it, which may be milliseconds after the device began.
    """
    wrong = rows["sent_bytes"] != rows["bytes"]
    is_timed = same_clock & ~_of_nccl(rows)
    wrong = wrong | (is_timed & (messages.recv_end_ns < messages.send_begin_ns - CAUSALITY_NS))
    if not wrong.any():
        return np.ones(len(messages), bool)
    identity = rows["identity"].codes.astype(np.int64)
    columns = np.stack([identity, messages.sender, messages.receiver, messages.tag])
    _, envelope = np.unique(columns, axis=1, return_inverse=True)
    return ~np.isin(envelope, envelope[wrong])


def ends_left_out(tables: Tables) -> Counter[tuple[str, str]]:
    """Sends and receives that are in no message, by kind and reason."""
    counts: Counter[tuple[str, str]] = Counter()
    for kind, why, count in tables.query(REASONS):
        counts[kind, why] = count
    for kind in ("send", "receive"):
        counts[kind, NO_PARTNER] = counts.pop((kind, ""), 0)
    for block, wrong in _blocks(tables):
        for kind in ("send", "receive"):
            counts[kind, NO_PARTNER] -= len(block) + wrong
            counts[kind, DISAGREE] += wrong
    return +counts
