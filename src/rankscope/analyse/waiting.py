"""Who waits in collectives, for whom, and how long?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.analyse.matching import Array
from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.analyse.splitting import Collectives, Split, collectives_of
from rankscope.analyse.words import ranges
from rankscope.model import Column, Table, Tables, Unit

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("collectives", Unit.COUNT, "Collectives"),
    Column("wait_ns", Unit.NS, "Waits"),
    Column("wait_error_ns", Unit.NS, "± by clocks"),
    Column("transfer_ns", Unit.NS, "Moves data"),
    Column("leaving_ns", Unit.NS, "Leaves later"),
    Column("progress_wait_ns", Unit.NS, "Waits in progress"),
    Column("last", Unit.COUNT, "Came last"),
    Column("last_share", Unit.SHARE, "Of its coll."),
    Column("caused_ns", Unit.NS, "Makes others wait"),
    Column("caused_error_ns", Unit.NS, "± by clocks"),
    Column("caused_share", Unit.SHARE, "Of all waiting"),
    Column("late_ns", Unit.NS, "Late by"),
    Column("verdict", Unit.NAME, "Verdict"),
)
INCONCLUSIVE, AWAITED, WAITS = "inconclusive", "waited for", "waits"
NOTICEABLE = 0.05  # of the time between the first and the last collective
FEWEST = 8  # collectives in which a rank that is named came last
OUTSTANDING = 2.0  # times the share that each would have if all came last equally often


@dataclass(slots=True)
class Waiting:
    """Sums over all matched collectives, by rank (places as in Log.ranks)."""

    late_ns: list[list[Array]]  # by how much, where it came last
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

    @property
    def all_caused_ns(self) -> float:
        return float(self.caused_ns.sum())


def sums(known: Collectives) -> Waiting:
    """Who waited how long, and for whom."""
    count = len(known.log.ranks)
    found = Waiting([[] for _ in range(count)], *(np.zeros(count) for _ in range(10)))
    for split in known.splits:
        places, progress = split.group.members, split.group.progress[:, None]
        found.collectives[places] += len(split.last)
        found.wait_ns[places] += np.where(progress, 0, split.wait_ns).sum(axis=0)
        found.wait_error_ns[places] += np.where(progress, 0, split.error_ns).sum(axis=0)
        found.transfer_ns[places] += np.where(progress, 0, split.transfer_ns).sum(axis=0)
        found.leaving_ns[places] += np.where(progress, 0, split.leaving_ns).sum(axis=0)
        found.progress_wait_ns[places] += np.where(progress, split.wait_ns, 0).sum(axis=0)
        found.progress_error_ns[places] += np.where(progress, split.error_ns, 0).sum(axis=0)
        _add_causes(found, split)
    return found


def _add_causes(found: Waiting, split: Split) -> None:
    places = split.group.members
    waits = (split.awaited >= 0) & (split.awaited != np.arange(len(places)))
    for total, values in ((found.caused_ns, split.wait_ns), (found.caused_error_ns, split.error_ns)):
        total[places] += np.bincount(split.awaited[waits], values[waits], len(places))
    told = split.sure & (split.late_ns > 0)
    found.last[places] += np.bincount(split.last[told], minlength=len(places))
    for member, place in enumerate(places.tolist()):
        found.late_ns[place].append(split.late_ns[told & (split.last == member)])


def straggler(known: Collectives, found: Waiting) -> tuple[int | None, str]:
    """The place of the rank that the others wait for most, if one stands out, and a verdict about it."""
    if not len(found.caused_ns) or not found.all_caused_ns:
        return None, ""
    place = int(np.argmax(found.caused_ns))
    caused_ns, ranks = float(found.caused_ns[place]), len(found.caused_ns)
    outstanding = caused_ns / found.all_caused_ns >= min(0.9, OUTSTANDING / ranks)
    if not outstanding or caused_ns / max(1, ranks - 1) < NOTICEABLE * span_of(known):
        return None, ""
    if caused_ns <= float(found.caused_error_ns[place]):
        return place, INCONCLUSIVE
    return (place, AWAITED) if found.last[place] >= FEWEST else (None, "")


def span_of(known: Collectives) -> float:
    """From the first entering of a matched collective to the last."""
    ends = [(float(split.enter_ns.min()), float(split.enter_ns.max())) for split in known.splits]
    return max(last for _, last in ends) - min(first for first, _ in ends) if ends else 0.0


def waiting(tables: Tables, selection: Selection = ALL) -> Table:
    """Waiting, moving data and making others wait, per rank; the rank that makes others wait most comes first."""
    known = collectives_of(tables)
    table = Table("waiting", "Waiting in collectives", COLUMNS, [])
    if not known.splits:
        return table
    found = sums(known)
    named, verdict = straggler(known, found)
    for place in np.argsort(-found.caused_ns, kind="stable").tolist():
        if found.collectives[place] and (selection.ranks is None or known.log.ranks[place] in selection.ranks):
            told = verdict if place == named else _verdict(found, place, NOTICEABLE * span_of(known))
            table.rows.append(_row(known, found, place, told))
    table.notes += _comments(known, found, named, verdict)
    return arranged(table, selection)


def _verdict(found: Waiting, place: int, noticeable_ns: float) -> str:
    waited, error = float(found.wait_ns[place]), float(found.wait_error_ns[place])
    if error and error >= waited + float(found.progress_wait_ns[place]):
        return INCONCLUSIVE if error >= noticeable_ns else ""
    return WAITS if waited > max(noticeable_ns, float(found.transfer_ns[place])) else ""


def _row(known: Collectives, found: Waiting, place: int, verdict: str) -> tuple[Any, ...]:
    late = np.concatenate([*found.late_ns[place], np.zeros(0)])
    total = found.all_caused_ns
    return (
        known.log.ranks[place],
        known.log.hosts[place],
        int(found.collectives[place]),
        float(found.wait_ns[place]),
        float(found.wait_error_ns[place]),
        float(found.transfer_ns[place]),
        float(found.leaving_ns[place]),
        float(found.progress_wait_ns[place]) or None,
        int(found.last[place]),
        float(found.last[place] / found.collectives[place]),
        float(found.caused_ns[place]),
        float(found.caused_error_ns[place]),
        float(found.caused_ns[place]) / total if total else None,
        float(np.median(late)) if len(late) else None,
        verdict,
    )


def _comments(known: Collectives, found: Waiting, named: int | None, verdict: str) -> list[str]:
    comments = []
    unsure = sum(int((~split.sure & (split.last >= 0)).sum()) for split in known.splits)
    if named is not None:
        rank, host = known.log.ranks[named], known.log.hosts[named]
        caused_ns, share = float(found.caused_ns[named]), float(found.caused_ns[named]) / found.all_caused_ns
        told = f"The others wait for rank {rank} ({host}): {caused_ns / 1e9:.3g} s, {share:.0%} of all waiting"
        if verdict == INCONCLUSIVE:
            told = f"Inconclusive: the clocks are not exact enough to say whether rank {rank} ({host}) is waited for"
        comments.append(f"{told}.")
    elif float(found.wait_error_ns.mean()) >= NOTICEABLE * span_of(known):
        comments.append("Inconclusive: the clocks of the hosts are not known well enough to say who waits for whom.")
    else:
        comments.append("No rank stands out as the one that the others wait for.")
    if unsure:
        told = f"In {unsure} of {known.log.collectives} collectives the clocks"
        comments.append(f"{told} cannot tell which host came last.")
    unknown = [rank for clock in known.clocks.clocks if not clock.known for rank in clock.ranks]
    if unknown:
        comments.append(f"The clocks of rank {ranges(unknown)} could not be compared with the others: see clocks.")
    return comments
