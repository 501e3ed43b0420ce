"""What did every rank do when, on one clock: the run as slices on tracks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from rankscope.model.records import COLLECTIVE_LAYERS, Layer, Role
from rankscope.model.tables import Tables, Words, sql_list
from rankscope.pictures import Actor, Slices, Track
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.steps.data import steps_of

# ---------------------------------------------------------------------------------------------------------------------
# In which order do slices of one track open and close, and which of them need a lane of their own?
Array = Any


def in_order(start_ns: Array, end_ns: Array) -> tuple[Array, Array]:
    """What happens one after the other: which slice, and whether it opens or closes.

    At one moment the inner ones close first, then come those without length, then the longest opens first.
    """
    count = len(start_ns)
    rows = np.arange(count)
    closing = rows[end_ns >= start_ns]
    empty = start_ns == end_ns
    slices = np.concatenate([rows, closing])
    opens = np.concatenate([np.ones(count, bool), np.zeros(len(closing), bool)])
    time_ns = np.where(opens, start_ns[slices], end_ns[slices])
    turn = np.where(empty[slices], 1, np.where(opens, 2, 0))
    # of those without length each closes before the next opens; others nest
    inner = np.where(empty[slices], slices * 2 + ~opens, np.where(opens, -end_ns[slices], -start_ns[slices]))
    unended = opens & (end_ns[slices] < start_ns[slices])
    inner = np.where(unended, np.iinfo(np.int64).min, inner)
    order = np.lexsort((inner, turn, time_ns))
    return slices[order], opens[order]


def lanes(start_ns: Array, end_ns: Array) -> Array:
    """All on one lane if each two of them lie apart or within each other, else on as few as keep them apart."""
    lane_of = np.zeros(len(start_ns), np.int64)
    if not _cross(start_ns, end_ns):
        return lane_of
    free: list[int] = []
    order = np.argsort(start_ns, kind="stable")
    for row, start, end in zip(order.tolist(), start_ns[order].tolist(), end_ns[order].tolist(), strict=True):
        lane = next((at for at, until in enumerate(free) if until <= start), len(free))
        if lane == len(free):
            free.append(0)
        free[lane], lane_of[row] = max(end, start), lane
    return lane_of


def _cross(start_ns: Array, end_ns: Array) -> bool:
    """Whether some begin within another and end outside: then as many are not open at its end as were at its begin."""
    slices, opens = in_order(start_ns, end_ns)
    depth = np.cumsum(np.where(opens, 1, -1))
    before, after = np.zeros(len(start_ns), np.int64), np.zeros(len(start_ns), np.int64)
    before[slices[opens]] = depth[opens] - 1
    after[slices[~opens]] = depth[~opens]
    ended = end_ns >= start_ns
    return bool((before[ended] != after[ended]).any())


# ---------------------------------------------------------------- timeline
BLOCK_ROWS = 100_000
EVENTS = """
    SELECT layer, kind, "group", thread, name, start_ns, coalesce(end_ns, -1) AS end_ns,
        coalesce(sequence, 0) AS sequence, coalesce(bytes, 0) AS bytes
    FROM events WHERE process = ?"""
ACTORS = f"""
    SELECT process, rank, host, pid, role FROM ranks
    WHERE rank IS NOT NULL OR role IN {sql_list([Role.HELPER, Role.LAUNCHER])}
    ORDER BY role <> 'rank', rank, process"""
GROUPS = """
    SELECT process, name, kind, identity FROM groups WHERE identity <> '' AND NOT guessed AND coalesce(size, 2) > 1"""


class Streams(Tables, Protocol):
    """Tables that can also be asked for rows block by block."""

    def blocks(self, sql: str, parameters: Sequence[Any], rows: int) -> Iterator[Mapping[str, Any]]: ...


@dataclass(slots=True)
class Timeline:
    """The slices of a run, process by process; read once."""

    tables: Streams
    actors: list[Actor]
    tracks: dict[tuple[int, str, str, int], Track] = field(default_factory=dict)
    _fresh: list[Track] = field(default_factory=list)

    def slices(self) -> Iterator[Slices]:
        """All slices: of each process its events, then its steps and phases."""
        clocks, flows = clocks_of(self.tables), _flows(self.tables)
        steps = {rank.rank: rank for rank in steps_of(self.tables).ranks}
        ranks = dict(self.tables.query("SELECT process, rank FROM ranks WHERE role = 'rank'"))
        for actor in self.actors:
            clock = clocks.get(actor.process, as_it_is)
            for columns in self.tables.blocks(EVENTS, [actor.process], BLOCK_ROWS):
                yield self._events(actor.process, columns, clock, flows)
            if ranks.get(actor.process) in steps:
                yield self._steps(actor.process, steps[ranks[actor.process]], clock)

    def first_of_flows(self) -> tuple[Array, Array]:
        """Every flow once, in their order, and the process whose slice of it comes first."""
        clocks, flows = clocks_of(self.tables), _flows(self.tables)
        flow_parts = []
        for actor in self.actors:
            clock = clocks.get(actor.process, as_it_is)
            for columns in self.tables.blocks(f"{EVENTS} AND sequence > 0", [actor.process], BLOCK_ROWS):
                flow, start_ns = _flow_of(actor.process, columns, flows), clock(columns["start_ns"])
                has_flow = flow > 0
                flow_parts.append((flow[has_flow], start_ns[has_flow], np.full(int(has_flow.sum()), actor.process)))
        if not flow_parts:
            return np.zeros(0, np.uint64), np.zeros(0, np.int64)
        flow, start_ns, process = (np.concatenate(part) for part in zip(*flow_parts, strict=True))
        order = np.lexsort((process, start_ns, flow))
        first = np.flatnonzero(np.diff(flow[order], prepend=np.uint64(0)) != 0)
        return flow[order][first], process[order][first]

    def _events(self, process: int, columns: Mapping[str, Any], clock: Any, flows: Mapping[Any, int]) -> Slices:
        start_ns = clock(columns["start_ns"])
        ended = columns["end_ns"] >= columns["start_ns"]
        end_ns = np.where(ended, start_ns + (columns["end_ns"] - columns["start_ns"]), start_ns - 1)
        track = self._tracks_of(process, columns, start_ns, end_ns)
        flow = _flow_of(process, columns, flows)
        slices = Slices(process, track, columns["name"], start_ns, end_ns, flow, columns["bytes"], self._fresh)
        self._fresh = []
        return slices

    def _tracks_of(self, process: int, columns: Mapping[str, Any], start_ns: Array, end_ns: Array) -> Array:
        """The track of each event, by its layer, kind, group and thread; on lanes where they cross each other."""
        layer, kind, group = (columns[name] for name in ("layer", "kind", "group"))
        known, thread = np.unique(columns["thread"].astype(np.int64), return_inverse=True)  # numbers may be any
        threads = len(known)
        key = (layer.codes.astype(np.int64) * len(kind.values) + kind.codes) * len(group.values) + group.codes
        key = key * threads + thread
        present, place = np.unique(key, return_inverse=True)
        tracks = np.zeros(len(key), np.int64)
        names: dict[tuple[str, str], list[int]] = {}
        for at, code in enumerate(present.tolist()):
            rest, of_thread = divmod(code, threads)
            rest, of_group = divmod(rest, len(group.values))
            of_layer, of_kind = divmod(rest, len(kind.values))
            track_name = _track_name(
                layer.values[of_layer], kind.values[of_kind], group.values[of_group], int(known[of_thread])
            )
            names.setdefault(track_name, []).append(at)
        for (what, name), codes in names.items():
            rows = np.flatnonzero(np.isin(place, codes)) if len(names) > 1 else np.arange(len(key))
            lane = lanes(start_ns[rows], end_ns[rows])
            numbers = [self._track(process, what, name, at).number for at in range(int(lane.max(initial=0)) + 1)]
            tracks[rows] = np.array(numbers)[lane]
        return tracks

    def _track(self, process: int, kind: str, name: str, lane: int = 0) -> Track:
        key = (process, kind, name, lane)
        if key not in self.tracks:
            self.tracks[key] = Track(len(self.tracks) + 1, process, kind, name, lane)
            self._fresh.append(self.tracks[key])
        return self.tracks[key]

    def _steps(self, process: int, steps: Any, clock: Any) -> Slices:
        track = self._track(process, "steps", "steps").number
        start_ns = clock(steps.begin_ns.astype(np.int64))
        count = len(start_ns)
        names = Words(np.arange(count), [f"step {number}" for number in steps.number.tolist()])
        none = np.zeros(count, np.int64)
        end_ns = start_ns + steps.length_ns.astype(np.int64)
        slices = Slices(process, np.full(count, track), names, start_ns, end_ns, none, none, self._fresh)
        self._fresh = []
        return slices


def timeline(tables: Streams) -> Timeline:
    """The run, ready to be gone through."""
    actors = []
    for process, rank, host, pid, role in tables.query(ACTORS):
        name = f"rank {rank}" if role == "rank" else f"{role}{'' if rank is None else f' of rank {rank}'}"
        actors.append(Actor(process, name, host or "", int(pid or 0)))
    return Timeline(tables, actors)


def _track_name(layer: str, kind: str, group: str, thread: int) -> tuple[str, str]:
    if layer == Layer.GPU:
        return "stream", group if group.startswith("GPU") else f"GPU {group}"
    if kind == "progress" or layer in (Layer.NCCL, Layer.GLOO):
        return "communicator", f"{layer} {group}".strip()
    return ("ranges", f"ranges of thread {thread}") if layer == Layer.NVTX else ("thread", f"thread {thread}")


def as_it_is(time_ns: Array) -> Array:
    return time_ns


def clocks_of(tables: Tables) -> dict[int, Any]:
    """For each process whose host's clock is not the reference how to put its times right."""
    hosts = tables.query("SELECT count(DISTINCT host) FROM ranks WHERE role = 'rank'")[0][0]
    if hosts < 2:
        return {}
    known = collectives_of(tables)
    clocks: dict[int, Any] = {}
    for place, process in enumerate(known.log.processes):
        clock = known.clocks.clocks[known.clocks.of_rank[place]]
        if clock.known and clock.compared_with is not None:
            clocks[process] = _Moved(clock, known.log.base_ns)
    return clocks


