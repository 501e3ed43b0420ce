"""How far apart are the clocks of the hosts, and how fast do they drift, by the log alone?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.model.records import Layer
from rankscope.questions.collectives.clock_fit import ClockSpan, Pair, fit
from rankscope.questions.collectives.matching import Array, CollectiveLog, Matched
from rankscope.questions.collectives.operations import OPERATIONS, Operation, Proof, Waits
from rankscope.questions.disk_matrix import in_threads

# ---------------------------------------------------------------------------------------------------------------------
# What do the collectives prove about the clocks of two hosts?
# Nobody leaves a synchronising collective before all have entered it. So the earliest leaving on one host comes after
# the latest entering on the other, on whatever clocks the two were read: an upper bound of the offset at one moment,
# and with the hosts exchanged a lower one.
SLACK_NS: dict[str, float] = {Layer.NCCL: 20_000.0}  # NCCL's proxy thread sees kernels begin and end a little late
SLACK_OTHERS_NS = 1_000.0  # ticks of two processes of a host become Unix time to about this


@dataclass(slots=True)
class Evidence:
    """Of each of K collectives: per host the latest entering and the earliest leaving that prove something."""

    hosts: Array  # H: numbers of the hosts
    entered_ns: Array  # K x H, -inf where nobody has to wait for that host
    left_ns: Array  # K x H, inf where nobody of that host has to wait
    stay_ns: Array  # K: the shortest stay of any member; inf where that says nothing
    slack_ns: float


def evidence(log: CollectiveLog, group: Matched, host_of: Sequence[int]) -> Evidence:
    """What a group's collectives prove about the hosts of its members."""
    enters, leaves, together = _proving(log, group)
    entered = np.where(enters, group.enter_ns, -np.inf)
    left = np.where(leaves, group.end_ns, np.inf)
    member_hosts = np.array(host_of)[group.members]
    order = np.argsort(member_hosts, kind="stable")
    hosts, first = np.unique(member_hosts[order], return_index=True)
    stay = np.where(together, (group.end_ns - group.enter_ns).min(axis=1), np.inf)
    return Evidence(
        hosts,
        np.maximum.reduceat(entered[:, order], first, axis=1),
        np.minimum.reduceat(left[:, order], first, axis=1),
        stay,
        SLACK_NS.get(group.layer, SLACK_OTHERS_NS),
    )


def evidence_of_all(log: CollectiveLog, host_of: Sequence[int]) -> list[Evidence]:
    """What all collectives prove, group by group, of a large run block by block."""
    return list(in_threads(lambda at: evidence(log, log.groups[at], host_of), range(len(log.groups))))


def _proving(log: CollectiveLog, group: Matched) -> tuple[Array, Array, Array]:
    """Whose entering must be waited for, whose leaving waits, and which collectives all leave at about one time."""
    shape = group.enter_ns.shape
    enters, leaves = np.zeros(shape, bool), np.zeros(shape, bool)
    together = np.zeros(shape[0], bool)
    for code in np.unique(group.operation):
        operation = OPERATIONS[log.operations[code]]
        rows = np.flatnonzero(group.operation == code)
        enters[rows], leaves[rows] = _roles(operation, group, rows)
        # an operation of MPI in progress ends when somebody looks; Gloo tells the moment
        ended = ~group.progress[rows] | (group.layer == Layer.GLOO)
        together[rows] = ended & (operation.waits is Waits.ALL_FOR_ALL)
    return enters, leaves, together


def _roles(operation: Operation, group: Matched, rows: Array) -> tuple[Any, Any]:
    members = len(group.members)
    is_root = np.arange(members) == group.root[rows][:, None]
    moved = group.bytes[rows] > 0 if operation.proof is Proof.WITH_BYTES else np.True_
    if operation.proof is Proof.NEVER:
        return False, False
    if operation.waits is Waits.ALL_FOR_ALL:
        return moved, True
    if operation.waits is Waits.ALL_FOR_ROOT:
        return is_root, ~is_root & moved
    if operation.waits is Waits.ROOT_FOR_ALL:
        return ~is_root & moved, is_root
    # a prefix sum: of its pairs only those with the last member are of the simple form
    is_last = np.arange(members) == members - 1
    return moved & ~is_last, is_last


