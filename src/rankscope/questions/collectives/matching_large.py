"""Which records of thousands of logs are one and the same collective? As matching.py, with the times left on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from rankscope.model.tables import Tables, Words
from rankscope.questions.collectives.matching import (
    DISAGREE,
    MEMBERS,
    NO_ROOT,
    NOT_ALL,
    ROOTED,
    TWICE,
    UNENDED,
    WHO,
    Array,
    CollectiveLog,
    Matched,
    MatchedGroup,
    groups_of,
    operations_of,
)
from rankscope.questions.disk_matrix import Scratch, Tiles, in_threads

# ---------------------------------------------------------------------------------------------------------------------
# One group of a large run: which collectives its members have, and what they agree on, member by member.
LARGE = 2**62


@dataclass(slots=True)
class Segment:
    """The records of one member in one group, by sequence."""

    slot: int
    rows: Any  # places in the part: a slice where they follow each other
    sequence: Array
    layer: str


@dataclass(slots=True)
class Agreed:
    """Of each collective of a group, over some of its members: K values."""

    count: Array  # records
    twice: Array  # a member has it twice
    ended: Array  # by all of them
    progress: Array  # of any of them
    lowest: dict[str, Array]  # operation, root, bytes
    highest: dict[str, Array]
    first: dict[str, Words] | None = None  # name and phase as the first member has them
    layer: str = ""

    @classmethod
    def nothing(cls, collectives: int) -> Agreed:
        def of(value: int) -> dict[str, Array]:
            return {name: np.full(collectives, value, np.int64) for name in ("operation", "root", "bytes")}

        no, yes = np.zeros(collectives, bool), np.ones(collectives, bool)
        return cls(np.zeros(collectives, np.int32), no, yes, no.copy(), of(LARGE), of(-LARGE))

    def add(self, other: Agreed) -> None:
        """Those of more members."""
        self.count += other.count
        self.twice |= other.twice
        self.ended &= other.ended
        self.progress |= other.progress
        for name, values in other.lowest.items():
            np.minimum(self.lowest[name], values, out=self.lowest[name])
            np.maximum(self.highest[name], other.highest[name], out=self.highest[name])
        if other.first is not None:
            self.first, self.layer = other.first, other.layer

    def take(self, at: Any, rows: Any, columns: Mapping[str, Array]) -> None:
        """The records of one member, at their places."""
        self.count[at] += 1
        self.ended[at] &= columns["ended"][rows]
        self.progress[at] |= columns["progress"][rows]
        for name, values in self.lowest.items():
            segment_values = columns[name][rows]
            values[at] = np.minimum(values[at], segment_values)
            self.highest[name][at] = np.maximum(self.highest[name][at], segment_values)

    def same(self, name: str) -> Array:
        return self.lowest[name] == self.highest[name]


@dataclass(slots=True)
class MatchingPlan:
    """One group: the numbers of its collectives, and where their times are."""

    group: MatchedGroup
    number: int
    spans: set[tuple[int, int]] = field(default_factory=set)  # first and last of members without a gap
    others: list[Array] = field(default_factory=list)
    sequences: Array = None
    agreed: Agreed | None = None
    tiles: dict[str, Tiles] = field(default_factory=dict)  # start_ns, end_ns; bytes only where members differ
    good: Array = None  # which collectives are matched

    def note(self, sequence: Array) -> None:
        """One more member's numbers."""
        first, last = int(sequence[0]), int(sequence[-1])
        if last - first + 1 == len(sequence) and bool((np.diff(sequence) == 1).all()):
            self.spans.add((first, last))
        else:
            self.others.append(np.unique(sequence))

    def settle(self) -> None:
        """All members have told theirs."""
        spans = [np.arange(first, last + 1) for first, last in _joined(self.spans)]
        self.sequences = np.unique(np.concatenate([*spans, *self.others]))

    def places(self, sequence: Array) -> Any:
        """The place of each collective among all of the group: as a slice where they follow each other."""
        first, last = int(self.sequences[0]), int(self.sequences[-1])
        if last - first + 1 != len(self.sequences):
            return np.searchsorted(self.sequences, sequence)
        if len(sequence) and int(sequence[-1]) - int(sequence[0]) + 1 == len(sequence):
            if bool((np.diff(sequence) == 1).all()):
                return slice(int(sequence[0]) - first, int(sequence[-1]) - first + 1)
        return sequence - first

    def agree(self, segments: Iterable[Segment], columns: Mapping[str, Any]) -> Agreed:
        """What these members have in common."""
        agreed = Agreed.nothing(len(self.sequences))
        for segment in segments:
            again = np.flatnonzero(np.diff(segment.sequence) == 0)
            agreed.take(self.places(segment.sequence), segment.rows, columns)
            if len(again):
                agreed.twice[self.places(segment.sequence[again])] = True
            if segment.slot == 0:
                agreed.first = {name: self._first(segment, columns[name]) for name in ("name", "phase")}
                agreed.layer = segment.layer
        return agreed

    def _first(self, segment: Segment, words: Words) -> Words:
        codes = np.zeros(len(self.sequences), np.int64)
        codes[self.places(segment.sequence)] = words.codes[segment.rows]
        return Words(codes, words.values)

    def put(self, name: str, segments: Iterable[Segment], values: Array) -> None:
        """Members that follow each other are written together."""
        ordered = sorted(segments, key=lambda segment: segment.slot)
        edges = [at for at in range(1, len(ordered)) if ordered[at].slot != ordered[at - 1].slot + 1]
        for first, last in zip([0, *edges], [*edges, len(ordered)], strict=True):
            rows = np.zeros((last - first, len(self.sequences)), np.int64)
            for row, segment in zip(rows, ordered[first:last], strict=True):
                row[self.places(segment.sequence)] = values[segment.rows]
            self.tiles[name].write(ordered[first].slot, rows)

    def judge(self, left_out: Counter[str]) -> None:
        """Which collectives every member has, ended and agrees on; the others are counted by the reason."""
        assert self.agreed is not None
        agreed, members = self.agreed, len(self.group.places)
        complete = (agreed.count == members) & ~agreed.twice
        same = agreed.same("operation") & agreed.same("root")
        left_out[TWICE] += int(np.count_nonzero(agreed.twice))
        left_out[NOT_ALL] += int(np.count_nonzero(~complete & ~agreed.twice))
        left_out[DISAGREE] += int(np.count_nonzero(complete & ~same))
        left_out[UNENDED] += int(np.count_nonzero(complete & same & ~agreed.ended))
        root, operation = agreed.lowest["root"], np.where(complete, agreed.lowest["operation"], 0)
        has_root = (root < members) & (~ROOTED[operation] | (root >= 0))
        left_out[NO_ROOT] += int(np.count_nonzero(complete & same & agreed.ended & ~has_root))
        self.good = complete & same & agreed.ended & has_root


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same without what lies in another: of thousands of members each may begin one record later."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