@dataclass(frozen=True, slots=True)
class _Moved:
    clock: Any
    base_ns: int

    def __call__(self, time_ns: Array) -> Array:
        moved, _ = self.clock.to_reference((time_ns - self.base_ns).astype(np.float64))
        return np.rint(moved).astype(np.int64) + self.base_ns


def begin_of(tables: Tables) -> int:
    """The first moment that anything tells of: where timelines begin."""
    firsts = ["min(started_ns)"]
    # of a large run they are on disk, and no process has any before it started
    firsts += ["(SELECT min(start_ns) FROM events)"] if not _is_large(tables, "log_parts") else []
    firsts += ["(SELECT min(begin_ns) FROM steps)"] if not _is_large(tables, "step_parts") else []
    rows = tables.query(f"SELECT least({', '.join(firsts)}) FROM ranks")
    return int(rows[0][0] or 0)


def _is_large(tables: Tables, parts: str) -> bool:
    return getattr(tables, parts, lambda: None)() is not None


def _flows(tables: Tables) -> dict[tuple[int, str], int]:
    """For each communicator as a process calls it a number that all its members share."""
    rows = tables.query(GROUPS)
    return {(process, name): crc32(f"{kind}\0{identity}".encode()) for process, name, kind, identity in rows}


def _flow_of(process: int, columns: Mapping[str, Any], flows: Mapping[tuple[int, str], int]) -> Array:
    """Collectives of one number on one communicator are the same one."""
    group, sequence = columns["group"], columns["sequence"].astype(np.uint64)
    shared = np.array([flows.get((process, name), 0) for name in group.values] or [0], np.uint64)[group.codes]
    layer = columns["layer"]
    collective = np.isin(layer.codes, [at for at, name in enumerate(layer.values) if name in COLLECTIVE_LAYERS])
    return np.where((shared > 0) & (sequence > 0) & collective, shared << np.uint64(32) | sequence, np.uint64(0))
