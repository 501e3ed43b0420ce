"""How fast is each rank between two moments, and how much of that time does it wait, communicate and work?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from rankscope.model import Entered, Moment
from rankscope.questions.live.standing import Key, Standing, sides


@dataclass(slots=True)
class Pace:
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


def paces(before: Standing, now: Standing) -> dict[int, Pace]:
    """Every rank between two looks."""
    made = {rank: _pace(rank, before.ranks.get(rank), moment, now.is_gone(rank)) for rank, moment in now.ranks.items()}
    waited, inside, caused = _matched(now)
    whole = sum(caused.values())
    for rank, pace in made.items():
        if pace.communicating is not None and inside[rank] > 0:
            pace.waiting = pace.communicating * min(1.0, waited[rank] / inside[rank])
        if whole > 0 and not now.is_gone(rank):
            pace.waited_for = caused.get(rank, 0) / whole
    return made


def _pace(rank: int, earlier: Moment | None, moment: Moment, gone: bool) -> Pace:
    passed_ns = moment.read_ns - earlier.read_ns if earlier else 0
    if earlier is None or passed_ns <= 0 or gone:
        return Pace(rank)
    pace = Pace(rank, passed_ns / 1e9)
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
        (one.start_ns, one.end_ns if one.end_ns is not None else moment.read_ns)
        for one in moment.entered
        if one.group in beside
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
        for rank, one in members:  # plain comparisons: hundreds of thousands of records at each look
            end_ns = one.end_ns if one.end_ns is not None else now.ranks[rank].read_ns
            wait_ns = (arrived_ns if arrived_ns < end_ns else end_ns) - one.start_ns
            if wait_ns > 0:
                waited[rank] += wait_ns
                whole_ns += wait_ns
            if end_ns > one.start_ns:
                inside[rank] += end_ns - one.start_ns
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
    if any(one.end_ns is None for _, one in members) and len(sides(now, key)) > 1:
        return read_ns, []  # in different operations: they wait for each other
    rank, one = max(members, key=lambda member: member[1].start_ns)
    return one.start_ns, [rank]


def _by_collective(now: Standing) -> dict[Key, list[tuple[int, Entered]]]:
    found: dict[Key, list[tuple[int, Entered]]] = defaultdict(list)
    for rank, records in now.records.items():
        for key, one in records.items():
            found[key].append((rank, one))
    return {key: members for key, members in found.items() if key[0] in now.groups}


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
