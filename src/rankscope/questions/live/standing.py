"""Where does every rank stand at one moment: in which collective, and who has not come to it?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rankscope.model.records import UNSIZED, Calling, Entered, Moment

GONE = ("exited", "signalled", "aborted", "vanished", "stopped", "replaced")
WORLD = "MPI_COMM_WORLD"
# Every member gives the same number of bytes; in the others each may have its own.
EQUAL_BYTES = ("MPI_Allreduce", "MPI_Bcast", "MPI_Reduce", "allreduce", "broadcast", "reduce", "all_reduce")

Key = tuple[str, int]  # identity of the group, sequence
Signature = tuple[str, int, int]  # operation, bytes where they must agree, root


@dataclass(slots=True)
class GroupNow:
    """One group: how many collectives each member has entered."""

    identity: str
    label: str
    size: int
    entered: dict[int, int]  # rank -> collectives entered so far
    guessed: bool = False
    unseen: int = 0  # members of which there is no trace, whoever they are


@dataclass(slots=True)
class Standing:
    """All ranks at one moment."""

    ranks: dict[int, Moment]
    missing: frozenset[int]  # expected, without a file
    groups: dict[str, GroupNow]
    under_way: dict[int, list[Entered]]  # what each rank has entered and not ended, oldest first
    records: dict[int, dict[Key, Entered]] = field(repr=False)
    launcher_runs: bool = False  # what started the ranks is there still
    held_by: dict[Key, list[int]] = field(init=False)  # collective -> ranks, in order
    by_place: dict[Key, int] = field(init=False)  # group and rank in it -> rank

    def __post_init__(self) -> None:
        self.held_by = defaultdict(list)
        self.by_place = {
            (group.identity, group.my_rank): rank
            for rank, moment in self.ranks.items()
            for group in moment.groups
            if group.my_rank is not None
        }
        for rank in sorted(self.under_way):
            record = self.inside(rank)
            if record is not None:
                self.held_by[key_of(record)].append(rank)

    def inside(self, rank: int) -> Entered | None:
        """What holds the rank: the call it is in, else the oldest nonblocking operation that does not end."""
        open_ones = self.under_way.get(rank, [])
        blocking = [record for record in open_ones if not record.nonblocking]
        return next(iter(blocking or open_ones), None)

    def calling(self, rank: int) -> Calling | None:
        """The call outside collectives that the rank has been waiting in longest."""
        calls = self.ranks[rank].calling if rank in self.ranks else []
        return min(calls, key=lambda record: record.since_ns, default=None)

    def peer(self, call: Calling) -> int | None:
        """The rank that a call names; None where it names none, or any."""
        if call.peer is None or call.peer < 0:
            return None
        if not call.group or (call.group in self.groups and self.groups[call.group].label == WORLD):
            return call.peer if call.group else None
        return self.by_place.get((call.group, call.peer))

    def last(self, rank: int) -> Entered | None:
        """The newest collective that the rank has ended."""
        ended = (
            [record for record in self.ranks[rank].entered if record.end_ns is not None] if rank in self.ranks else []
        )
        return max(ended, key=lambda record: record.end_ns or 0) if ended else None

    def is_gone(self, rank: int) -> bool:
        return rank in self.ranks and self.ranks[rank].facts.ending in GONE

    def is_finalizing(self, rank: int) -> bool:
        return rank in self.ranks and bool(self.ranks[rank].facts.finalized)

    def absent(self, key: Key) -> list[int]:
        """Members that have not entered this collective."""
        group, sequence = self.groups[key[0]], key[1]
        return sorted(rank for rank, entered in group.entered.items() if entered < sequence)

    def held(self, key: Key) -> list[int]:
        """Ranks that are in this collective and cannot go on."""
        return self.held_by.get(key, [])


def key_of(entered: Entered) -> Key:
    return entered.group, entered.sequence


def operation(name: str) -> str:
    """The large-count twin and the nonblocking form are no other operation to look at, but no match in MPI either."""
    return name.removesuffix("_c")


def signature(entered: Entered) -> Signature:
    """What the members of a group must agree on at one sequence number."""
    name = operation(entered.name)
    sized = name.rpartition(":")[2] in EQUAL_BYTES
    return name, entered.bytes if sized else -1, entered.root


def sides(now: Standing, key: Key) -> dict[Signature, list[int]]:
    """The members that entered this collective, by what they entered as."""
    records = {rank: now.records[rank][key] for rank in now.groups[key[0]].entered if key in now.records.get(rank, {})}
    # between two groups the side of the root has no number for it and the others bring no bytes: names only
    two_sided = len({record.root < 0 for record in records.values()}) > 1
    by_side: dict[Signature, list[int]] = defaultdict(list)
    for rank in sorted(records, key=lambda rank: (records[rank].bytes == UNSIZED, rank)):
        by_side[(operation(records[rank].name), -1, -1) if two_sided else _side(by_side, records[rank])].append(rank)
    return {side: sorted(ranks) for side, ranks in by_side.items()}


def _side(so_far: Iterable[Signature], entered: Entered) -> Signature:
    """One whose bytes are not known yet differs from nobody in them."""
    own_signature = signature(entered)
    alike = (side for side in so_far if (side[0], side[2]) == (own_signature[0], own_signature[2]))
    return next(alike, own_signature) if entered.bytes == UNSIZED else own_signature


def standing(moments: Sequence[Moment], expected: int | None = None, launcher_runs: bool = False) -> Standing:
    """The picture that the files of all ranks give together."""
    ranks = {moment.facts.rank: moment for moment in moments if moment.facts.rank is not None}
    sizes = [moment.facts.world_size for moment in ranks.values() if moment.facts.world_size]
    promised = max([expected or 0, *sizes]) if ranks else 0
    missing = frozenset(range(min(promised, 1 << 20))) - ranks.keys()
    records = {rank: {key_of(record): record for record in moment.entered} for rank, moment in ranks.items()}
    under_way = {rank: _under_way(moment) for rank, moment in ranks.items()}
    open_ones = {rank: entered for rank, entered in under_way.items() if entered}
    return Standing(ranks, missing, _groups(ranks, missing), open_ones, records, launcher_runs)


def _under_way(moment: Moment) -> list[Entered]:
    return [record for record in moment.entered if record.end_ns is None and record.group]


def _groups(ranks: dict[int, Moment], missing: frozenset[int]) -> dict[str, GroupNow]:
    groups: dict[str, GroupNow] = {}
    for rank, moment in ranks.items():
        for group_seen in moment.groups:
            if (group_seen.size or 0) < 2:
                continue
            group = groups.setdefault(
                group_seen.identity,
                GroupNow(group_seen.identity, group_seen.name, group_seen.size or 0, {}, group_seen.guessed),
            )
            group.entered[rank] = max(group_seen.collectives, group.entered.get(rank, 0))
    for group in groups.values():
        # a group that holds everybody has members that have not even used it yet
        if group.label == WORLD or group.size == len(ranks) + len(missing):
            group.entered = {**dict.fromkeys([*ranks, *missing], 0), **group.entered}
        group.unseen = max(0, group.size - len(group.entered))
    return groups


# ---------------------------------------------------------------------------------------------------------------------
# How fast is each rank between two moments, and how much of that time does it wait, communicate and work?
@dataclass(slots=True)
class RankPace:
    """One rank since the last look."""

    rank: int
    seconds: float = 0.0
    steps_per_s: float | None = None
    collectives_per_s: float | None = None
    communicating: float | None = None  # share of the time inside calls that communicate
    waiting: float | None = None  # share of the time, part of the former: before the last member had come
    cpu: float | None = None
    waited_for: float | None = None  # share of what all ranks waited in the newest collectives, caused by this one

    @property
    def transferring(self) -> float | None:
        if self.communicating is None or self.waiting is None:
            return None
        return max(0.0, self.communicating - self.waiting)

    @property
    def outside(self) -> float | None:
        return None if self.communicating is None else 1.0 - self.communicating


def paces(before: Standing, now: Standing) -> dict[int, RankPace]:
    """Every rank between two readings."""
    by_rank = {
        rank: _pace(rank, before.ranks.get(rank), moment, now.is_gone(rank)) for rank, moment in now.ranks.items()
    }
    waited, inside, caused = _matched(now)
    total_ns = sum(caused.values())
    for rank, pace in by_rank.items():
        if pace.communicating is not None and inside[rank] > 0:
            pace.waiting = pace.communicating * min(1.0, waited[rank] / inside[rank])
        if total_ns > 0 and not now.is_gone(rank):
            pace.waited_for = caused.get(rank, 0) / total_ns
    return by_rank


def _pace(rank: int, earlier: Moment | None, moment: Moment, gone: bool) -> RankPace:
    passed_ns = moment.read_ns - earlier.read_ns if earlier else 0
    if earlier is None or passed_ns <= 0 or gone:
        return RankPace(rank)
    pace = RankPace(rank, passed_ns / 1e9)
    if moment.steps is not None:
        pace.steps_per_s = max(0, moment.steps - (earlier.steps or 0)) / pace.seconds
    entered = sum(group.collectives for group in moment.groups) - sum(group.collectives for group in earlier.groups)
    pace.collectives_per_s = max(0, entered) / pace.seconds
    share = (moment.communication_ns - earlier.communication_ns) / passed_ns
    pace.communicating = min(1.0, max(0.0, share + _asynchronous_share(earlier, moment, bool(pace.steps_per_s))))
    if moment.state and moment.cpu_ns is not None and earlier.cpu_ns is not None:
        pace.cpu = max(0, moment.cpu_ns - earlier.cpu_ns) / passed_ns
    return pace


def _asynchronous_share(earlier: Moment, moment: Moment, stepped: bool) -> float:
    """Process groups run their collectives beside the program: the steps know how long it was blocked by them.

    Without a step in between, it is the time in which one was under way: at most so long was it blocked."""
    if stepped and "blocked" in moment.step_shares:
        return moment.step_shares["blocked"]
    beside = {group.identity for group in moment.groups if group.kind == "process_group"}
    if not beside:
        return 0.0
    spans = sorted(
        (record.start_ns, record.end_ns if record.end_ns is not None else moment.read_ns)
        for record in moment.entered
        if record.group in beside
    )
    if not spans:
        return 0.0
    # the newest records may not reach back to the look before
    reached_ns = begin_ns = max(earlier.read_ns, spans[0][0] if earlier.entered else earlier.read_ns)
    covered_ns = 0
    for start_ns, end_ns in spans:
        covered_ns += max(0, end_ns - max(start_ns, reached_ns))
        reached_ns = max(reached_ns, end_ns)
    return covered_ns / max(1, moment.read_ns - begin_ns)


def _matched(now: Standing) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Of the newest collectives: ns waited, ns inside, and ns the others waited for it, by rank."""
    waited: dict[int, int] = defaultdict(int)
    inside: dict[int, int] = defaultdict(int)
    caused: dict[int, int] = defaultdict(int)
    for key, members in _by_collective(now).items():
        arrived_ns, last = _arrival(now, key, members)
        if arrived_ns is None:
            continue
        whole_ns = 0
        for rank, record in members:  # plain comparisons: hundreds of thousands of records at each look
            end_ns = record.end_ns if record.end_ns is not None else now.ranks[rank].read_ns
            wait_ns = (arrived_ns if arrived_ns < end_ns else end_ns) - record.start_ns
            if wait_ns > 0:
                waited[rank] += wait_ns
                whole_ns += wait_ns
            if end_ns > record.start_ns:
                inside[rank] += end_ns - record.start_ns
        for late in last:
            caused[late] += whole_ns // len(last)
    return waited, inside, caused


def _arrival(now: Standing, key: Key, members: list[tuple[int, Entered]]) -> tuple[int | None, list[int]]:
    """When the last member came to a collective and who that was; nobody knows once the others' records are gone."""
    absent = now.absent(key)
    read_ns = max(now.ranks[rank].read_ns for rank, _ in members)
    if absent:
        return read_ns, absent
    if len(members) < now.groups[key[0]].size:
        return None, []
    if any(record.end_ns is None for _, record in members) and len(sides(now, key)) > 1:
        return read_ns, []  # in different operations: they wait for each other
    rank, record = max(members, key=lambda member: member[1].start_ns)
    return record.start_ns, [rank]


def _by_collective(now: Standing) -> dict[Key, list[tuple[int, Entered]]]:
    by_collective: dict[Key, list[tuple[int, Entered]]] = defaultdict(list)
    for rank, records in now.records.items():
        for key, record in records.items():
            by_collective[key].append((rank, record))
    return {key: members for key, members in by_collective.items() if key[0] in now.groups}


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
