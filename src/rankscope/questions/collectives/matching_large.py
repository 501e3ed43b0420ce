"""Which records of thousands of logs are one and the same collective? As matching.py, with the times left on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from rankscope.analyse.matching_plan import Agreed, Plan, Segment
from rankscope.analyse.threads import in_threads
from rankscope.model import Tables, Words
from rankscope.questions.collectives.matching import MEMBERS, WHO, Array, Group, Log, Matched, groups_of, operations_of
from rankscope.questions.disk_matrix import Scratch, Tiles

BEGUN = "SELECT started_ns FROM ranks WHERE role = 'rank' AND started_ns IS NOT NULL"

Part = Callable[[bool], Mapping[str, Any]]  # the records of some ranks as arrays; False: only of what they are


class Blocks(Sequence[Matched]):
    """The matched collectives of a large run, some at a time: read from the disk whenever they are asked for."""

    def __init__(self, log: Log, plans: Sequence[Plan]) -> None:
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

    def _matched(self, plan: Plan, number: int) -> Matched:
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


def _sizes(plan: Plan, number: int, rows: Array) -> Array:
    if "bytes" in plan.tiles:
        return _across(plan.tiles["bytes"], number, rows).astype(np.float64)
    assert plan.agreed is not None
    of_all = plan.agreed.lowest["bytes"][rows + plan.tiles["start_ns"].columns(number).start]
    return np.broadcast_to(of_all.astype(np.float64)[:, None], (len(rows), len(plan.group.places)))


def _across(tiles: Tiles, number: int, rows: Array) -> Array:
    """Collectives × members."""
    found = tiles.read(number).T
    return np.ascontiguousarray(found if len(rows) == len(found) else found[rows])


@dataclass(slots=True)
class _Matcher:
    log: Log
    groups: list[Group]
    of_label: Mapping[tuple[int, str], tuple[int, int]]
    plans: dict[int, Plan] = field(default_factory=dict)

    def look(self, part: Part) -> list[tuple[int, Array]]:
        """First pass: the numbers that each member has in each group."""
        return [(group, one.sequence) for group, segments in self._by_group(part(False)).items() for one in segments]

    def take(self, part: Part) -> dict[int, Agreed]:
        """Second pass: times to the disk; gives what the members in this part agree on."""
        records = part(True)
        ended = records["end_ns"] > records["start_ns"]  # nothing takes no time: its clock was not calibrated yet
        columns = {**records, "operation": operations_of(self.log, records), "ended": ended}
        made = {}
        for group, segments in self._by_group(records, columns["operation"]).items():
            if group in self.plans:
                made[group] = self.plans[group].agree(segments, columns)
                for name in ("start_ns", "end_ns"):
                    self.plans[group].put(name, segments, records[name])
        return made

    def take_bytes(self, part: Part) -> None:
        """Third pass, only where members of a group move different amounts."""
        records = part(True)
        for group, segments in self._by_group(records).items():
            if group in self.plans and "bytes" in self.plans[group].tiles:
                self.plans[group].put("bytes", segments, records["bytes"])

    def _by_group(self, records: Mapping[str, Any], operation: Array = None) -> dict[int, list[Segment]]:
        made: dict[int, list[Segment]] = {}
        for group, one in self._segments(records, operations_of(self.log, records) if operation is None else operation):
            made.setdefault(group, []).append(one)
        return made

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
    kept = np.flatnonzero(good)
    order = kept[np.argsort(key[kept], kind="stable")]
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else ():
        yield int(rows[0]), rows


def match_many(tables: Tables, parts: Sequence[Part]) -> Log:
    """The log of a run, matched over its ranks by group and sequence."""
    who = tables.query(WHO)
    log = Log([row[1] for row in who], [row[2] for row in who], [row[0] for row in who])
    if len(who) < 2:
        return log
    begun = [row[0] for row in tables.query(BEGUN)]
    log.base_ns = int(np.median(begun)) if begun else 0  # whatever the parts are: then the last digits are the same too
    place = {process: at for at, process in enumerate(log.processes)}
    matcher = _Matcher(log, *groups_of(tables.query(MEMBERS), place))
    _plan(matcher, parts)
    for found in in_threads(matcher.take, parts):
        for group, agreed in found.items():
            _add(matcher.plans[group], agreed)
    plans = [matcher.plans[number] for number in sorted(matcher.plans)]
    for plan in plans:
        plan.judge(log.left_out)
    plans = [plan for plan in plans if plan.good.any()]
    _settle_bytes(matcher, plans, parts)
    log.names, log.phases = (_words(plans, name) for name in ("name", "phase"))
    log.groups = Blocks(log, plans)
    return log


def _add(plan: Plan, agreed: Agreed) -> None:
    if plan.agreed is None:
        plan.agreed = agreed
    else:
        plan.agreed.add(agreed)


def _plan(matcher: _Matcher, parts: Sequence[Part]) -> None:
    """Which collectives each group has; groups that cannot be matched are counted and left out."""
    for found in in_threads(matcher.look, parts):
        for group, sequence in found:
            plan = matcher.plans.setdefault(group, Plan(matcher.groups[group], group))
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


def _settle_bytes(matcher: _Matcher, plans: Sequence[Plan], parts: Sequence[Part]) -> None:
    differ = [plan for plan in plans if plan.agreed is not None and (~plan.agreed.same("bytes") & plan.good).any()]
    for plan in differ:
        start = plan.tiles["start_ns"]
        plan.tiles["bytes"] = Tiles(start.scratch, start.members, start.width)
    if differ:
        for _ in in_threads(matcher.take_bytes, parts):
            pass


def _words(plans: Sequence[Plan], name: str) -> list[str]:
    found: dict[str, None] = {}
    for plan in plans:
        assert plan.agreed is not None
        assert plan.agreed.first is not None
        found |= dict.fromkeys(plan.agreed.first[name].values)
    return list(found)
