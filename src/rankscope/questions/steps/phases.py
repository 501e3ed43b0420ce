"""What does a run go through from its start to its end, and how long does each phase take?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import Any
from weakref import WeakKeyDictionary

from rankscope.model.records import COLLECTIVE_LAYERS, PHASES, Layer
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.data import steps_of

# ---------------------------------------------------------------------------------------------------------------------
# From the start of each process to its end: where did the time before, between and after the steps go?
# in the order in which a program usually passes through them
SEGMENT_FORMULAS = {
    "start": "from process start until Python is up",
    "interpreter": "from when Python is up to the next mark",
    "imports": "import of torch",
    "before init": "from the end of the imports to init",
    "init": "inside MPI_Init, init_process_group or hvd.init",
    "after init": "from the end of init to the first collective or step",
    "first collective": "inside the first collective, wait for others included",
    "before steps": "from the end of the first collective, or of the imports where there is no init, to the first step",
    "first step": "inside the first step, without the first collective where that lies in it",
    "steps": "from the end of the first step to the end of the last",
    "after steps": "from the end of the last step on",
    "after first collective": "from the end of the first collective on, where no steps are known",
    "program": "from the end of the imports or of init on, where neither collectives nor steps are known; without init "
    "and steps also what precedes the first collective",
    "finalize": "from MPI_Finalize or destroy_process_group to the end of the process",
}
SEGMENTS = tuple(SEGMENT_FORMULAS)
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
    ends = {rank_steps.rank: rank_steps for rank_steps in steps_of(tables).ranks}
    result = []
    for process, rank, host, started_ns, ended_ns in tables.query(sql):
        marks_of = {**from_log.get(process, {}), **marks.get(process, {})}
        if process in from_log:  # a mark of MPI does not name the call
            marks_of[FIRST] = (marks_of[FIRST][0], from_log[process][FIRST][1])
        if rank in ends:
            first, last = ends[rank].begin_ns[0], ends[rank].begin_ns[-1] + ends[rank].length_ns[-1]
            if int(ends[rank].number[0]) == 1:
                marks_of.setdefault("first_step_begin", (int(first), ""))
                marks_of.setdefault("first_step_end", (int(first + ends[rank].length_ns[0]), ""))
            else:  # which was the first is not known, but these are steps
                marks_of.setdefault("first_step_end", (int(first), ""))
            marks_of["last_step_end"] = (int(last), "")
        if marks_of and started_ns is not None and ended_ns is not None and ended_ns > started_ns:
            marks_of["process_start"] = (started_ns, "")
            result.append(_waterfall(rank, host, started_ns, ended_ns, marks_of))
            _rename(result[-1].segments, set(marks_of))
    return result


def _rename(segments: dict[str, int], marks: set[str]) -> None:
    """What leads to no init is not before it, and what leads to no step is the program's work."""
    has_steps = bool({"first_step_begin", "first_step_end"} & marks)
    has_collectives = bool({"first_collective_begin", "first_collective_end"} & marks)
    names = {}
    if not has_steps:
        names = {"before steps": "after first collective"} if has_collectives else {"after init": "program"}
    if not {"init_begin", "init_end"} & marks:
        names["before init"] = "before steps" if has_steps else "program"
    for name, better in names.items():
        if name in segments:
            segments[better] = segments.get(better, 0) + segments.pop(name)


def _first_collectives(tables: Tables) -> dict[int, dict[str, tuple[int, str]]]:
    sql = f"""
        SELECT process, min(start_ns),
            arg_min(end_ns, (start_ns, end_ns, name)), arg_min(name, (start_ns, end_ns, name))
        FROM untraced_events
        WHERE layer IN {sql_list(COLLECTIVE_LAYERS)} AND sequence = 1 AND end_ns IS NOT NULL GROUP BY process"""
    return {
        process: {"first_collective_begin": (begin, name), "first_collective_end": (end, name)}
        for process, begin, end, name in tables.query(sql)
    }


def _waterfall(rank: int, host: str, start: int, end: int, marks: dict[str, tuple[int, str]]) -> Waterfall:
    waterfall = Waterfall(rank, host, end - start)
    opened: list[str] = []
    passed, now = "process_start", start
    for name, (at_ns, what) in sorted(marks.items(), key=lambda item: (item[1][0], ORDER.get(item[0], 0))):
        at = min(max(at_ns, now), end)
        segment = opened[-1] if opened else SINCE[passed]
        waterfall.segments[segment] = waterfall.segments.get(segment, 0) + at - now
        now = at
        if name in OPENS:
            opened.append(OPENS[name])
            waterfall.names[OPENS[name]] = what
        if CLOSES.get(name) in opened:
            opened.remove(CLOSES[name])
        if name in SINCE and ORDER[name] > ORDER[passed]:
            passed = name
    segment = opened[-1] if opened else SINCE[passed]
    waterfall.segments[segment] = waterfall.segments.get(segment, 0) + end - now
    return waterfall