# ---------------------------------------------------------------- matching large
BEGUN = "SELECT started_ns FROM ranks WHERE role = 'rank' AND started_ns IS NOT NULL"

Part = Callable[[bool], Mapping[str, Any]]  # the records of some ranks as arrays; False: only of what they are


class Blocks(Sequence[Matched]):
    """The matched collectives of a large run, some at a time: read from the disk whenever they are asked for."""

    def __init__(self, log: CollectiveLog, plans: Sequence[MatchingPlan]) -> None:
        self._base_ns = log.base_ns
        self._words = {"name": list(log.names), "phase": list(log.phases)}
        self._blocks = [
            (plan, number)
            for plan in plans
            for number in range(len(plan.tiles["start_ns"]))
            if plan.good[plan.tiles["start_ns"].columns(number)].any()
        ]
        self.collectives = sum(int(plan.good.sum()) for plan in plans)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, at: Any) -> Any:
        return self._matched(*self._blocks[at])

    def _matched(self, plan: MatchingPlan, number: int) -> Matched:
        columns = plan.tiles["start_ns"].columns(number)
        rows = np.flatnonzero(plan.good[columns])
        agreed = plan.agreed
        assert agreed is not None
        assert agreed.first is not None
        at = rows + columns.start
        return Matched(
            label=plan.group.label,
            layer=agreed.layer,
            members=np.array(plan.group.places),
            sequence=plan.sequences[at],
            operation=agreed.lowest["operation"][at],
            root=agreed.lowest["root"][at],
            progress=agreed.progress[at],
            name=self._codes("name", agreed.first["name"])[at],
            phase=self._codes("phase", agreed.first["phase"])[at],
            enter_ns=self._since(plan.tiles["start_ns"], number, rows),
            end_ns=self._since(plan.tiles["end_ns"], number, rows),
            bytes=_sizes(plan, number, rows),
            number=plan.number,
        )

    def _since(self, tiles: Tiles, number: int, rows: Array) -> Array:
        return (_across(tiles, number, rows) - self._base_ns).astype(np.float64)

    def _codes(self, name: str, words: Words) -> Array:
        """In the words of the run."""
        places = {word: at for at, word in enumerate(self._words[name])}
        return np.array([places[word] for word in words.values], np.int64)[words.codes]


