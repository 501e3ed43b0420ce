"""What does each rank do when: the run on one clock, in as few blocks as a page can hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.pictures import Blocks, Chart, DrawnTimeline, Level, Line, Section, Slices, Track
from rankscope.questions.events.timeline import as_it_is, begin_of, clocks_of, in_order, timeline
from rankscope.questions.gpu.activities import COMMUNICATION, COMPUTE, kind_of
from rankscope.questions.gpu.steps import BUSY, IDLE
from rankscope.questions.page import critical_path
from rankscope.questions.page.section import PageOptions
from rankscope.questions.page.tables import marked
from rankscope.questions.run.screen_ranks import IDLE as IDLE_WORDS
from rankscope.questions.steps.data import PARTS, TITLES, Steps, steps_of
from rankscope.questions.wording import counted, seconds

MOST_BLOCKS = 60_000  # of all levels: half a megabyte
MOST_RANKS = 64
MOST_LINES = 256
DEEPEST = 4  # events within events
LANES = 3  # of events that cross each other
MOST_NAMES = 2000
LONGEST_NAME = 120
FIRST_CELLS = 4096  # of the whole run, before it is made coarser
OTHER = "other names"
Array = Any  # of numpy

COLUMNS = (
    Column(
        "what",
        Unit.NAME,
        "What",
        "the three steps whose length is nearest to the median, the longest, all; without steps the middle of the run",
    ),
    Column("step", Unit.COUNT, "Step", "its number"),
    Column("length_ns", Unit.NS, "Length", "of the step on the rank that takes longest; of the run"),
    Column("rank", Unit.NAME, "Slowest rank", "the rank that takes longest"),
    Column("begin_ns", Unit.NS, "Begins at", "since the run began, on its common clock: the first rank to begin"),
    Column("end_ns", Unit.NS, "Ends at", "since the run began, on its common clock: the last rank to end"),
)


def timeline_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """Ranks × time, with a few steps chosen to begin with."""
    ranks = _ranks(tables, wanted)
    run = _Run(tables, begin_of(tables), steps_of(tables), ranks)
    chosen = run.chosen_steps()
    drawn, events = _drawn(run, wanted, [(int(row[4]), int(row[5])) for row in chosen])  # type: ignore[arg-type]
    if not drawn.lines:
        return None
    whole_run: tuple[Cell, ...] = ("whole run", None, drawn.end_ns, None, 0, drawn.end_ns)
    table = Table("timeline_steps", "Steps to begin with", COLUMNS, [*chosen, whole_run])
    title = _title(chosen, drawn)
    chart = Chart("timeline", table.name, title, "what", ("begin_ns", "end_ns"), "time since the run began", "rank")
    notes = _notes(tables, run, drawn, events)
    path = critical_path.path_table(tables) if critical_path.LINE in drawn.lines else None
    if path is not None:
        notes.append(critical_path.path_note(path))
    shown = [table] if path is None else [table, path]
    return Section("timeline", "Timeline", shown, [chart], notes, timeline=drawn)


def _ranks(tables: Tables, wanted: PageOptions) -> list[int]:
    """All of a few; of many those that stand out and some others, evenly."""
    sql = f"SELECT rank FROM ranks WHERE {wanted.selection.condition} AND rank IS NOT NULL ORDER BY rank"
    ranks = [row[0] for row in tables.query(sql)]
    if len(ranks) <= MOST_RANKS:
        return ranks
    far = [rank for rank in marked(tables, wanted) if rank in set(ranks)][: MOST_RANKS // 2]
    others = [rank for rank in ranks if rank not in set(far)]
    places = np.linspace(0, len(others) - 1, MOST_RANKS - len(far)).round().astype(int)
    return sorted({*far, *(others[at] for at in places.tolist())})


def _title(chosen: Sequence[tuple[Cell, ...]], drawn: DrawnTimeline) -> str:
    if not chosen or chosen[0][1] is None:
        ranks = {line.rank for line in drawn.lines} - {critical_path.LINE.rank}
        return f"{seconds(drawn.end_ns)} of {counted(len(ranks), 'rank')}"
    median, worst = chosen[0], chosen[-1]
    factor = float(str(worst[2])) / max(1.0, float(str(median[2])))
    sentence = f"A median step (step {median[1]}) takes {seconds(float(str(median[2])))}"
    return f"{sentence}, the worst (step {worst[1]}, rank {worst[3]}) {factor:.3g} times as long"


def _notes(tables: Tables, run: _Run, drawn: DrawnTimeline, events: int) -> list[str]:
    ranks = len({line.rank for line in drawn.lines} - {critical_path.LINE.rank})
    every = tables.query("SELECT count(*) FROM ranks WHERE role = 'rank'")[0][0]
    singles = _singles(drawn)
    notes = (
        [f"{ranks:,} of {every:,} ranks are drawn: those that stand out, and an even sample of the others."]
        if ranks < every
        else []
    )
    if singles < events:
        notes.append(
            f"{singles:,} of {events:,} events shown one by one; of the others those that are short are in blocks of "
            f"neighbours, named after what takes most of their time, and those within {DEEPEST} others are left out. "
            "`rankscope export RUN --perfetto` has all."
        )
    else:
        notes.append(f"All {events:,} events of these ranks that were recorded are shown.")
    if any(line.kind == "parts" for line in drawn.lines):
        notes.append("Of a step's parts only the lengths are recorded: they are drawn in the order of the loop.")
    if run.is_large:
        notes.append("With this many ranks only steps are drawn; --rank draws the collectives of some.")
    return notes


def _singles(drawn: DrawnTimeline) -> int:
    """Events that a reader who zooms in sees one by one: a later level stands for the first's stretch."""
    events = np.array([line.kind not in DRAWN_FROM_SUMS for line in drawn.lines], bool)
    first, *finer = drawn.levels

    def inside(blocks: Blocks, level: Level) -> Array:
        return (blocks.start_ns >= level.begin_ns) & (blocks.start_ns < level.end_ns)

    in_first = (first.blocks.count == 1) & events[first.blocks.line]
    for level in finer:
        in_first &= ~inside(first.blocks, level)
    in_finer = [(level.blocks.count == 1) & events[level.blocks.line] & inside(level.blocks, level) for level in finer]
    return int(in_first.sum()) + sum(int(mask.sum()) for mask in in_finer)


