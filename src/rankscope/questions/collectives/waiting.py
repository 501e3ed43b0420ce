"""Who waits in collectives, for whom, and how long?"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.collectives.matching import Array, CollectiveLog
from rankscope.questions.collectives.wait_and_transfer import Collectives, Split, collectives_of, usually_asked
from rankscope.questions.condense import lanes
from rankscope.questions.messages.matching import message_blocks
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import at_host, ranges, seconds

# ---------------------------------------------------------------- who waits for whom, and how long in all?
WAIT_MATRIX_COLUMNS = (Column("rank", Unit.NAME, "Rank that waits"),)  # or a host, or several; then a column for each
MATRIX_FORMULA = (
    "wait for that rank (host, ranks): the last to arrive of those it depends on, summed over the collectives, and the"
    " other end of point-to-point messages"
)
MOST_LANES = 96


def wait_matrix(tables: Tables, selection: Selection = ALL) -> Table:
    """Waiting of each rank (row) for each other one (column), in collectives and messages. Many are put together."""
    known = collectives_of(tables)
    table = Table("wait_matrix", "Who waits for whom", WAIT_MATRIX_COLUMNS, [])
    wanted = np.array([selection.ranks is None or rank in selection.ranks for rank in known.log.ranks], bool)
    if not wanted.any():
        return table
    rows = lanes(known.log.ranks, known.log.hosts, MOST_LANES)
    count = len(rows.labels)
    sums, are_messages = _message_waits(tables, known.log.ranks, wanted, rows.of, count)
    if not known.splits and not are_messages:
        return table
    for split in known.splits:
        members = split.group.members
        waits = (split.awaited >= 0) & wanted[members] & (split.wait_ns > 0)
        waiting = np.broadcast_to(rows.of[members], waits.shape)[waits]
        awaited = rows.of[members[split.awaited[waits]]]
        sums += np.bincount(waiting * count + awaited, split.wait_ns[waits], count * count)
    table.columns = (
        Column(rows.kind, Unit.NAME, f"{rows.kind.capitalize()} that waits"),
        *(Column(f"for_{label}_ns", Unit.NS, str(label), MATRIX_FORMULA) for label in rows.labels),
    )
    wait_ns = np.round(sums).astype(np.int64).reshape(count, count)
    wanted_rows = np.flatnonzero(np.bincount(rows.of[wanted], minlength=count))
    table.rows = [(rows.labels[at], *wait_ns[at].tolist()) for at in wanted_rows.tolist()]
    if not rows.whole:
        table.notes.append(f"Sums over the ranks of one or more {rows.kind.rstrip('s')}s.")
    return table


def _message_waits(tables: Tables, ranks: list[int], wanted: Array, lane: Array, count: int) -> tuple[Array, bool]:
    """The same of messages: receivers wait for late senders, senders for late receivers. And whether there are any."""
    place = np.full(max(ranks, default=0) + 1, -1)
    place[ranks] = np.arange(len(ranks))
    sums, are_some = np.zeros(count * count), False
    for block in message_blocks(tables):
        sender, receiver = place[block.sender], place[block.receiver]
        for waiting, awaited, wait_ns in (
            (receiver, sender, block.wait_ns),
            (sender, receiver, block.send_wait_ns),
        ):
            wait_ns = np.where(wanted[waiting], wait_ns, 0)
            sums += np.bincount(lane[waiting] * count + lane[awaited], wait_ns, count * count)
        are_some = are_some or len(block) > 0
    return sums, are_some


# ---------------------------------------------------------------- waiting
WAITING_COLUMNS = (
    Column("rank", Unit.NAME, "Rank", "the rank that others wait for longest comes first"),
    Column("host", Unit.NAME, "Host"),
    Column("collectives", Unit.COUNT, "Collectives", "number of matched collectives of its groups"),
    Column("wait_ns", Unit.NS, "Its wait", "its wait in blocking calls and in kernels"),
    Column(
        "wait_error_ns", Unit.NS, "Clock uncertainty", "how much of `wait_ns`, more or less, may be the clocks' error"
    ),
    Column("transfer_ns", Unit.NS, "Its transfer", "its transfer in blocking calls and in kernels"),
    Column("leaving_ns", Unit.NS, "Its exit skew", "its exit skew in blocking calls and in kernels"),
    Column(
        "progress_wait_ns",
        Unit.NS,
        "Wait in progress",
        "its wait in nonblocking operations, from their start: an upper bound of what it cost, because the rank may"
        " have computed meanwhile",
    ),
    Column(
        "last",
        Unit.COUNT,
        "Last to arrive",
        "collectives in which it was the last to arrive and the clocks are exact enough to say so: its entry − its "
        "error is not before any entry + error on another clock",
    ),
    Column("last_share", Unit.SHARE, "% of its collectives", "`last` ÷ `collectives`"),
    Column(
        "caused_ns",
        Unit.NS,
        "Wait caused, all ranks",
        "wait caused: wait of all others for it, summed over them, in calls and in progress",
    ),
    Column(
        "caused_error_ns",
        Unit.NS,
        "Clock uncertainty",
        "how much of `caused_ns`, more or less, may be the clocks' error",
    ),
    Column("caused_share", Unit.SHARE, "Share of wait caused", "`caused_ns` ÷ the sum of `caused_ns` over all ranks"),
    Column(
        "late_ns", Unit.NS, "Median arrival delay", "median of its arrival skew over the collectives counted in `last`"
    ),
    Column(
        "verdict",
        Unit.NAME,
        "Verdict",
        "*straggler*: the others wait for it, and it stands out; *inconclusive*: the effect is not larger than the "
        "clocks' error; *waits*: its wait is longer than its transfer, and at least 5 % of the span",
    ),
)
INCONCLUSIVE, AWAITED, WAITS = "inconclusive", "straggler", "waits"
NOTICEABLE = 0.05  # of the time between the first and the last collective
FEWEST = 8  # collectives in which a rank that is named came last
OUTSTANDING = 2.0  # times the share that each would have if all came last equally often


@dataclass(slots=True)
class Waiting:
    """Sums over matched collectives, by rank (places as in Log.ranks)."""

    collectives: Array
    wait_ns: Array
    wait_error_ns: Array
    transfer_ns: Array
    leaving_ns: Array
    progress_wait_ns: Array
    progress_error_ns: Array
    last: Array  # collectives in which it came last, as far as the clocks can tell
    caused_ns: Array  # waiting of others for it, in progress or not
    caused_error_ns: Array
    once_ns: Array  # the most of caused_ns that is of one collective: of the first, the start-up
    late: list[tuple[Array, Array]] = field(default_factory=list)  # who came last where that is sure, and by how much
    unsure: int = 0  # collectives of which the clocks cannot tell who came last
    first_ns: float = np.inf  # entering of any
    last_ns: float = -np.inf

    @classmethod
    def none(cls, ranks: int) -> Waiting:
        sums: dict[str, Any] = {name: np.zeros(ranks) for name in (*SUMMED, "once_ns")}
        return cls(**sums)

    @property
    def all_caused_ns(self) -> float:
        return float(self.caused_ns.sum())

    @property
    def span_ns(self) -> float:
        """From the first entering of a matched collective to the last."""
        return self.last_ns - self.first_ns if self.last_ns >= self.first_ns else 0.0

    def add(self, other: Waiting) -> None:
        for name in SUMMED:
            getattr(self, name)[:] += getattr(other, name)
        np.maximum(self.once_ns, other.once_ns, out=self.once_ns)
        self.late += other.late
        self.unsure += other.unsure
        self.first_ns, self.last_ns = min(self.first_ns, other.first_ns), max(self.last_ns, other.last_ns)

    def lateness(self, ranks: int) -> list[float | None]:
        """Of each rank the median of how late it came where it came last."""
        who = np.concatenate([np.zeros(0, np.int64), *(late[0] for late in self.late)])
        by_ns = np.concatenate([np.zeros(0), *(late[1] for late in self.late)])
        order = np.argsort(who, kind="stable")
        edges = np.searchsorted(who[order], np.arange(ranks + 1)).tolist()
        delays = (by_ns[order[first:last]] for first, last in pairwise(edges))
        return [float(np.median(delays_of_rank)) if len(delays_of_rank) else None for delays_of_rank in delays]


SUMMED = (
    *("collectives", "wait_ns", "wait_error_ns", "transfer_ns", "leaving_ns", "progress_wait_ns", "progress_error_ns"),
    *("last", "caused_ns", "caused_error_ns"),
)


def sums(known: Collectives) -> Waiting:
    """Who waited how long, and for whom."""
    waiting_sums = Waiting.none(len(known.log.ranks))
    for group_sums in known.of_each(_sums_of):
        waiting_sums.add(group_sums)
    return waiting_sums


@usually_asked
def _sums_of(log: CollectiveLog, split: Split) -> Waiting:
    waiting_sums = Waiting.none(len(log.ranks))
    places, progress = split.group.members, split.group.progress
    blocking = np.flatnonzero(~progress) if progress.any() else slice(None)
    waiting_sums.collectives[places] += len(split.last)
    waiting_sums.wait_ns[places] += split.wait_ns[blocking].sum(axis=0)
    waiting_sums.wait_error_ns[places] += split.error_ns[blocking].sum(axis=0)
    waiting_sums.transfer_ns[places] += split.transfer_ns[blocking].sum(axis=0)
    waiting_sums.leaving_ns[places] += split.leaving_ns[blocking].sum(axis=0)
    waiting_sums.progress_wait_ns[places] += split.wait_ns[progress].sum(axis=0)
    waiting_sums.progress_error_ns[places] += split.error_ns[progress].sum(axis=0)
    _add_causes(waiting_sums, split)
    waiting_sums.unsure = int((~split.sure & (split.last >= 0)).sum())
    waiting_sums.first_ns, waiting_sums.last_ns = float(split.enter_ns.min()), float(split.enter_ns.max())
    return waiting_sums


def _add_causes(waiting_sums: Waiting, split: Split) -> None:
    places = split.group.members
    for_one, rest = split.for_one & (split.last >= 0), np.flatnonzero(~split.for_one)
    awaited = split.awaited[rest]
    waits = (awaited >= 0) & (awaited != np.arange(len(places)))
    for total, values in ((waiting_sums.caused_ns, split.wait_ns), (waiting_sums.caused_error_ns, split.error_ns)):
        total[places] += np.bincount(split.last[for_one], values.sum(axis=1)[for_one], len(places))
        if len(rest):
            total[places] += np.bincount(awaited[waits], values[rest][waits], len(places))
    waiting_sums.once_ns[places] = _once(split, for_one, len(places))
    certain = split.sure & (split.late_ns > 0)
    waiting_sums.last[places] += np.bincount(split.last[certain], minlength=len(places))
    waiting_sums.late.append((places[split.last[certain]], split.late_ns[certain]))


def _once(split: Split, for_one: Array, members: int) -> Array:
    longest_ns = np.zeros(members)
    np.maximum.at(longest_ns, split.last[for_one], split.wait_ns.sum(axis=1)[for_one])
    return longest_ns


def straggler(known: Collectives, waiting_sums: Waiting) -> tuple[int | None, str]:
    """The place of the rank that the others wait for most, if one stands out, and a verdict about it."""
    if not len(waiting_sums.caused_ns) or not waiting_sums.all_caused_ns:
        return None, ""
    place = int(np.argmax(waiting_sums.caused_ns))
    caused_ns, ranks = float(waiting_sums.caused_ns[place]), len(waiting_sums.caused_ns)
    again_ns = waiting_sums.caused_ns - waiting_sums.once_ns
    shares = (waiting_sums.caused_ns / waiting_sums.all_caused_ns, again_ns / max(float(again_ns.sum()), 1.0))
    outstanding = min(share[place] for share in shares) >= min(0.9, OUTSTANDING / ranks)
    if not outstanding or again_ns[place] / max(1, ranks - 1) < NOTICEABLE * waiting_sums.span_ns:
        return None, ""
    if caused_ns <= float(waiting_sums.caused_error_ns[place]):
        return place, INCONCLUSIVE
    return (place, AWAITED) if waiting_sums.last[place] >= FEWEST else (None, "")


def waiting(tables: Tables, selection: Selection = ALL) -> Table:
    """Wait, transfer and wait caused of each rank; the rank that makes others wait most comes first."""
    known = collectives_of(tables)
    table = Table("waiting", "Waiting in collectives", WAITING_COLUMNS, [])
    if not known.splits:
        return table
    waiting_sums = sums(known)
    named, verdict = straggler(known, waiting_sums)
    lateness = waiting_sums.lateness(len(known.log.ranks))
    for place in np.argsort(-waiting_sums.caused_ns, kind="stable").tolist():
        if waiting_sums.collectives[place] and (selection.ranks is None or known.log.ranks[place] in selection.ranks):
            text = verdict if place == named else _verdict(waiting_sums, place, NOTICEABLE * waiting_sums.span_ns)
            table.rows.append(_row(known, waiting_sums, place, lateness[place], text))
    table.notes += _comments(known, waiting_sums, named, verdict)
    return arranged(table, selection)


def _verdict(waiting_sums: Waiting, place: int, noticeable_ns: float) -> str:
    waited, error = float(waiting_sums.wait_ns[place]), float(waiting_sums.wait_error_ns[place])
    if error and error >= waited + float(waiting_sums.progress_wait_ns[place]):
        return INCONCLUSIVE if error >= noticeable_ns else ""
    return WAITS if waited > max(noticeable_ns, float(waiting_sums.transfer_ns[place])) else ""


def _row(known: Collectives, waiting_sums: Waiting, place: int, late_ns: float | None, verdict: str) -> tuple[Any, ...]:
    total = waiting_sums.all_caused_ns
    return (
        known.log.ranks[place],
        known.log.hosts[place],
        int(waiting_sums.collectives[place]),
        float(waiting_sums.wait_ns[place]),
        float(waiting_sums.wait_error_ns[place]),
        float(waiting_sums.transfer_ns[place]),
        float(waiting_sums.leaving_ns[place]),
        float(waiting_sums.progress_wait_ns[place]) or None,
        int(waiting_sums.last[place]),
        float(waiting_sums.last[place] / waiting_sums.collectives[place]),
        float(waiting_sums.caused_ns[place]),
        float(waiting_sums.caused_error_ns[place]),
        float(waiting_sums.caused_ns[place]) / total if total else None,
        late_ns,
        verdict,
    )


def _comments(known: Collectives, waiting_sums: Waiting, named: int | None, verdict: str) -> list[str]:
    comments = []
    if named is not None:
        who = at_host(known.log.ranks[named], known.log.hosts[named])
        caused_ns, share = (
            float(waiting_sums.caused_ns[named]),
            float(waiting_sums.caused_ns[named]) / waiting_sums.all_caused_ns,
        )
        sentence = f"The others wait for {who}: {seconds(caused_ns)} summed over them, "
        sentence += f"{100 * share:.0f} % of all waiting"
        if verdict == INCONCLUSIVE:
            sentence = f"Inconclusive: the clocks are not exact enough to say whether {who} is a straggler"
        comments.append(f"{sentence}.")
    elif float(waiting_sums.wait_error_ns.mean()) >= NOTICEABLE * waiting_sums.span_ns:
        comments.append("Inconclusive: the clocks of the hosts are not known well enough to say who waits for whom.")
    else:
        comments.append("No rank stands out as the one that the others wait for.")
    if waiting_sums.unsure:
        sentence = f"In {waiting_sums.unsure} of {known.log.collectives} collectives the clocks"
        comments.append(f"{sentence} cannot tell which host arrived last.")
    unknown = [rank for clock in known.clocks.clocks if not clock.known for rank in clock.ranks]
    if unknown:
        comments.append(f"The clocks of rank {ranges(unknown)} could not be compared with the others: see clocks.")
    return comments
