"""The program of a job by its steps and its matched collectives, on one clock.

A rank's own time is what lies between its communications. A blocking collective holds the rank up, and so does a
nonblocking one that moves only while its members wait for it (nonblocking.py). One in progress is issued, goes on
beside the rank, after the one before it in its group where they end in order, and holds the rank up at the end of the
last one of the step, for as long as the step says that the rank was blocked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rankscope.model.tables import Tables, Wrong
from rankscope.questions.collectives.matching import Matched
from rankscope.questions.collectives.operations import OPERATIONS
from rankscope.questions.collectives.wait_and_transfer import Collectives, collectives_of
from rankscope.questions.messages import Messages
from rankscope.questions.parallelism.groups import Pipeline
from rankscope.questions.steps.data import steps_of
from rankscope.questions.whatif.blocks import Blocks
from rankscope.questions.whatif.common_steps import CommonSteps, common_steps
from rankscope.questions.whatif.message_calls import Calls, calls_of, number_calls
from rankscope.questions.whatif.nonblocking import ByWaiting, moved_by_waiting
from rankscope.questions.whatif.passes import passes_of, stages_of
from rankscope.questions.whatif.program import JOINS, NOTHING, Program
from rankscope.questions.wording import counted, rank_words

Array = Any  # of numpy
IN_ORDER = 0.99  # of the collectives of a group: each ends after the one before
LANES = 2  # collectives in progress that the end of a step may wait for, of different groups
NO_STEPS = (
    "no steps to replay: no training loop and no pattern of collectives was seen; mark steps with "
    "rankscope.step(), or load a table of operations"
)
UNTOLD = (
    "The trace does not say when a rank was blocked: it is assumed to wait from issuing the last collective of a "
    "step until that ends."
)
OWN = "own time"
MOST_OPERATIONS = 2_000_000  # of one program: arrays of so many are given back and taken again without the system
KEPT_CELLS = 1 << 23  # collectives × members, of blocks of the log


class Windows(Sequence[Program]):
    """The programs of a run, each of some steps that follow each other: one of all, where they fit into memory.

    Those of a large run are made whenever they are asked for. A window begins with the ranks as far apart as they were.
    """

    def __init__(self, assembly: _Assembly, edges: Sequence[int]) -> None:
        self._assembly, self._edges = assembly, edges
        self._kept = assembly.program(edges[0], edges[1]) if len(edges) == 2 else None

    def __len__(self) -> int:
        return len(self._edges) - 1

    def __getitem__(self, at: Any) -> Any:
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self._kept or self._assembly.program(self._edges[at], self._edges[at + 1])


def programs_of_collectives(
    tables: Tables, messages: Messages | None = None, pipelines: Sequence[Pipeline] = ()
) -> tuple[Sequence[Program], list[str], str]:
    """The programs of a run, what they leave out, and what they are made from."""
    measured = steps_of(tables)
    if not measured.ranks:
        raise Wrong(NO_STEPS)
    known = collectives_of(tables)
    steps = common_steps(tables, known, measured)
    if not len(steps.numbers):
        raise Wrong("no steps to replay: the ranks have no steady step in common")
    assembly = _Assembly(steps, known, messages, pipelines)
    programs = Windows(assembly, assembly.edges())
    notes = list(measured.notes)
    if np.isinf(steps.exposed).any():
        notes.append(UNTOLD)
    if len(programs) > 1:
        notes.append(f"Replayed in {len(programs)} parts: each begins with the ranks as far apart as they were.")
    if without := set(known.log.ranks) - {rank_steps.rank for rank_steps in measured.ranks}:
        notes.append(
            f"No steps of their own: {rank_words(without)}; they go by those of rank {measured.ranks[0].rank}."
        )
    if assembly.left_out:
        notes.append(
            f"{counted(assembly.left_out, 'collective')} that ranks entered in different steps, or between steps: "
            "taken as the ranks' own time."
        )
    if assembly.left_out_messages:
        notes.append(f"{counted(assembly.left_out_messages, 'message')} between steps: taken as the ranks' own time.")
    if known.log.left_out.total():
        notes.append(
            f"{counted(known.log.left_out.total(), 'collective')} could not be matched and are taken as the ranks' own "
            "time: --table collectives says why."
        )
    matched = [name for name, has in (("collectives", known.log.groups), ("messages", messages)) if has and len(has)]
    if matched:
        return programs, notes, f"{steps.source}, matched {' and '.join(matched)}"
    return programs, notes, f"{steps.source}, no communication matched"


# ---------------------------------------------------------------- the program
@dataclass(slots=True)
class _Timed:
    """A block of the log: its collectives, and when each member entered and left them, on one clock."""

    group: Matched
    enter: Array
    end: Array
    waits: ByWaiting

    @property
    def in_progress(self) -> Array:
        return self.group.progress & ~self.waits.moved

    def held_by(self, row: int) -> Array | None:
        """Who holds up whom in a collective that moves while its members wait; None where its operation says that."""
        held_by = self.waits.held_by[int(self.waits.kind[row])] if self.waits.moved[row] else None
        return None if held_by is None or held_by.all() else held_by


@dataclass(slots=True)
class _Collective:
    """One collective inside one step."""

    group: int
    members: Array  # places of ranks
    enter: Array
    end: Array
    join: int
    root: int
    in_progress: bool
    in_order: bool  # of its group
    name: str
    which: int  # of its group in the step
    held_by: Array | None = None  # members x members, where not its operation says who waits for whom
    waited: Array | None = None  # of each member: blocked until its end before it went on; None: nobody was


ENTER, LEAVE = "enter", "leave"
LATER = 2  # than the calls of messages at the same time
EARLIER_WAITS = 0.05  # of a step: so much must be unexplained by what is waited for at its end
EDGE = 0.05  # of a step: by so much may what belongs to it be late
NOTED = 0.1  # of a step: by so much may an end be noted after it
MOSTLY = 0.5  # of the time from its issue to the end of the step: blocked for so long, the loop waited for it


@dataclass(slots=True)
class _State:
    """Where each rank is while a step is put together."""

    host: Array  # its last operation
    time: Array  # and when that ended
    blocked: Array  # in blocking collectives
    lane: dict[int, tuple[Array, Array]]  # of each group: its last operation in progress, and when it ended


def _explained_ns(ranks: int, collectives: Sequence[_Collective]) -> Array:
    """How long each rank was blocked in blocking collectives, and for the last one of the step from its issue on."""
    blocking, entered, ended = np.zeros(ranks), np.full(ranks, -np.inf), np.full(ranks, -np.inf)
    for collective in collectives:
        mine = collective.members
        if not collective.in_progress:
            blocking[mine] += collective.end - collective.enter
        entered[mine] = np.maximum(entered[mine], collective.enter)
        ended[mine] = np.maximum(ended[mine], collective.end)
    return blocking + np.maximum(np.where(np.isfinite(ended), ended - entered, 0.0), 0.0)


def _place_waits(issued: Sequence[tuple[_Collective, int]], rest_ns: float) -> None:
    """A rank that was blocked for longer than what it waits for at the end of the step was so before: until the ends of
    collectives in progress, the longest first, after which it issued its next one. Given are its collectives in the
    order of their issue, each with its place among the members."""
    spans = [(float(one.enter[at]), float(one.end[at])) for one, at in issued]
    over = [
        place
        for place, ((_, end), (following, _)) in enumerate(pairwise(spans))
        if issued[place][0].in_progress and end <= following
    ]
    for place in sorted(over, key=lambda place: spans[place][0] - spans[place][1]):
        one, at = issued[place]
        waited_ns = min(rest_ns, spans[place][1] - spans[place][0])
        one.waited = np.zeros(len(one.members)) if one.waited is None else one.waited
        one.waited[at] = waited_ns
        rest_ns -= waited_ns


class _Assembly:
    """Puts the blocks of some steps together, in the order of time."""

    def __init__(
        self,
        steps: CommonSteps,
        known: Collectives,
        messages: Messages | None = None,
        pipelines: Sequence[Pipeline] = (),
    ) -> None:
        self.steps, self.known = steps, known
        self.left_out = self.left_out_messages = 0
        self._in_order: dict[int, bool] = {}  # of each group
        self._rows: list[list[tuple[int, int]]] = [[] for _ in steps.numbers]  # of each step: block of the log, and row
        self._sizes: list[int] = []  # of each block of the log: members
        self._times: dict[int, _Timed] = {}  # the blocks that were looked at last
        self._find()
        self._moments: list[list[tuple[float, int, Any]]] = [[] for _ in steps.numbers]
        self._waits_for: dict[int, list[int]] = {}  # of each call of messages that waits: for which others
        self._calls = calls_of(messages, known) if messages is not None and len(messages) else None
        if self._calls is not None:
            self._find_moments(self._calls)
        self._stages = stages_of(pipelines, known.log.ranks)
        self._passes = (
            passes_of(messages, pipelines, known.log.ranks, known.log.base_ns, steps.begin, steps.end)
            if messages is not None and pipelines
            else None
        )
        self._blocks = self._no_blocks()
        self._entered: dict[int, int] = {}  # the operations with which calls of messages were entered

    def _no_blocks(self) -> Blocks:
        return Blocks(self.known.log.ranks, self.steps, self._stages, self._passes)

    def edges(self) -> list[int]:
        """At which steps the windows begin and end."""
        ranks = self.steps.begin.shape[0]
        sizes = [2 * ranks + sum(2 * self._sizes[at] for at, _ in rows) for rows in self._rows]
        edges, held = [0], 0
        for step, size in enumerate(sizes):
            if held and held + size > MOST_OPERATIONS:
                edges.append(step)
                held = 0
            held += size
        return [*edges, len(sizes)]

    def program(self, first: int, last: int) -> Program:
        """Of the steps from the first to the last, without it."""
        self._blocks, self._entered = self._no_blocks(), {}
        ranks = self.steps.begin.shape[0]
        everyone = np.arange(ranks)
        host, host_time = np.full(ranks, NOTHING), np.full(ranks, self.steps.begin[:, first].min())
        begins, ends = np.empty((last - first, ranks), np.int64), np.empty((last - first, ranks), np.int64)
        for step in range(first, last):
            begin = self.steps.begin[:, step]
            host = begins[step - first] = self._blocks.add(
                everyone, host[:, None], np.maximum(begin - host_time, 0.0), 0.0, step, OWN, ("begin",), inside=False
            )
            host, host_time = self._step(step, host.copy(), begin.copy())
            ends[step - first] = host
        program = self._blocks.program(begins, ends, first, last, self.known.log.base_ns)
        self._blocks = self._no_blocks()
        return program

    def _step(self, step: int, host: Array, host_time: Array) -> tuple[Array, Array]:
        """The communication of one step in the order of time, and its end."""
        ranks = len(host)
        state = _State(host, host_time, np.zeros(ranks), {})
        collectives = self._collectives(self._rows[step])
        self._end_with_the_step(step, [collective for _, _, collective in collectives])
        if not self._moments[step]:
            self._find_waits(step, [collective for _, _, collective in collectives])
        for _, _, event in sorted([*collectives, *self._moments[step]]):
            if isinstance(event, _Collective):
                self._add_collective(step, event, state)
            else:
                self._add_moment(step, event[0], event[1], state)
        return self._end(step, state.host, state.time, state.blocked, state.lane)

    def _add_collective(self, step: int, collective: _Collective, state: _State) -> None:
        mine, host, time = collective.members, state.host, state.time
        key = (len(mine), collective.name, collective.which)
        if collective.held_by is not None:
            self._add_held(step, collective, key, state)
            return
        about: dict[str, Any] = {"join": collective.join, "root": collective.root, "transfers": True}
        if not collective.in_progress:
            own_ns = np.maximum(collective.end - _joined(collective.enter, collective), 0.0)
            host[mine] = self._blocks.add(
                mine, host[mine][:, None], collective.enter - time[mine], own_ns, step, collective.name, key, **about
            )
            self._blocks.note_gap(host[mine], mine, time[mine], collective.enter)
            time[mine] = collective.end
            state.blocked[mine] += collective.end - collective.enter
            return
        issued = self._blocks.add(
            mine, host[mine][:, None], collective.enter - time[mine], 0.0, step, OWN, ("issue", *key)
        )
        self._blocks.note_gap(issued, mine, time[mine], collective.enter)
        host[mine], time[mine] = issued, collective.enter
        ranks = len(host)
        before, before_end = state.lane.get(collective.group, (np.full(ranks, NOTHING), np.full(ranks, -np.inf)))
        follows, ready = issued[:, None], collective.enter
        if collective.in_order:
            earlier = np.where(before[mine] == NOTHING, issued, before[mine])
            follows, ready = np.stack([issued, earlier], axis=1), np.maximum(collective.enter, before_end[mine])
        own_ns = np.maximum(collective.end - _joined(ready, collective), 0.0)
        at = self._blocks.add(mine, follows, 0.0, own_ns, step, collective.name, key, **about)
        before, before_end = before.copy(), before_end.copy()
        before[mine], before_end[mine] = at, collective.end
        state.lane[collective.group] = before, before_end
        if collective.waited is not None:
            self._wait(step, collective, at, key, state)

    def _add_held(self, step: int, collective: _Collective, key: tuple[Any, ...], state: _State) -> None:
        """Each member comes to its wait, and leaves when those that hold it up have come to theirs."""
        assert collective.held_by is not None
        mine, gap = collective.members, np.maximum(collective.enter - state.time[collective.members], 0.0)
        came = self._blocks.add(mine, state.host[mine][:, None], gap, 0.0, step, OWN, ("came", *key))
        self._blocks.note_gap(came, mine, state.time[mine], collective.enter)
        ready = np.where(collective.held_by, collective.enter, -np.inf).max(axis=1)
        follows = np.where(collective.held_by, came, came[:, None])
        own_ns = np.maximum(collective.end - ready, 0.0)
        state.host[mine] = self._blocks.add(mine, follows, 0.0, own_ns, step, collective.name, key, transfers=True)
        state.time[mine] = collective.end
        state.blocked[mine] += collective.end - collective.enter

    def _wait(self, step: int, collective: _Collective, at: Array, key: tuple[Any, ...], state: _State) -> None:
        """Those that were blocked until the end of a collective in progress go on from there."""
        assert collective.waited is not None
        those = np.flatnonzero(collective.waited > 0)
        mine, waited = collective.members[those], collective.waited[those]
        reached = collective.end[those] - waited
        own = self._blocks.add(
            mine, state.host[mine][:, None], reached - state.time[mine], 0.0, step, OWN, ("reached", *key)
        )
        self._blocks.note_gap(own, mine, state.time[mine], reached)
        state.host[mine] = self._blocks.add(
            mine, np.stack([own, at[those]], axis=1), 0.0, 0.0, step, OWN, ("waited", *key)
        )
        state.time[mine] = collective.end[those]
        state.blocked[mine] += waited

    def _end_with_the_step(self, step: int, collectives: Sequence[_Collective]) -> None:
        """A library may note the end of a collective only after it has woken the loop that was blocked by it: what the
        loop waited for, by the time that it was blocked since the issue, ended no later than its step."""
        exposed, end = self.steps.exposed[:, step], self.steps.end[:, step]
        late_ns = NOTED * (end - self.steps.begin[:, step])
        rest_ns = exposed.copy()
        for collective in collectives:
            if not collective.in_progress:
                rest_ns[collective.members] -= collective.end - collective.enter
        for collective in collectives:
            if collective.in_progress:
                mine = collective.members
                is_late = (collective.end > end[mine]) & (collective.end <= end[mine] + late_ns[mine])
                is_late &= np.isfinite(rest_ns[mine]) & (
                    rest_ns[mine] >= np.maximum(late_ns[mine], MOSTLY * (end[mine] - collective.enter))
                )
                collective.end = np.where(is_late, end[mine], collective.end)

    def _find_waits(self, step: int, collectives: Sequence[_Collective]) -> None:
        """Which ranks were blocked by collectives in progress before the end of the step."""
        if not any(collective.in_progress for collective in collectives):
            return
        exposed, length = self.steps.exposed[:, step], self.steps.end[:, step] - self.steps.begin[:, step]
        rest_ns = exposed - _explained_ns(len(exposed), collectives)
        unexplained = np.isfinite(exposed) & (rest_ns >= EARLIER_WAITS * length)
        issued: dict[int, list[tuple[_Collective, int]]] = {rank: [] for rank in np.flatnonzero(unexplained).tolist()}
        for collective in collectives if issued else ():
            for at in np.flatnonzero(unexplained[collective.members]).tolist():
                issued[int(collective.members[at])].append((collective, at))
        for rank, calls in issued.items():
            if calls:
                calls.sort(key=lambda call: float(call[0].enter[call[1]]))
                _place_waits(calls, float(rest_ns[rank]))

    def _add_moment(self, step: int, what: str, call: int, state: _State) -> None:
        """A call that posts or ends messages is entered, or left."""
        assert self._calls is not None
        of, host, time = self._calls, state.host, state.time
        place, enter = int(of.place[call]), float(of.enter[call])
        mine = np.array([place])
        key = (what, int(of.round[call]), int(of.which[call]))
        if what == ENTER:
            at = self._blocks.add(mine, host[mine][:, None], enter - time[place], 0.0, step, OWN, key)
            self._blocks.note_gap(at, mine, time[mine], of.enter[[call]])
            self._entered[call] = int(at[0])
            host[place], time[place] = int(at[0]), enter
            return
        others = [awaited for awaited in self._waits_for.get(call, ()) if awaited in self._entered]
        follows = np.array([[int(host[place]), *(self._entered[other] for other in others)]])
        ready = max([float(time[place]), *(float(of.enter[other]) for other in others)])
        own_ns = max(0.0, float(of.leave[call]) - ready)
        at = self._blocks.add(mine, follows, 0.0, own_ns, step, "message", key, transfers=True)
        host[place], time[place] = int(at[0]), of.leave[call]

    def _end(
        self, step: int, host: Array, host_time: Array, blocked: Array, lane: Mapping[int, tuple[Array, Array]]
    ) -> tuple[Array, Array]:
        everyone, end = np.arange(len(host)), self.steps.end[:, step]
        if not lane:
            at = self._blocks.add(everyone, host[:, None], end - host_time, 0.0, step, OWN, ("end",))
            self._blocks.note_gap(at, everyone, host_time, end)
            return at, end
        operations = np.stack([operation for operation, _ in lane.values()])
        over = np.stack([when for _, when in lane.values()])
        order = np.argsort(-over, axis=0, kind="stable")[:LANES]
        last = np.take_along_axis(over, order[:1], axis=0)[0]
        # blocked at the end of the last one; where that ends after the step, the step does not wait for it
        held = (last <= end) & (last >= host_time)
        wait = np.clip(self.steps.exposed[:, step] - blocked, 0.0, np.maximum(last - host_time, 0.0))
        reached = np.where(held, last - wait, end)
        before = self._blocks.add(everyone, host[:, None], reached - host_time, 0.0, step, OWN, ("reached",))
        self._blocks.note_gap(before, everyone, host_time, reached)
        chosen = np.take_along_axis(operations, order, axis=0)
        chosen = np.where(held & (chosen != NOTHING), chosen, before)
        follows = np.concatenate([before[:, None], chosen.T], axis=1)
        own_ns = end - np.where(held, last, end)
        return self._blocks.add(everyone, follows, 0.0, own_ns, step, OWN, ("end",)), end

    def _find(self) -> None:
        """Which collectives are in which step."""
        begun, over = self.steps.begin.min(), self.steps.end.max()
        for at, group in enumerate(self.known.log.groups):
            timed = self._on_one_clock(group)
            enter, end = timed.enter, timed.end
            self._sizes.append(len(group.members))
            step = self._steps_of(group.members[:1], enter[:, :1])[:, 0]
            places = step[:, None], group.members
            same = (enter >= self.steps.begin.T[places]).all(axis=1) & (enter <= self.steps.end.T[places]).all(axis=1)
            same &= step >= 0
            among = (enter.max(axis=1) >= begun) & (enter.min(axis=1) <= over)
            self.left_out += int((among & ~same).sum())
            if timed.in_progress.any():
                order = len(end) < 2 or float((np.diff(end, axis=0) >= 0).mean()) >= IN_ORDER
                self._in_order[group.number] = self._in_order.get(group.number, True) and order
            for row in np.flatnonzero(same).tolist():
                self._rows[int(step[row])].append((at, row))

    def _find_moments(self, of: Calls) -> None:
        """In which step each call of messages is entered and left, and for which others it waits."""
        of.step = np.full(len(of.place), -1)
        for rank in np.unique(of.place).tolist():
            rows = of.place == rank
            of.step[rows] = self._steps_of(np.array([rank]), of.enter[rows][:, None])[:, 0]
        self._hold_back(of)
        number_calls(of, len(self.steps.numbers))
        used = (of.step[of.waits] >= 0) & (of.step[of.awaited] >= 0)
        among = (of.leave[of.waits] >= self.steps.begin.min()) & (of.enter[of.awaited] <= self.steps.end.max())
        self.left_out_messages = int((among & ~used).sum())
        for waits, awaited in np.unique(np.stack([of.waits[used], of.awaited[used]]), axis=1).T.tolist():
            self._waits_for.setdefault(waits, []).append(awaited)
        left = np.minimum(of.ready(used), of.leave)
        for order, what, rows, when in (
            (0, ENTER, of.step >= 0, of.enter),
            (1, LEAVE, (of.step >= 0) & np.isfinite(of.leave), left),
        ):
            for call in np.flatnonzero(rows).tolist():
                self._moments[int(of.step[call])].append((float(when[call]), order, (what, call)))

    def _hold_back(self, of: Calls) -> None:
        """What a GPU sends last it may send when its step has ended: it belongs to the step that waits for it."""
        first = np.zeros(len(of.place), bool)
        order = np.lexsort((of.enter, of.step, of.place))
        first[order] = np.diff(of.place[order] * (len(self.steps.numbers) + 1) + of.step[order], prepend=-2) != 0
        step = of.step[of.waits]
        late = first[of.awaited] & (step >= 0) & (of.step[of.awaited] == step + 1)
        late &= of.leave[of.waits] <= self.steps.end[of.place[of.waits], step]
        pairs = np.flatnonzero(late)
        place = of.place[of.awaited[pairs]]
        end = self.steps.end[place, step[pairs]]
        near = of.enter[of.awaited[pairs]] - end <= EDGE * (end - self.steps.begin[place, step[pairs]])
        of.step[of.awaited[pairs[near]]] = step[pairs[near]]

    def _timed(self, at: int) -> _Timed:
        """A block of the log."""
        if at not in self._times:
            group = self.known.log.groups[at]
            while (
                self._times
                and sum(timed.enter.size for timed in self._times.values()) + group.enter_ns.size > KEPT_CELLS
            ):
                del self._times[next(iter(self._times))]
            self._times[at] = self._on_one_clock(group)
        return self._times[at]

    def _on_one_clock(self, group: Matched) -> _Timed:
        enter = self.known.clocks.on_reference(group.members, group.enter_ns)
        end = enter + (group.end_ns - group.enter_ns)
        waits = moved_by_waiting(group, enter, end)
        if waits.moved.any():
            enter = np.where(waits.moved[:, None], waits.reached, enter)
        return _Timed(group, enter, end, waits)

    def _collectives(self, rows: Sequence[tuple[int, int]]) -> list[tuple[float, int, _Collective]]:
        """Each with when its last member entered."""
        log = self.known.log
        timings = [(self._timed(at), row) for at, row in rows]
        collectives = []
        counts: dict[int, int] = {}
        times = sorted((float(timed.enter[row].max()), at) for at, (timed, row) in enumerate(timings))
        for order, (when, at) in enumerate(times):
            timed, row = timings[at]
            group = timed.group
            operation = log.operations[int(group.operation[row])]
            counts[group.number] = counts.get(group.number, -1) + 1
            collective = _Collective(
                group=group.number,
                members=group.members,
                enter=timed.enter[row],
                end=timed.end[row],
                join=JOINS[OPERATIONS[operation].waits],
                root=max(0, int(group.root[row])),
                in_progress=bool(timed.in_progress[row]),
                in_order=self._in_order.get(group.number, True),
                name=operation,
                which=counts[group.number],
                held_by=timed.held_by(row),
            )
            collectives.append(
                (when, LATER + order, collective)
            )  # no two are alike: what else they hold is never compared
        return collectives

    def _steps_of(self, members: Array, enter: Array) -> Array:
        """In which step each was entered, on one clock; -1: in none."""
        steps = np.full(enter.shape, -1, np.int32)
        for column, place in enumerate(members.tolist()):
            begin, end = self.steps.begin[place], self.steps.end[place]
            at = np.searchsorted(begin, enter[:, column], "right") - 1
            inside = (at >= 0) & (enter[:, column] <= end[np.maximum(at, 0)])
            steps[:, column] = np.where(inside, at, -1)
        return steps


def _joined(enter: Array, collective: _Collective) -> Array:
    """Until when each member is held up by the others."""
    return Program.joined(enter[:, None], collective.join, collective.root)[:, 0]