# ---------------------------------------------------------------- the steps to begin with
@dataclass(slots=True)
class _Run:
    """A run whose timeline is drawn."""

    tables: Tables
    begin_ns: int
    steps: Steps
    ranks: Sequence[int]
    clocks: dict[int, Any] = field(default_factory=dict)  # by rank
    processes: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pairs = self.tables.query("SELECT process, rank FROM ranks WHERE role = 'rank' AND rank IS NOT NULL")
        by_process = clocks_of(self.tables)
        self.processes = {rank: process for process, rank in pairs}
        self.clocks = {rank: by_process[process] for process, rank in pairs if process in by_process}

    @property
    def is_large(self) -> bool:
        """Its events are on disk, and are not to be brought into memory for a picture."""
        return getattr(self.tables, "log_parts", lambda: None)() is not None

    def end_ns(self) -> int:
        """The last moment that anything tells of, since the begin."""
        lasts = ["max(ended_ns)"]
        lasts += [] if self.is_large else ["(SELECT max(greatest(start_ns, end_ns)) FROM events)"]
        latest = self.tables.query(f"SELECT greatest({', '.join(lasts)}) FROM ranks")[0][0]
        last = int(latest or self.begin_ns) - self.begin_ns
        for rank_steps in self.steps.ranks:
            if rank_steps.rank in self.processes and len(rank_steps.number):
                last = max(
                    last, int(self.since_begin(rank_steps.rank, rank_steps.begin_ns[-1:])[0] + rank_steps.length_ns[-1])
                )
        return max(1, last)

    def since_begin(self, rank: int, time_ns: Array) -> Array:
        moved: Array = self.clocks.get(rank, as_it_is)(np.asarray(time_ns, np.int64)) - self.begin_ns
        return moved

    def chosen_steps(self) -> list[tuple[Cell, ...]]:
        """The three steps nearest to the median, in their order, and the longest."""
        ranks = [each for each in self.steps.ranks if each.rank in set(self.ranks) and len(each.number)]
        distinct = {id(rank_steps.number): rank_steps.number for rank_steps in ranks}
        if not distinct:
            return self._middle()
        numbers = np.unique(np.concatenate(list(distinct.values())))
        numbers = numbers[numbers >= self.steps.first_steady]
        longest, slowest = np.zeros(len(numbers)), np.full(len(numbers), -1)
        begin, end = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
        for rank_steps in ranks:
            steady = self.steps.steady(rank_steps)
            at, length = np.searchsorted(numbers, rank_steps.number[steady]), rank_steps.length_ns[steady]
            begins = self.since_begin(rank_steps.rank, rank_steps.begin_ns[steady]).astype(np.float64)
            slowest[at] = np.where(length > longest[at], rank_steps.rank, slowest[at])
            longest[at] = np.maximum(longest[at], length)
            begin[at], end[at] = np.minimum(begin[at], begins), np.maximum(end[at], begins + length)
        if not len(numbers):
            return self._middle()
        usual = np.argsort(np.abs(longest - np.median(longest)), kind="stable")[:3]
        named = [("median", at) for at in sorted(usual.tolist())] + [("worst", int(longest.argmax()))]
        return [
            (what, int(numbers[at]), float(longest[at]), int(slowest[at]), float(begin[at]), float(end[at]))
            for what, at in named
        ]

    def _middle(self) -> list[tuple[Cell, ...]]:
        """Without steps: as much of the middle as can be drawn event by event."""
        sql = "SELECT min(start_ns), max(greatest(start_ns, end_ns)), count(*) FROM events"
        first, last, events = (None, None, 0) if self.is_large else self.tables.query(sql)[0]
        if not events or events <= MOST_BLOCKS:
            return []
        middle, share = (first + last) / 2 - self.begin_ns, MOST_BLOCKS / 3 / events
        around = (last - first) * share / 2
        return [("middle", None, 2 * around, None, middle - around, middle + around)]