def _sizes(plan: MatchingPlan, number: int, rows: Array) -> Array:
    if "bytes" in plan.tiles:
        return _across(plan.tiles["bytes"], number, rows).astype(np.float64)
    assert plan.agreed is not None
    of_all = plan.agreed.lowest["bytes"][rows + plan.tiles["start_ns"].columns(number).start]
    return np.broadcast_to(of_all.astype(np.float64)[:, None], (len(rows), len(plan.group.places)))


def _across(tiles: Tiles, number: int, rows: Array) -> Array:
    """Collectives × members."""
    block = tiles.read(number).T
    return np.ascontiguousarray(block if len(rows) == len(block) else block[rows])


@dataclass(slots=True)
class _Matcher:
    log: CollectiveLog
    groups: list[MatchedGroup]
    of_label: Mapping[tuple[int, str], tuple[int, int]]
    plans: dict[int, MatchingPlan] = field(default_factory=dict)

    def look(self, part: Part) -> list[tuple[int, Array]]:
        """First pass: the numbers that each member has in each group."""
        return [
            (group, segment.sequence) for group, segments in self._by_group(part(False)).items() for segment in segments
        ]

    def take(self, part: Part) -> dict[int, Agreed]:
        """Second pass: times to the disk; gives what the members in this part agree on."""
        records = part(True)
        ended = records["end_ns"] > records["start_ns"]  # nothing takes no time: its clock was not calibrated yet
        columns = {**records, "operation": operations_of(self.log, records), "ended": ended}
        agreed = {}
        for group, segments in self._by_group(records, columns["operation"]).items():
            if group in self.plans:
                agreed[group] = self.plans[group].agree(segments, columns)
                for name in ("start_ns", "end_ns"):
                    self.plans[group].put(name, segments, records[name])
        return agreed

    def take_bytes(self, part: Part) -> None:
        """Third pass, only where members of a group move different amounts."""
        records = part(True)
        for group, segments in self._by_group(records).items():
            if group in self.plans and "bytes" in self.plans[group].tiles:
                self.plans[group].put("bytes", segments, records["bytes"])

    def _by_group(self, records: Mapping[str, Any], operation: Array = None) -> dict[int, list[Segment]]:
        segments: dict[int, list[Segment]] = {}
        for group, segment in self._segments(
            records, operations_of(self.log, records) if operation is None else operation
        ):
            segments.setdefault(group, []).append(segment)
        return segments

    def _segments(self, records: Mapping[str, Any], operation: Array) -> Iterator[tuple[int, Segment]]:
        label, layer, process, sequence = (records[name] for name in ("group", "layer", "process", "sequence"))
        for first, rows in _runs(process, label, (operation >= 0) & (sequence > 0)):
            group, slot = self.of_label.get((int(process[first]), label.values[label.codes[first]]), (-1, -1))
            if slot < 0:
                continue
            numbers = sequence[rows]
            if (np.diff(numbers) < 0).any():
                again = np.argsort(numbers, kind="stable")
                rows = np.arange(rows.start, rows.stop)[again] if isinstance(rows, slice) else rows[again]
                numbers = numbers[again]
            yield group, Segment(slot, rows, numbers, layer.values[layer.codes[first]])


