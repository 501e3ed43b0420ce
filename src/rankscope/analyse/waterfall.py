"""From the start of each process to its end: where did the time before, between and after the steps go?"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from rankscope.model import Tables
from rankscope.questions.steps.data import steps_of

# in the order in which a program usually passes through them; what each means: docs/metrics.md
SEGMENTS = (
    "start",
    "interpreter",
    "imports",
    "before init",
    "init",
    "after init",
    "first collective",
    "before steps",
    "first step",
    "steps",
    "after steps",
    "finalize",
)
OPENS = {
    "import_begin": "imports",
    "init_begin": "init",
    "first_collective_begin": "first collective",
    "first_step_begin": "first step",
}
CLOSES = {
    "import_end": "imports",
    "init_end": "init",
    "first_collective_end": "first collective",
    "first_step_end": "first step",
}
# what a process is in between, by the latest of these that it has passed
SINCE = {
    "process_start": "start",
    "interpreter": "interpreter",
    "import_end": "before init",
    "init_end": "after init",
    "first_collective_end": "before steps",
    "first_step_end": "steps",
    "last_step_end": "after steps",
    "finalize": "finalize",
}
FIRST = "first_collective_begin"
ORDER = {name: at for at, name in enumerate(SINCE)}


@dataclass(slots=True)
class Waterfall:
    """One rank's way from start to end; the segments add up to elapsed_ns."""

    rank: int
    host: str
    elapsed_ns: int
    segments: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # what it was: MPI_Init_thread, init_process_group …


_KEPT: WeakKeyDictionary[Tables, list[Waterfall]] = WeakKeyDictionary()


def waterfalls(tables: Tables) -> list[Waterfall]:
    """Of every rank that left marks or steps, or whose first collective is in its log; in the order of ranks."""
    if tables not in _KEPT:
        _KEPT[tables] = _waterfalls(tables)
    return _KEPT[tables]


def _waterfalls(tables: Tables) -> list[Waterfall]:
    sql = "SELECT process, rank, host, started_ns, ended_ns FROM ranks WHERE role = 'rank' AND tool = '' ORDER BY rank"
    marks: dict[int, dict[str, tuple[int, str]]] = {}
    for process, name, at_ns, what in tables.query("SELECT process, name, at_ns, what FROM marks"):
        marks.setdefault(process, {})[name] = (at_ns, what)
    from_log = _first_collectives(tables)
    ends = {one.rank: one for one in steps_of(tables).ranks}
    made = []
    for process, rank, host, started_ns, ended_ns in tables.query(sql):
        found = {**from_log.get(process, {}), **marks.get(process, {})}
        if process in from_log:  # a mark of MPI does not name the call
            found[FIRST] = (found[FIRST][0], from_log[process][FIRST][1])
        if rank in ends:
            first, last = ends[rank].begin_ns[0], ends[rank].begin_ns[-1] + ends[rank].length_ns[-1]
            if int(ends[rank].number[0]) == 1:
                found.setdefault("first_step_begin", (int(first), ""))
                found.setdefault("first_step_end", (int(first + ends[rank].length_ns[0]), ""))
            found["last_step_end"] = (int(last), "")
        if found and started_ns is not None and ended_ns is not None and ended_ns > started_ns:
            found["process_start"] = (started_ns, "")
            made.append(_waterfall(rank, host, started_ns, ended_ns, found))
    return made


def _first_collectives(tables: Tables) -> dict[int, dict[str, tuple[int, str]]]:
    sql = """SELECT process, min(start_ns), arg_min(end_ns, start_ns), arg_min(name, start_ns) FROM untraced_events
        WHERE layer IN ('mpi', 'gloo', 'nccl') AND sequence = 1 AND end_ns IS NOT NULL GROUP BY process"""
    return {
        process: {"first_collective_begin": (begin, name), "first_collective_end": (end, name)}
        for process, begin, end, name in tables.query(sql)
    }


def _waterfall(rank: int, host: str, start: int, end: int, found: dict[str, tuple[int, str]]) -> Waterfall:
    made = Waterfall(rank, host, end - start)
    opened: list[str] = []
    passed, now = "process_start", start
    for name, (at_ns, what) in sorted(found.items(), key=lambda item: (item[1][0], ORDER.get(item[0], 0))):
        at = min(max(at_ns, now), end)
        segment = opened[-1] if opened else SINCE[passed]
        made.segments[segment] = made.segments.get(segment, 0) + at - now
        now = at
        if name in OPENS:
            opened.append(OPENS[name])
            made.names[OPENS[name]] = what
        if CLOSES.get(name) in opened:
            opened.remove(CLOSES[name])
        if name in SINCE and ORDER[name] > ORDER[passed]:
            passed = name
    segment = opened[-1] if opened else SINCE[passed]
    made.segments[segment] = made.segments.get(segment, 0) + end - now
    return made