# ---------------------------------------------------------------- levels of detail
def merged(blocks: Blocks, resolution_ns: int) -> Blocks:
    """Of each line those that are shorter than the resolution, and begin in the same cell of it, in one."""
    if not len(blocks):
        return blocks
    cell = blocks.start_ns // resolution_ns
    long = blocks.end_ns - blocks.start_ns >= resolution_ns
    begins = np.ones(len(blocks), bool)
    begins[1:] = (np.diff(blocks.line) != 0) | (np.diff(cell) != 0) | long[1:] | long[:-1]
    first = np.flatnonzero(begins)
    return Blocks(
        blocks.line[first],
        blocks.start_ns[first],
        np.maximum.reduceat(blocks.end_ns, first),
        _dominant(blocks, np.cumsum(begins) - 1),
        np.add.reduceat(blocks.count, first),
        np.add.reduceat(blocks.busy_ns, first),
    )


def _dominant(blocks: Blocks, group: Array) -> Array:
    """Of each group the name that takes the most time."""
    order = np.lexsort((blocks.name, group))
    name, of = blocks.name[order], group[order]
    first = np.flatnonzero(np.concatenate([[True], (np.diff(of) != 0) | (np.diff(name) != 0)]))
    time_ns = np.add.reduceat(blocks.busy_ns[order], first)
    by_time = np.lexsort((time_ns, of[first]))
    last = np.flatnonzero(np.concatenate([np.diff(of[first][by_time]) != 0, [True]]))
    return name[first][by_time][last]


def _cut(blocks: Blocks, chosen: Array) -> Blocks:
    return Blocks(*(getattr(blocks, name)[chosen] for name in Blocks.__slots__))


def _joined(parts: Sequence[Blocks]) -> Blocks:
    """In the order of lines and starts."""
    blocks = Blocks(*(np.concatenate([getattr(part, name) for part in parts]) for name in Blocks.__slots__))
    return _cut(blocks, np.lexsort((blocks.start_ns, blocks.line)))


def _within(blocks: Blocks, begin_ns: int, end_ns: int) -> Blocks:
    return _cut(blocks, (blocks.end_ns >= begin_ns) & (blocks.start_ns <= end_ns))