def apart(known: Sequence[Evidence], most_ns: float, share: float) -> list[int]:
    """Hosts whose own ranks contradict each other: several clocks under one name."""
    wrong: dict[int, int] = {}
    seen: dict[int, int] = {}
    for group_evidence in known:
        for column, host in enumerate(group_evidence.hosts.tolist()):
            gap = group_evidence.entered_ns[:, column] - group_evidence.left_ns[:, column]
            seen[host] = seen.get(host, 0) + int(np.isfinite(gap).sum())
            wrong[host] = wrong.get(host, 0) + int((np.isfinite(gap) & (gap > most_ns)).sum())
    return [host for host, count in wrong.items() if count > share * seen[host]]


# ---------------------------------------------------------------- clock offsets
CONTRADICTION_NS = 100_000.0  # ranks of one host that miss each other by more have different clocks,
CONTRADICTIONS = 0.02  # if that happens in more than this share of their collectives


@dataclass(slots=True)
class HostClock:
    """One clock: how to get from it to the reference's."""

    name: str
    ranks: list[int]
    parts: list[ClockSpan] = field(default_factory=list)  # to the clock it was compared with; none for the reference
    compared_with: HostClock | None = None
    known: bool = False

    @property
    def is_straight(self) -> bool:
        """Whether one line leads from it to the reference itself."""
        if len(self.parts) != 1 or self.compared_with is None or not self.compared_with.is_reference:
            return False
        return self.parts[0].to_ns > self.parts[0].from_ns

    @property
    def is_reference(self) -> bool:
        return self.known and self.compared_with is None

    def to_reference(self, time_ns: Any) -> tuple[Any, Any]:
        """Times of this clock as the reference would show them, and the error of each."""
        if self.compared_with is None:
            return time_ns, np.zeros_like(time_ns) if self.known else np.full_like(time_ns, np.inf)
        edges = [part.from_ns for part in self.parts[1:]]
        which = np.searchsorted(edges, time_ns, side="right")
        moved, error = np.empty_like(time_ns), np.empty_like(time_ns)
        for number, part in enumerate(self.parts):
            here = which == number
            moved[here] = time_ns[here] + part.offset(time_ns[here])
            error[here] = part.error(time_ns[here])
        beyond, more = self.compared_with.to_reference(moved)
        return beyond, error + more


@dataclass(slots=True)
class Clocks:
    """The clocks of a run; the first is the reference."""

    clocks: list[HostClock]
    of_rank: list[int]  # places in clocks, by place in Log.ranks
    split_hosts: list[str] = field(default_factory=list)  # hosts whose ranks do not share a clock

    def corrected(self, group: Matched) -> tuple[Array, Array, Array]:
        """Entering and leaving of a group's collectives on the reference's clock, and the error of each entering."""
        member_hosts = np.array(self.of_rank)[group.members]
        if (member_hosts == 0).all():
            return group.enter_ns, group.end_ns, np.zeros((1, len(member_hosts)))
        enter = self.on_reference(group.members, group.enter_ns)
        error = np.empty_like(enter)
        straight = self._straight(member_hosts)
        if straight.any():
            parts = [self.clocks[place].parts[0] for place in member_hosts[straight].tolist()]
            error[:, straight] = straight_error(group.enter_ns[:, straight], parts)
        for place in np.unique(member_hosts[~straight]):
            columns = np.flatnonzero(member_hosts == place)
            error[:, columns] = self.clocks[place].to_reference(group.enter_ns[:, columns])[1]
        # a stay has no clock but its own
        return enter, enter + (group.end_ns - group.enter_ns), error

    def on_reference(self, members: Array, time_ns: Array) -> Array:
        """Times of these ranks, a column each, on the reference's clock."""
        member_hosts = np.array(self.of_rank)[members]
        if (member_hosts == 0).all():
            return time_ns
        straight = self._straight(member_hosts)
        slope, height = np.zeros(len(member_hosts)), np.zeros(len(member_hosts))
        for column in np.flatnonzero(straight).tolist():
            part = self.clocks[member_hosts[column]].parts[0]
            slope[column], height[column] = part.slope, part.height
        reference_ns: Array = time_ns * slope
        reference_ns += height
        reference_ns += time_ns
        for place in np.unique(member_hosts[~straight]):
            columns = np.flatnonzero(member_hosts == place)
            reference_ns[:, columns] = self.clocks[place].to_reference(time_ns[:, columns])[0]
        return reference_ns

    def _straight(self, hosts: Array) -> Array:
        is_straight = np.array([clock.is_straight for clock in self.clocks])
        return is_straight[hosts]