# ---------------------------------------------------------------- phases
PHASES_COLUMNS = (
    Column(
        "phase",
        Unit.NAME,
        "Phase",
        "the innermost of imports, init, first collective and first step that is under way, else the last one passed",
    ),
    Column("what", Unit.NAME, "What", "the function that began or ended it, on most ranks"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks that have the phase"),
    Column("share", Unit.SHARE, "% of elapsed", "sum of the phase over the ranks ÷ sum of `elapsed_ns`"),
    Column("min_ns", Unit.NS, "Min", "shortest of the ranks"),
    Column("median_ns", Unit.NS, "Median", "median of the ranks"),
    Column("max_ns", Unit.NS, "Max", "longest of the ranks"),
    Column("longest_rank", Unit.NAME, "Longest on", "the rank with `max_ns`"),
    Column("longest_host", Unit.NAME, "Host"),
)


def phases(tables: Tables, selection: Selection = ALL) -> Table:
    """The waterfall as a spread over the ranks, in the order of time."""
    chosen = chosen_of(tables, selection)
    elapsed = sum(waterfall.elapsed_ns for waterfall in chosen)
    table = Table("phases", "Phases", PHASES_COLUMNS, [])
    for name in SEGMENTS:
        having = [(waterfall.segments[name], waterfall) for waterfall in chosen if waterfall.segments.get(name)]
        if having:
            table.rows.append(_row(name, having, elapsed))
    return arranged(table, selection)


def _row(name: str, having: list[tuple[int, Waterfall]], elapsed: int) -> tuple[Cell, ...]:
    lengths = [length for length, _ in having]
    longest = max(having, key=lambda pair: pair[0])[1]
    usual_name = Counter(waterfall.names.get(name, "") for _, waterfall in having).most_common(1)[0][0]
    share = sum(lengths) / elapsed if elapsed else None
    return (
        *(name, usual_name, len(having), share),
        *(min(lengths), median(lengths), max(lengths)),
        *(longest.rank, longest.host),
    )


def chosen_of(tables: Tables, selection: Selection) -> list[Waterfall]:
    """The waterfalls of the selected ranks."""
    return [
        waterfall for waterfall in waterfalls(tables) if selection.ranks is None or waterfall.rank in selection.ranks
    ]


# ---------------------------------------------------------------------------------------------------------------------
# What does each rank go through from its start to its end?
PHASE_RANKS_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("elapsed_ns", Unit.NS, "Elapsed", "from process start to end"),
    *(
        Column(f"{name.replace(' ', '_')}_ns", Unit.NS, name.capitalize(), formula)
        for name, formula in SEGMENT_FORMULAS.items()
    ),
)


def phase_ranks(tables: Tables, selection: Selection = ALL) -> Table:
    """The waterfall rank by rank: the phases add up to the elapsed time."""
    table = Table("phase_ranks", "Phases by rank", PHASE_RANKS_COLUMNS, [])
    for waterfall in chosen_of(tables, selection):
        table.rows.append((waterfall.rank, waterfall.elapsed_ns, *(waterfall.segments.get(name) for name in SEGMENTS)))
    return arranged(table, selection)


# ---------------------------------------------------------------- what did each phase spend in which call?
PHASE_CALLS_COLUMNS = (
    Column("phase", Unit.NAME, "Phase", "start, imports, init, first_collective, first_step, steady, finalize"),
    Column("layer", Unit.NAME, "Layer"),
    Column("name", Unit.NAME, "Name", "function or range"),
    Column("calls", Unit.COUNT, "Calls", "number of calls"),
    Column("total_ns", Unit.NS, "Time", "sum of the time inside the calls"),
    Column("phase_share", Unit.SHARE, "% of its phase", "`total_ns` ÷ that of all calls of the layer in the phase"),
    Column("mean_ns", Unit.NS, "Mean", "`total_ns` ÷ `calls`"),
    Column("max_ns", Unit.NS, "Max", "longest call"),
    Column(
        "bytes",
        Unit.BYTES,
        "Bytes",
        "sum of the bytes of the calls; of Gloo's sends and receives by their messages, where the log has all of them",
    ),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks that made such a call"),
)


def _with_messages(tables: Tables, selection: Selection, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The bytes of sends and receives that torch shows as ranges, which have none."""
    sql = f"""SELECT message_ends.phase, name, count(*), sum(bytes)::BIGINT FROM message_ends JOIN ranks USING (process)
        WHERE {selection.condition} AND layer = '{Layer.GLOO}' GROUP BY 1, 2"""
    sent = {(phase, name): (calls, size) for phase, name, calls, size in tables.query(sql)}

    def with_message_columns(row: tuple[Any, ...]) -> tuple[Any, ...]:
        calls, size = sent.get((row[0], row[2]), (0, None))
        is_whole = row[1] == Layer.TORCH and calls == row[3]
        return (*row[:8], size, *row[9:]) if is_whole else row

    return [with_message_columns(row) for row in rows]


def phase_calls(tables: Tables, selection: Selection = ALL) -> Table:
    """What each phase spent in which call, most time first within a phase."""
    sql = f"""
        SELECT tallies.phase, layer, name, sum(calls)::BIGINT, sum(total_ns), sum(total_ns) / sum(sum(total_ns)) OVER
            (PARTITION BY tallies.phase, layer), sum(total_ns) / nullif(sum(calls), 0), max(max_ns),
            CASE layer WHEN '{Layer.TORCH}' THEN nullif(sum(bytes), 0) ELSE sum(bytes) END::BIGINT,
            count(DISTINCT process)
        FROM tallies JOIN ranks USING (process)
        WHERE {selection.condition} AND tallies.phase <> '' AND (kind = 'call' OR layer = 'gloo')
            AND layer IN {sql_list([*COLLECTIVE_LAYERS, Layer.TORCH, Layer.CUDA_API])} AND ranks.tool = ''
        GROUP BY tallies.phase, layer, name"""
    order = {name: at for at, name in enumerate(PHASES)}
    rows = _with_messages(tables, selection, tables.query(sql))
    ordered = sorted(rows, key=lambda row: (order.get(row[0], len(order)), -row[4]))
    return arranged(Table("phase_calls", "Calls by phase", PHASE_CALLS_COLUMNS, ordered), selection)