def _coarser(blocks: Blocks, resolution_ns: int, most: int) -> tuple[Blocks, int]:
    while len(blocks) > most:
        resolution_ns *= 2
        blocks = merged(blocks, resolution_ns)
        if resolution_ns > 1 << 60:
            break
    return blocks, resolution_ns


# ---------------------------------------------------------------- what is drawn of each rank
@dataclass(slots=True)
class _Names:
    """Names of events, each once; those beyond the most that are kept share one."""

    known: dict[str, int] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)

    def place(self, name: str, kind: str) -> int:
        if name not in self.known and len(self.known) >= MOST_NAMES:
            name, kind = OTHER, ""
        if name not in self.known:
            self.known[name] = len(self.known)
            self.kinds.append(kind)
        return self.known[name]


DRAWN_FROM_SUMS = ("parts", "gpu parts", critical_path.LINE.kind)  # no events
STEPS = "steps"
KIND_ORDER = (STEPS, "parts", "communicator", "thread", "ranges", "stream", "gpu parts", "phases")


def _drawn(run: _Run, wanted: PageOptions, chosen: Sequence[tuple[int, int]]) -> tuple[DrawnTimeline, int]:
    """The levels, and how many events there are; one rank after the other is brought into memory."""
    names, lines, events = _Names(), list[Line](), 0
    end_ns = run.end_ns()
    levels = _Levels(end_ns, _stretches(chosen))
    per_rank = max(3, MOST_LINES // max(1, len(run.ranks)))
    path = critical_path.path_blocks(run.tables, run.begin_ns, _stretches(chosen), names.place)
    if path is not None:
        lines.append(critical_path.LINE)
        levels.add(path)
    for blocks, count in _of_ranks(run, wanted, names):
        events += count
        order = sorted(blocks, key=lambda line: (KIND_ORDER.index(line.kind), line.name))
        shown_lines = sorted(order, key=lambda line: (line.kind not in (STEPS, "parts"), -_busy(blocks[line])))[
            :per_rank
        ]
        for line in order:
            if line in shown_lines and len(blocks[line]):
                blocks[line].line[:] = len(lines)
                lines.append(line)
                levels.add(blocks[line])
    return DrawnTimeline(lines, list(names.known), names.kinds, levels.levels(), end_ns), events


def _busy(blocks: Blocks) -> int:
    return int(blocks.busy_ns.sum())


def _stretches(chosen: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The chosen steps with a little around them, each moment once."""
    wide = sorted((begin - (end - begin) // 4, end + (end - begin) // 4) for begin, end in chosen)
    stretches: list[tuple[int, int]] = []
    for begin, end in wide:
        if stretches and begin <= stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(stretches[-1][1], end))
        else:
            stretches.append((begin, end))
    return stretches


@dataclass(slots=True)
class _Levels:
    """Takes line after line, and keeps of them what a page can hold."""

    end_ns: int
    stretches: Sequence[tuple[int, int]]
    whole: list[Blocks] | None = field(default_factory=list)  # None: too many to be kept as they are
    coarse: list[Blocks] = field(default_factory=list)
    fine: list[list[Blocks]] = field(default_factory=list)  # by stretch

    def add(self, blocks: Blocks) -> None:
        if self.whole is None:
            return self._reduce(blocks)
        self.whole.append(blocks)
        if sum(len(block) for block in self.whole) > MOST_BLOCKS:
            held, self.whole = self.whole, None
            for block in held:
                self._reduce(block)

    @property
    def _cell_ns(self) -> int:
        return max(1, self.end_ns // FIRST_CELLS)

    def _reduce(self, blocks: Blocks) -> None:
        self.fine = self.fine or [[] for _ in self.stretches]
        for fine, (begin, end) in zip(self.fine, self.stretches, strict=True):
            fine.append(_within(blocks, begin, end))
        self.coarse.append(merged(blocks, self._cell_ns))

    def levels(self) -> list[Level]:
        """The whole run, then what is finer: half of the blocks for each."""
        if self.whole is not None:
            return [Level(0, self.end_ns, 0, _joined(self.whole))] if self.whole else []
        finer = []
        for parts, (begin, end) in zip(self.fine, self.stretches, strict=True):
            blocks = _joined(parts)
            few, resolution = _coarser(
                blocks, max(1, (end - begin) >> 16), MOST_BLOCKS // 2 // max(1, len(self.stretches))
            )
            finer.append(Level(begin, end, resolution if len(few) < len(blocks) else 0, few))
        left = MOST_BLOCKS - sum(len(level.blocks) for level in finer)
        coarse, resolution = _coarser(_joined(self.coarse), self._cell_ns, left)
        return [Level(0, self.end_ns, resolution, coarse), *finer]


def _of_ranks(run: _Run, wanted: PageOptions, names: _Names) -> Iterator[tuple[dict[Line, Blocks], int]]:
    """The lines of each rank with all that is on them, and how many events and steps it has, drawn or not."""
    trace = timeline(run.tables)  # type: ignore[arg-type]
    rank_of = {process: rank for rank, process in run.processes.items()}
    trace.actors = [actor_of for actor_of in trace.actors if rank_of.get(actor_of.process) in set(run.ranks)]
    steps = {rank_steps.rank: rank_steps for rank_steps in run.steps.ranks}
    devices: dict[int, list[tuple[Any, ...]]] = {}
    for row in [] if run.is_large else run.tables.query(DEVICE_SQL):  # no question may be asked while slices are read
        devices.setdefault(row[0], []).append(row)
    by_process = groupby([] if run.is_large else trace.slices(), lambda block: block.process)
    following = next(by_process, None)
    for actor in trace.actors:
        rank, blocks, count = rank_of[actor.process], dict[Line, Blocks](), 0
        if following is not None and following[0] == actor.process:
            slices = list(following[1])
            tracks = {track.number: track for track in trace.tracks.values() if track.process == actor.process}
            blocks = _lines_of(f"rank {rank}", slices, tracks, run.begin_ns, names, wanted)
            following = next(by_process, None)
            count = sum(len(block.start_ns) for block in slices if not _is_steps(block, tracks))
        if rank in steps:
            count += len(steps[rank].number)
            blocks |= _steps(run, steps[rank]) | _parts(run, steps[rank], names)
        yield blocks | _device_parts(run, rank, devices.get(actor.process, []), names), count


def _is_steps(block: Slices, tracks: dict[int, Track]) -> bool:
    return bool(len(block.track)) and tracks[int(block.track[0])].kind == STEPS


def _lines_of(
    rank: str, slices: Sequence[Slices], tracks: dict[int, Track], begin_ns: int, names: _Names, wanted: PageOptions
) -> dict[Line, Blocks]:
    """Slices by track and by how deep they lie within others."""
    if not slices:
        return {}
    codes = np.concatenate([_codes(block, tracks, names, wanted) for block in slices])
    track = np.concatenate([block.track for block in slices])
    start = np.concatenate([block.start_ns for block in slices]) - begin_ns
    end = np.concatenate([block.end_ns for block in slices]) - begin_ns
    last = int(max(end.max(initial=0), start.max(initial=0)))
    end = np.where(end < start, last, end)  # has not ended
    blocks: dict[Line, Blocks] = {}
    for number in np.unique(track).tolist():
        rows = np.flatnonzero(track == number)
        of = tracks[number]
        if of.lane >= LANES or of.kind == STEPS:
            continue
        depth = _depth(start[rows], end[rows])
        for level in range(min(DEEPEST, int(depth.max(initial=0)) + 1)):
            at = rows[depth == level]
            name = of.name if of.lane == 0 and level == 0 else f"{of.name} {'›' * (of.lane + level)}"
            blocks[Line(rank, of.kind, name)] = _blocks(start[at], end[at], codes[at])
    return blocks


def _codes(block: Slices, tracks: dict[int, Track], names: _Names, wanted: PageOptions) -> Array:
    """The place of each slice's name; a name has the kind that it has on its first track."""
    values, codes = block.name.values, block.name.codes
    kinds = {number: tracks[number].kind for number in np.unique(block.track).tolist()}
    places = np.full(len(values), -1)
    used, first = np.unique(codes, return_index=True)
    for code, row in zip(used.tolist(), first.tolist(), strict=True):
        kind = kinds[int(block.track[row])]
        places[code] = _place(str(values[code]), kind, names, wanted)
    return places[codes]


def _place(name: str, kind: str, names: _Names, wanted: PageOptions) -> int:
    if kind == STEPS:
        return 0
    category = COMMUNICATION if kind == "communicator" or name.startswith("MPI_") else kind_of(name)
    shown = "" if category == COMPUTE else category if category == COMMUNICATION else "copy"
    return names.place(wanted.called.get(name, name)[:LONGEST_NAME], shown)


def _depth(start: Array, end: Array) -> Array:
    """In how many others of its track each lies."""
    slices, opens = in_order(start, end)
    level = np.cumsum(np.where(opens, 1, -1))
    depth = np.zeros(len(start), np.int64)
    depth[slices[opens]] = level[opens] - 1
    return np.maximum(depth, 0)


def _blocks(start: Array, end: Array, names: Array) -> Blocks:
    order = np.argsort(start, kind="stable")
    start, end = start[order].astype(np.int64), end[order].astype(np.int64)
    ones = np.ones(len(start), np.int64)
    return Blocks(np.zeros(len(start), np.int64), start, end, names[order].astype(np.int64), ones, end - start)


def _steps(run: _Run, rank_steps: Any) -> dict[Line, Blocks]:
    """In place of a name each has its number."""
    start = run.since_begin(rank_steps.rank, rank_steps.begin_ns)
    steps = _blocks(start, start + rank_steps.length_ns.astype(np.int64), rank_steps.number)
    return {Line(f"rank {rank_steps.rank}", STEPS, "steps"): steps}


ORDER = (
    *PARTS[:4],
    "compute",
    "exposed",
    *(part for part in PARTS[4:] if part != "compute"),
)  # of the loop: collectives are exposed after the backward pass


def _parts(run: _Run, rank_steps: Any, names: _Names) -> dict[Line, Blocks]:
    """The parts of each step, one after the other."""
    own_ns = {**{name: rank_steps.own[name] for name in rank_steps.own}, "exposed": rank_steps.exposed_ns}
    parts = [(name, own_ns[name]) for name in ORDER if name in own_ns and own_ns[name].any()]
    start = run.since_begin(rank_steps.rank, rank_steps.begin_ns)
    places = {name: names.place(TITLES.get(name, name), f"{name}_ns") for name, _ in parts}
    return {
        Line(f"rank {rank_steps.rank}", "parts", "parts"): _in_a_row(start, [(places[name], ns) for name, ns in parts])
    }


DEVICE_SQL = f"""
    SELECT d.process, device, d.begin_ns, {", ".join(f"d.{name}_ns" for name in BUSY)}, {", ".join(IDLE.values())}
    FROM device_steps d LEFT JOIN steps s USING (process, number) WHERE NOT d.cut ORDER BY ALL"""
DEVICE_TITLES = {"compute_ns": "compute", "exposed_ns": TITLES["exposed"], "copy_ns": "copies", **IDLE_WORDS}


def _device_parts(run: _Run, rank: int, rows: Sequence[tuple[Any, ...]], names: _Names) -> dict[Line, Blocks]:
    """The same of the steps of each GPU, on its own clock."""
    blocks: dict[Line, Blocks] = {}
    for device in sorted({row[1] for row in rows}):
        device_rows = [row for row in rows if row[1] == device]
        values = np.array([row[3:] for row in device_rows], np.float64)
        start = run.since_begin(rank, np.array([row[2] for row in device_rows], np.int64))
        used = [(at, f"{name}_ns") for at, name in enumerate((*BUSY, *IDLE)) if values[:, at].any()]
        parts = [(names.place(DEVICE_TITLES[name], name), values[:, at]) for at, name in used]
        blocks[Line(f"rank {rank}", "gpu parts", f"GPU {device} parts")] = _in_a_row(start, parts)
    return blocks


def _in_a_row(start: Array, parts: Sequence[tuple[int, Array]]) -> Blocks:
    starts, ends, places, at = [], [], [], start.astype(np.float64)
    for place, length in parts:
        some = length > 0
        starts.append(at[some].astype(np.int64))
        ends.append((at + length)[some].astype(np.int64))
        places.append(np.full(int(some.sum()), place))
        at = at + length
    if not starts:
        return _blocks(np.zeros(0), np.zeros(0), np.zeros(0))
    return _blocks(*(np.concatenate(part) for part in (starts, ends, places)))