def straight_error(time_ns: Array, parts: Sequence[ClockSpan]) -> Array:
    """As `Part.error` says it, of many clocks at once: a column of times for each."""
    begin, end = (np.array([getattr(part, name) for part in parts]) for name in ("from_ns", "to_ns"))
    first, half, last = np.stack([part.error_at for part in parts], axis=1)
    middle = (begin + end) / 2
    rising = (half - first) / (middle - begin) * (time_ns - begin) + first
    falling = (last - half) / (end - middle) * (time_ns - middle) + half
    error = np.where(time_ns < middle, np.where(time_ns <= begin, first, rising), falling)
    return np.where(time_ns >= end, last, error)


def clock_offsets(log: CollectiveLog) -> Clocks:
    """The clock of every host; ranks of one host share one unless their own collectives say otherwise."""
    clocks, all_evidence = _clocks_of(log)
    if len(clocks.clocks) < 2:
        return clocks
    all_evidence = [group for group in all_evidence if len(group.hosts) > 1]
    known = {0}
    while True:
        links = _links(all_evidence, known)
        fitted = in_threads(lambda link: fit(_pair(all_evidence, *link)), links)
        for (host, other), parts in zip(links, fitted, strict=True):
            clock = clocks.clocks[host]
            clock.parts = parts
            clock.compared_with, clock.known = (clocks.clocks[other], True) if clock.parts else (None, False)
        gained = {host for host, _ in links if clocks.clocks[host].known}
        if not gained:
            return clocks
        known |= gained


def _clocks_of(log: CollectiveLog) -> tuple[Clocks, list[Evidence]]:
    """The clocks, not compared yet, and what the collectives prove of them."""
    places = {host: at for at, host in enumerate(dict.fromkeys(log.hosts))}
    of_rank = [places[host] for host in log.hosts]
    all_evidence = evidence_of_all(log, of_rank)
    split = [list(places)[host] for host in apart(all_evidence, CONTRADICTION_NS, CONTRADICTIONS)]
    labels = [f"{host} rank {rank}" if host in split else host for host, rank in zip(log.hosts, log.ranks, strict=True)]
    ranks: dict[str, list[int]] = {}
    for label, rank in zip(labels, log.ranks, strict=True):
        ranks.setdefault(label, []).append(rank)
    clocks = [HostClock(label, members) for label, members in ranks.items()]
    if clocks:
        clocks[0].known = True
    places = {label: at for at, label in enumerate(ranks)}
    of_rank = [places[label] for label in labels]
    return Clocks(clocks, of_rank, split), evidence_of_all(log, of_rank) if split else all_evidence


def _links(all_evidence: list[Evidence], known: set[int]) -> list[tuple[int, int]]:
    """Hosts not known yet that share a group with a known one, each with the first such host."""
    links: dict[int, int] = {}
    for group in all_evidence:
        hosts = group.hosts.tolist()
        anchors = [host for host in hosts if host in known]
        for host in hosts:
            if anchors and host not in known:
                links[host] = min(links.get(host, anchors[0]), anchors[0])
    return list(links.items())


def _pair(all_evidence: list[Evidence], host: int, other: int) -> Pair:
    """Everything that is known of two hosts, from all groups that have members on both."""
    columns: list[tuple[Array, ...]] = []
    for group in all_evidence:
        at, to = np.flatnonzero(group.hosts == host), np.flatnonzero(group.hosts == other)
        if len(at) and len(to):
            slack = np.full(len(group.stay_ns), group.slack_ns)
            sides = (
                group.entered_ns[:, at[0]],
                group.left_ns[:, at[0]],
                group.entered_ns[:, to[0]],
                group.left_ns[:, to[0]],
            )
            columns.append((*sides, group.stay_ns, slack))
    pair = Pair(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))
    ceiling, floor = pair.ceiling()[1], pair.floor()[1]
    return pair.only(np.isfinite(ceiling) | np.isfinite(floor))