def _runs(process: Array, label: Words, good: Array) -> Iterator[tuple[int, Any]]:
    """The good rows of each process and group, and the first of them: as slices where they lie together."""
    key = process.astype(np.int64) * len(label.values) + label.codes
    step = np.diff(key)
    if good.all() and (step >= 0).all():
        edges = [0, *(np.flatnonzero(step) + 1).tolist(), len(key)] if len(key) else [0]
        yield from ((first, slice(first, last)) for first, last in pairwise(edges))
        return
    chosen = np.flatnonzero(good)
    order = chosen[np.argsort(key[chosen], kind="stable")]
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else ():
        yield int(rows[0]), rows


def match_many(tables: Tables, parts: Sequence[Part]) -> CollectiveLog:
    """The log of a run, matched over its ranks by group and sequence."""
    who = tables.query(WHO)
    log = CollectiveLog([row[1] for row in who], [row[2] for row in who], [row[0] for row in who])
    if len(who) < 2:
        return log
    begun = [row[0] for row in tables.query(BEGUN)]
    log.base_ns = int(np.median(begun)) if begun else 0  # whatever the parts are: then the last digits are the same too
    place = {process: at for at, process in enumerate(log.processes)}
    matcher = _Matcher(log, *groups_of(tables.query(MEMBERS), place))
    _plan(matcher, parts)
    for agreed_by_group in in_threads(matcher.take, parts):
        for group, agreed in agreed_by_group.items():
            _add(matcher.plans[group], agreed)
    plans = [matcher.plans[number] for number in sorted(matcher.plans)]
    for plan in plans:
        plan.judge(log.left_out)
    plans = [plan for plan in plans if plan.good.any()]
    _settle_bytes(matcher, plans, parts)
    log.names, log.phases = (_words(plans, name) for name in ("name", "phase"))
    log.groups = Blocks(log, plans)
    return log


def _add(plan: MatchingPlan, agreed: Agreed) -> None:
    if plan.agreed is None:
        plan.agreed = agreed
    else:
        plan.agreed.add(agreed)


def _plan(matcher: _Matcher, parts: Sequence[Part]) -> None:
    """Which collectives each group has; groups that cannot be matched are counted and left out."""
    for sequences in in_threads(matcher.look, parts):
        for group, sequence in sequences:
            plan = matcher.plans.setdefault(group, MatchingPlan(matcher.groups[group], group))
            plan.note(sequence)
    scratch = Scratch()
    for number, plan in list(matcher.plans.items()):
        plan.settle()
        if plan.group.fault:
            matcher.log.left_out[plan.group.fault] += len(plan.sequences)
            del matcher.plans[number]
        else:
            shape = len(plan.group.places), len(plan.sequences)
            plan.tiles = {name: Tiles(scratch, *shape) for name in ("start_ns", "end_ns")}


def _settle_bytes(matcher: _Matcher, plans: Sequence[MatchingPlan], parts: Sequence[Part]) -> None:
    differ = [plan for plan in plans if plan.agreed is not None and (~plan.agreed.same("bytes") & plan.good).any()]
    for plan in differ:
        start = plan.tiles["start_ns"]
        plan.tiles["bytes"] = Tiles(start.scratch, start.members, start.width)
    if differ:
        for _ in in_threads(matcher.take_bytes, parts):
            pass


def _words(plans: Sequence[MatchingPlan], name: str) -> list[str]:
    words: dict[str, None] = {}
    for plan in plans:
        assert plan.agreed is not None
        assert plan.agreed.first is not None
        words |= dict.fromkeys(plan.agreed.first[name].values)
    return list(words)
