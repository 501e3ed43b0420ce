"""Which records of the ranks' logs are one and the same collective?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rankscope.model.records import COLLECTIVE_LAYERS
from rankscope.model.tables import Tables, sql_list
from rankscope.questions.collectives.operations import OPERATIONS, Waits, operation_of

NOT_ALL = "not in the log of every member (overwritten, paused, or a member was killed)"
UNENDED = "without an end, or without times, on some member"
DISAGREE = "members called different operations or named different roots"
NO_ROOT = "whose root is not known"
TWICE = "numbered twice by one member"
ABSENT = "on groups with a member that left no file"
GUESSED = "on communicators whose identity is a guess or not unique"
UNEVEN = "without sequence numbers, and with different counts on the members"
NO_GROUP = "whose group the trace does not name"
UNNUMBERED = -1  # other tools' files may have no sequence numbers: then the order counts
MEMBERS = """
    SELECT g.process, g.name, g.kind, g.identity, g.size, g.my_rank, g.guessed, r.rank
    FROM groups AS g JOIN ranks AS r USING (process) WHERE role = 'rank' AND g.identity <> ''
    ORDER BY g.kind, g.identity, g.my_rank NULLS LAST, r.rank"""
RECORDS = f"""
    SELECT process, layer, name, "group", coalesce(sequence, {UNNUMBERED}) AS sequence, start_ns,
        coalesce(end_ns, -1) AS end_ns,
        coalesce(bytes, 0) AS bytes, coalesce(root, -1) AS root, untraced_events.phase,
        call_ns IS NOT NULL OR (tool <> '' AND correlation IS NULL) AS progress,
        CASE WHEN layer = 'mpi' AND tool = '' THEN coalesce(call_ns, end_ns - start_ns, 0) ELSE -1 END AS stood_ns
    FROM untraced_events JOIN ranks USING (process)
    WHERE role = 'rank' AND layer IN {sql_list(COLLECTIVE_LAYERS)}
        AND (sequence > 0 OR (sequence IS NULL AND tool <> ''))"""
WHO = "SELECT process, rank, host FROM ranks WHERE role = 'rank' ORDER BY rank"

ROOTED = np.array([operation.waits in (Waits.ALL_FOR_ROOT, Waits.ROOT_FOR_ALL) for operation in OPERATIONS.values()])

Array = Any  # of numpy, of the shape that the comment says


@dataclass(slots=True)
class Matched:
    """The collectives of one group, each with a record of every member: K collectives of M members."""

    label: str
    layer: str
    members: Array  # M: places in Log.ranks, in the order of the group
    sequence: Array  # K
    operation: Array  # K: places in Log.operations
    root: Array  # K: place among the members, -1 where there is none
    progress: Array  # K: whether any member's end is that of an operation in progress, not of a blocking call
    name: Array  # K: places in Log.names
    phase: Array  # K: places in Log.phases: that of the first member
    enter_ns: Array  # K x M, since Log.base_ns, on each member's own clock
    end_ns: Array  # K x M
    bytes: Array  # K x M
    number: int = 0  # of the group: in a large run its collectives come in several blocks
    stood_ns: Array | None = None  # K x M, of MPI only: time in the calls that issue it and wait for it


@dataclass(slots=True)
class CollectiveLog:
    """All matched collectives of a run, and what could not be matched."""

    ranks: list[int]
    hosts: list[str]  # of each rank
    processes: list[int]
    base_ns: int = 0
    groups: Sequence[Matched] = field(default_factory=list)
    names: Sequence[str] = ()
    phases: Sequence[str] = ()
    operations: Sequence[str] = tuple(OPERATIONS)
    left_out: Counter[str] = field(default_factory=Counter)  # collectives, by the reason
    by_order: int = 0  # of the matched ones: those that have no sequence number, matched by group and order
    steps: Any = None  # step_times.StepTimes, once somebody asked; () where there are none

    @property
    def collectives(self) -> int:
        count: int | None = getattr(self.groups, "collectives", None)  # where looking at each would take long
        return sum(len(group.sequence) for group in self.groups) if count is None else count


@dataclass(slots=True)
class MatchedGroup:
    """A communicator: who is in it."""

    label: str
    places: list[int]  # of its members in Log.ranks
    size: int
    fault: str = ""  # why its collectives cannot be matched


def match(tables: Tables) -> CollectiveLog:
    """The log of a run, matched over its ranks by group and sequence."""
    who = tables.query(WHO)
    log = CollectiveLog([row[1] for row in who], [row[2] for row in who], [row[0] for row in who])
    if len(who) < 2:
        return log
    place = {process: at for at, process in enumerate(log.processes)}
    groups, of_label = groups_of(tables.query(MEMBERS), place)
    records = tables.columns(RECORDS)
    if groups and len(records["sequence"]):
        _match_records(log, groups, of_label, records)
    return log


def groups_of(rows: Sequence[Any], place: Mapping[int, int]) -> tuple[list[MatchedGroup], dict[tuple[int, str], Any]]:
    """The groups of more than one member, and for each process and label the group and the place in it."""
    by_group: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        by_group.setdefault((row[2], row[3]), []).append(row)
    groups: list[MatchedGroup] = []
    of_label: dict[tuple[int, str], Any] = {}
    for members in by_group.values():
        size = max((row[4] or 0 for row in members), default=0) or len(members)
        if size < 2:
            continue
        groups.append(MatchedGroup(members[0][1], [place[row[0]] for row in members], size, _fault(members, size)))
        for at, row in enumerate(members):
            twice = (row[0], row[1]) in of_label
            of_label[row[0], row[1]] = (len(groups) - 1, -1 if twice else at)
    return groups, of_label


def _fault(members: Sequence[Any], size: int) -> str:
    own_ranks = [row[5] for row in members if row[5] is not None]
    distinct = len({row[0] for row in members}) == len(members) and len(set(own_ranks)) == len(own_ranks)
    if any(row[6] for row in members) or not distinct or len(members) > size:
        return GUESSED
    return ABSENT if len(members) < size else ""


def _match_records(
    log: CollectiveLog, groups: list[MatchedGroup], of_label: Mapping[Any, Any], records: Mapping[str, Any]
) -> None:
    labels = {label: code for code, label in enumerate(records["group"].values)}
    highest = max(max(log.processes), int(records["process"].max())) + 1
    group_of = np.full((highest, len(labels)), -1, np.int32)
    slot_of = np.full((highest, len(labels)), -1, np.int32)
    for (process, label), (group, slot) in of_label.items():
        if label in labels:
            group_of[process, labels[label]], slot_of[process, labels[label]] = group, slot
    where = records["process"], records["group"].codes
    group, slot, operation = group_of[where], slot_of[where], operations_of(log, records)
    records, unnumbered = _numbered(records, operation)
    if unnamed := int(np.count_nonzero(unnumbered & (group < 0) & (operation >= 0))):
        log.left_out[NO_GROUP] += unnamed
    usable = np.flatnonzero((group >= 0) & (slot >= 0) & (operation >= 0))
    order = usable[np.lexsort((slot[usable], records["sequence"][usable], group[usable]))]
    log.base_ns = int(np.median(records["start_ns"][order])) if len(order) else 0  # a damaged time must not be it
    log.names, log.phases = records["name"].values, records["phase"].values
    edges = np.searchsorted(group[order], np.arange(len(groups) + 1))
    for number, candidate in enumerate(groups):
        rows = order[edges[number] : edges[number + 1]]
        if len(rows):
            before = log.collectives
            if _are_even(log, candidate, slot[rows], unnumbered[rows]):
                _match_group(log, candidate, rows, slot[rows], operation[rows], records)
            log.by_order += log.collectives - before if unnumbered[rows].any() else 0


def _numbered(records: Mapping[str, Any], operation: Array) -> tuple[Mapping[str, Any], Array]:
    """The records with their order in their group as the number of those that have none, and which these are."""
    unnumbered = records["sequence"] == UNNUMBERED
    rows = np.flatnonzero(unnumbered & (operation >= 0))
    if not len(rows):
        return records, unnumbered
    process, group, start_ns = records["process"][rows], records["group"].codes[rows], records["start_ns"][rows]
    order = np.lexsort((start_ns, group, process))
    first = np.concatenate([[True], (np.diff(process[order]) != 0) | (np.diff(group[order]) != 0)])
    begins = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    sequence = records["sequence"].copy()
    sequence[rows[order]] = np.arange(len(rows)) - begins + 1
    return {**records, "sequence": sequence}, unnumbered


def _are_even(log: CollectiveLog, group: MatchedGroup, slot: Array, unnumbered: Array) -> bool:
    """Order tells which is which only where every member has as many."""
    counts = np.bincount(slot[unnumbered], minlength=len(group.places))
    if not unnumbered.any() or group.fault or (counts == counts[0]).all():
        return True
    log.left_out[UNEVEN] += int(counts.max())
    return False


def operations_of(log: CollectiveLog, records: Mapping[str, Any]) -> Array:
    """The operation of each record as a place in log.operations, -1 where it has no rule."""
    names, layers = records["name"], records["layer"]
    codes = {name: at for at, name in enumerate(log.operations)}
    table = [[codes.get(operation_of(layer, name), -1) for name in names.values] for layer in layers.values]
    return np.array(table, np.int32).reshape(len(layers.values), -1)[layers.codes, names.codes]


def _match_group(
    log: CollectiveLog, group: MatchedGroup, rows: Array, slot: Array, operation: Array, records: Mapping[str, Any]
) -> None:
    sequence = records["sequence"][rows]
    first = np.flatnonzero(np.diff(sequence, prepend=sequence[0] - 1))
    if group.fault:
        log.left_out[group.fault] += len(first)
        return
    members = len(group.places)
    count = np.diff(first, append=len(rows))
    in_place = np.minimum.reduceat(slot == np.arange(len(rows)) - np.repeat(first, count), first)
    twice = np.maximum.reduceat(np.concatenate(([False], (np.diff(slot) == 0) & (np.diff(sequence) == 0))), first)
    complete = (count == members) & in_place
    log.left_out[TWICE] += int(np.count_nonzero(twice))
    log.left_out[NOT_ALL] += int(np.count_nonzero(~complete & ~twice))
    if not complete.any():
        return
    at = first[complete][:, None] + np.arange(members)
    taken = rows[at]
    # nothing takes no time: such a rank ended before its clock could be calibrated
    ended = (records["end_ns"][taken] > records["start_ns"][taken]).all(axis=1)
    root = records["root"][taken]
    same = (operation[at] == operation[at][:, :1]).all(axis=1) & (root == root[:, :1]).all(axis=1)
    log.left_out[DISAGREE] += int(np.count_nonzero(~same))
    log.left_out[UNENDED] += int(np.count_nonzero(same & ~ended))
    has_root = (root[:, 0] < members) & (~ROOTED[operation[at][:, 0]] | (root[:, 0] >= 0))
    log.left_out[NO_ROOT] += int(np.count_nonzero(same & ended & ~has_root))
    good = same & ended & has_root
    if good.any():
        matched = _matched(log, group, taken[good], operation[at][good, 0], records)
        log.groups = [*log.groups, replace(matched, number=len(log.groups))]


def _matched(
    log: CollectiveLog, group: MatchedGroup, taken: Array, operation: Array, records: Mapping[str, Any]
) -> Matched:
    return Matched(
        label=group.label,
        layer=records["layer"].values[records["layer"].codes[taken[0, 0]]],
        members=np.array(group.places),
        sequence=records["sequence"][taken[:, 0]],
        operation=operation,
        root=records["root"][taken[:, 0]],
        progress=records["progress"][taken].any(axis=1),
        name=records["name"].codes[taken[:, 0]],
        phase=records["phase"].codes[taken[:, 0]],
        enter_ns=(records["start_ns"][taken] - log.base_ns).astype(np.float64),
        end_ns=(records["end_ns"][taken] - log.base_ns).astype(np.float64),
        bytes=records["bytes"][taken].astype(np.float64),
        stood_ns=_stood_ns(records, taken),
    )


def _stood_ns(records: Mapping[str, Any], taken: Array) -> Array | None:
    stood_ns = records["stood_ns"][taken].astype(np.float64)
    return None if (stood_ns < 0).any() else stood_ns
