"""Every collective, rank by rank: how much of it is wait for whom, and how much transfer?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Tables
from rankscope.questions.collectives.clock_offsets import Clocks, clock_offsets
from rankscope.questions.collectives.matching import Array, CollectiveLog, Matched, match
from rankscope.questions.collectives.matching_large import match_many
from rankscope.questions.collectives.operations import OPERATIONS, Operation, Proof, Waits
from rankscope.questions.disk_matrix import in_threads

Told = TypeVar("Told")
Ask = Callable[[CollectiveLog, "Split"], Any]


@dataclass(slots=True)
class Split:
    """The collectives of one group, split: K collectives of M members."""

    group: Matched
    enter_ns: Array  # K x M, on the reference's clock
    wait_ns: Array  # K x M: from the own entering to the last entering that it has to wait for, at most the stay
    transfer_ns: Array  # K x M: as long as moving the data takes, at most the stay after the wait
    moving_ns: Array  # K x M: what moving the data takes a member that waits for nobody; no clock is needed for it
    stay_ns: Array  # K x M: from entering to leaving, on the own clock
    error_ns: Array  # K x M: by how much wait_ns may be wrong because of the clocks; inf where they are not known
    awaited: Array  # K x M: place of the member waited for, -1 where there is none
    last: Array  # K: place of the member that most wait for, -1 where there is none
    late_ns: Array  # K: by how much that one came after the last but one
    sure: Array  # K: whether the clocks are exact enough to say which rank, or which of one host's, that is
    for_one: Array  # K: whether all that wait, wait for the same member
    steps: Array = None  # K x M: the step in which it was entered, once somebody asked

    @property
    def leaving_ns(self) -> Array:
        """K x M: what is neither; wait, transfer and this are the stay, and none of them is less than 0."""
        return self.stay_ns - self.wait_ns - self.transfer_ns


@dataclass(slots=True)
class Collectives:
    """All that is known of the collectives of a run."""

    log: CollectiveLog
    clocks: Clocks
    splits: Sequence[Split]  # one for each group; of a large run one for each block of its collectives
    _answers: dict[Ask, list[Any]] = field(default_factory=dict)

    def of_each(self, ask: Callable[[CollectiveLog, Split], Told]) -> list[Told]:
        """What each split says to that, worked out once.

        Of a large run making the splits is the work: there all that is usually asked is asked in one go.
        """
        if ask not in self._answers:
            usual = [] if isinstance(self.splits, list) else [*USUALLY_ASKED, *(OF_STEPS if self.log.steps else ())]
            questions = [question for question in dict.fromkeys([*usual, ask]) if question not in self._answers]
            answers = list(in_threads(partial(_told, self, questions), range(len(self.splits))))
            for place, question in enumerate(questions):
                self._answers[question] = [values[place] for values in answers]
        return self._answers[ask]


def _told(known: Collectives, questions: Sequence[Ask], at: int) -> list[Any]:
    split = known.splits[at]
    return [ask(known.log, split) for ask in questions]


USUALLY_ASKED: list[Ask] = []
OF_STEPS: list[Ask] = []  # where Log.steps is known


def usually_asked(ask: Callable[[CollectiveLog, Split], Told]) -> Callable[[CollectiveLog, Split], Told]:
    """A question about each split that nearly every report has."""
    USUALLY_ASKED.append(ask)
    return ask


def usually_asked_of_steps(ask: Callable[[CollectiveLog, Split], Told]) -> Callable[[CollectiveLog, Split], Told]:
    """The same, of runs with steps."""
    OF_STEPS.append(ask)
    return ask


_KEPT: WeakKeyDictionary[Tables, Collectives] = WeakKeyDictionary()


def collectives_of(tables: Tables) -> Collectives:
    """Matched, put on one clock and split; worked out once for each run that is open."""
    if tables not in _KEPT:
        parts = getattr(tables, "log_parts", lambda: None)()  # of a run that is too large to be held in memory
        log = match(tables) if parts is None else match_many(tables, parts)
        clocks = clock_offsets(log)
        splits = Splits(log, clocks)
        _KEPT[tables] = Collectives(log, clocks, list(splits) if parts is None else splits)
    return _KEPT[tables]


class Splits(Sequence["Split"]):
    """The collectives of a run, split whenever they are asked for."""

    def __init__(self, log: CollectiveLog, clocks: Clocks) -> None:
        self._log, self._clocks = log, clocks

    def __len__(self) -> int:
        return len(self._log.groups)

    def __getitem__(self, at: Any) -> Any:
        return split(self._log, self._clocks, self._log.groups[at])


def split(log: CollectiveLog, clocks: Clocks, group: Matched) -> Split:
    """The collectives of one group."""
    enter, end, clock_error = clocks.corrected(group)
    own_clock = np.array(clocks.of_rank)[group.members]
    shape = enter.shape
    until, awaited, rivals = np.full(shape, -np.inf), np.full(shape, -1), np.ones(shape, bool)
    together, for_one = np.zeros((shape[0], 1), bool), np.zeros(shape[0], bool)
    for code in np.unique(group.operation):
        rows = np.flatnonzero(group.operation == code)
        waits = OPERATIONS[log.operations[code]].waits
        for_one[rows] = waits in (Waits.ALL_FOR_ALL, Waits.ALL_FOR_ROOT)
        together[rows] = leaves_together(OPERATIONS[log.operations[code]])
        until[rows], awaited[rows] = _awaited(waits, enter[rows], group.root[rows])
        if waits is Waits.ALL_FOR_ROOT:
            rivals[rows] = False  # what it means says whom they wait for
        elif waits is Waits.ROOT_FOR_ALL:
            rivals[rows, group.root[rows]] = False
    stay = np.maximum(end - enter, 0)
    wait = np.clip(until - enter, 0, stay)
    error = np.broadcast_to(clock_error, shape)
    theirs = np.take_along_axis(error, np.maximum(awaited, 0), axis=1)
    same = (own_clock[np.maximum(awaited, 0)] == own_clock) | (awaited < 0)
    # an error cannot make more waiting than there was time in the collective, nor less than none
    wait_error = np.where(same, 0.0, np.minimum(error + theirs, stay))
    last = awaited[np.arange(shape[0]), np.argmax(wait, axis=1)]
    late, sure = _lateness(enter, error, own_clock, last, rivals)
    # who comes last waits for nobody and stays shortest: that is a time of one clock, whatever the others show
    moving = np.where(together, stay.min(axis=1, keepdims=True), stay - wait)
    # another may leave before the one that came last does, or seem to, by the clocks' error
    transfer = np.minimum(moving, stay - wait)
    return Split(group, enter, wait, transfer, moving, stay, wait_error, awaited, last, late, sure, for_one)


def leaves_together(operation: Operation) -> bool:
    """Whether nobody may leave before all have come, so that the shortest stay is one without waiting."""
    return operation.waits is Waits.ALL_FOR_ALL and operation.proof is not Proof.NEVER


def _awaited(waits: Waits, enter: Array, root: Array) -> tuple[Array, Array]:
    """Until when each member has to wait, and for which member."""
    count, members = enter.shape
    rows = np.arange(count)
    is_root = np.arange(members) == root[:, None]
    if waits is Waits.ALL_FOR_ALL:
        last = np.argmax(enter, axis=1)
        return np.repeat(enter[rows, last][:, None], members, axis=1), np.repeat(last[:, None], members, axis=1)
    if waits is Waits.ALL_FOR_ROOT:
        until = np.where(is_root, -np.inf, enter[rows, root][:, None])
        return until, np.where(is_root, -1, root[:, None])
    if waits is Waits.ROOT_FOR_ALL:
        last = np.argmax(np.where(is_root, -np.inf, enter), axis=1)
        until = np.where(is_root, enter[rows, last][:, None], -np.inf)
        return until, np.where(is_root, last[:, None], -1)
    until = np.maximum.accumulate(enter, axis=1)
    awaited = np.maximum.accumulate(np.where(enter == until, np.arange(members), 0), axis=1)
    if waits is Waits.FOR_BELOW:
        until = np.concatenate([np.full((count, 1), -np.inf), until[:, :-1]], axis=1)
        awaited = np.concatenate([np.full((count, 1), -1), awaited[:, :-1]], axis=1)
    return until, awaited


def _lateness(enter: Array, error: Array, own_clock: Array, last: Array, rivals: Array) -> tuple[Array, Array]:
    """By how much the last member came after all others, and whether the clocks can tell its host from the others."""
    rows, place = np.arange(len(last)), np.maximum(last, 0)
    when = enter[rows, place]
    itself = np.arange(enter.shape[1]) == place[:, None]
    others = np.where(itself, -np.inf, enter).max(axis=1)
    elsewhere = rivals & (own_clock != own_clock[place][:, None])
    latest = np.where(elsewhere, enter + error, -np.inf).max(axis=1)
    sure = when - error[rows, place] >= latest
    return np.where(last >= 0, np.maximum(when - others, 0), 0.0), sure & (last >= 0)
