"""What did the imports cost in all, and how much of it was seen?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.imports.trees import chosen, has_calls, sums
from rankscope.questions.selection import ALL, Selection
from rankscope.questions.wording import counted

# ---------------------------------------------------------------- what does metering imports itself cost here?
IMPORT_COST_COLUMNS = (
    Column("recorded", Unit.NAME, "Recorded"),
    Column(
        "wall_ns",
        Unit.NS,
        "Wall",
        "median over the rounds of the time from start to end; `rankscope run` itself included",
    ),
    Column("cpu_ns", Unit.NS, "CPU", "median over the rounds of user + system time, children included"),
    Column(
        "wall_ratio",
        Unit.NUMBER,
        "Wall ratio",
        "median over the rounds of wall ÷ wall of the bare run of the same round",
    ),
    Column(
        "cpu_ratio", Unit.NUMBER, "CPU ratio", "median over the rounds of CPU ÷ CPU of the bare run of the same round"
    ),
    Column("turns", Unit.COUNT, "Turns", "number of rounds"),
)
BARE = "nothing"

Took = tuple[int, int]  # wall and CPU time of one run


def import_cost(turns: Mapping[str, Sequence[Took]]) -> Table:
    """Medians of each way to run a command, and of the ratios to the bare run of the same round."""
    table = Table("import_cost", "Cost of metering", IMPORT_COST_COLUMNS, [])
    bare = turns[BARE]
    for name, took in turns.items():
        ratios: list[Cell] = [
            median(run[at] / max(1, other[at]) for run, other in zip(took, bare, strict=True)) for at in (0, 1)
        ]
        table.rows.append((name, median(run[0] for run in took), median(run[1] for run in took), *ratios, len(took)))
    table.notes.append(
        "Nothing: bare, without rankscope; what its second run differs by is noise. Ratios: medians of rounds."
    )
    return table


# ---------------------------------------------------------------- imports
IMPORTS_COLUMNS = (
    Column("processes", Unit.COUNT, "Processes", "number of processes that have modules or system calls"),
    Column("modules", Unit.COUNT, "Modules", "number of imports done"),
    Column("failed_imports", Unit.COUNT, "Failed imports", "number of imports that raised"),
    Column(
        "wall_ns",
        Unit.NS,
        "Import time, longest process",
        "sum over the modules that nothing else imports, in the busiest importing thread of the process with the "
        "longest",
    ),
    Column("cpu_ns", Unit.NS, "CPU time of imports", "sum of the modules' own CPU time, of the importing thread"),
    Column("calls", Unit.COUNT, "System calls", "number of system calls"),
    Column("opens", Unit.COUNT, "Opens", "calls of open, openat, openat2, creat"),
    Column("stats", Unit.COUNT, "Stats", "calls of stat, lstat, fstat, newfstatat, statx"),
    Column("reads", Unit.COUNT, "Reads", "calls of read, pread64, readv, preadv, preadv2"),
    Column("mmaps", Unit.COUNT, "Mmaps", "calls of mmap"),
    Column("failed", Unit.COUNT, "Failed calls", "calls that returned an error"),
    Column("missing", Unit.COUNT, "Of these: no such file", "calls that returned ENOENT: no such file"),
    Column("read_bytes", Unit.BYTES, "Read", "bytes that the reads returned"),
    Column(
        "call_ns",
        Unit.NS,
        "Time in calls",
        "time inside the calls, without those in which a thread only waits (`futex`, `poll`, `select`, `nanosleep`,"
        " `wait4` and their kin)",
    ),
    Column("interpreter_calls", Unit.COUNT, "Calls outside imports", "calls made outside any import"),
    Column(
        "path_operations",
        Unit.COUNT,
        "Path operations",
        "number of operations on paths (stat, open, access, readlink, list, exec); with `--imports paths`",
    ),
    Column("distinct_paths", Unit.COUNT, "Distinct paths", "number of different paths that `path_operations` name"),
    Column(
        "shared_objects",
        Unit.COUNT,
        "Shared objects",
        "number of libraries and extension modules loaded into the process during imports",
    ),
    Column("method", Unit.NAME, "Metered by", "how the calls were seen; a note says why no better method was used"),
    Column(
        "seen_share",
        Unit.SHARE,
        "Visible share",
        "share of all calls that the method can see: the smallest of the processes",
    ),
    Column(
        "lost_calls",
        Unit.COUNT,
        "Calls lost",
        "number of calls that did not fit into the rank files: they are in no other number",
    ),
    Column(
        "setup_ns",
        Unit.NS,
        "Set-up of the recorder",
        "what loading the recorder cost, summed over the processes; what metering costs per call: `rankscope "
        "imports … --cost`",
    ),
)
MODULES_SQL = """
    WITH mine AS (SELECT modules.* FROM modules JOIN ranks USING (process) WHERE {condition} AND module > 0),
    tops AS (SELECT process, thread, sum(wall_ns) AS wall_ns, min(module) AS first FROM mine
        WHERE parent = 0 GROUP BY process, thread)
    SELECT count(*), count(*) FILTER (failed), coalesce(sum(shared_objects), 0)::BIGINT,
        coalesce(sum(self_cpu_ns), 0)::BIGINT, (SELECT max(wall_ns)::BIGINT FROM tops) FROM mine"""
CALLS_SQL = f"""
    SELECT {sums()}, coalesce(sum(CASE WHEN module = 0 THEN calls END), 0)::BIGINT
    FROM system_calls JOIN ranks USING (process) WHERE {{condition}}"""
PATHS_SQL = """
    SELECT sum(times)::BIGINT, count(DISTINCT path) FROM paths JOIN ranks USING (process) WHERE {condition}"""
METHODS_SQL = """
    SELECT method, count(*), min(seen_share), string_agg(DISTINCT nullif(note::VARCHAR, ''), '; '),
        sum(calls_method.lost_calls)::BIGINT, sum(lost_paths)::BIGINT, sum(lost_modules)::BIGINT
    FROM calls_method JOIN ranks USING (process) WHERE {condition} GROUP BY method ORDER BY 2 DESC, 1"""


def imports(tables: Tables, selection: Selection = ALL) -> Table:
    """Sums over all processes, threads and children of the run; times of modules are always there, calls if metered."""
    condition = chosen(selection)
    table = Table("imports", "Imports", IMPORTS_COLUMNS, [], vertical=True)
    modules, failed, objects, cpu_ns, wall_ns = tables.query(MODULES_SQL.format(condition=condition))[0]
    if not modules and not has_calls(tables):
        return table
    processes, setup_ns = tables.query(f"""SELECT count(*), sum(setup_ns)::BIGINT FROM ranks WHERE {condition}
        AND (process IN (SELECT process FROM modules) OR process IN (SELECT process FROM system_calls))""")[0]
    counts: tuple[int | None, ...] = (None,) * 10
    operations = distinct = None
    if has_calls(tables):
        counts = tables.query(CALLS_SQL.format(condition=condition))[0]
        operations, distinct = tables.query(PATHS_SQL.format(condition=condition))[0]
    methods = tables.query(METHODS_SQL.format(condition=condition))
    shares = [row[2] for row in methods if row[2] is not None]
    method = ", ".join(f"{row[0]} ({row[1]})" if len(methods) > 1 else row[0] for row in methods)
    table.rows.append(
        (
            *(processes, modules, failed, wall_ns, cpu_ns, *counts),
            *(operations, distinct if operations else None, objects, method, min(shares, default=None)),
            *(sum(row[4] for row in methods) or None, setup_ns),
        )
    )
    _say(table, methods, operations, distinct)
    return table


def _say(table: Table, methods: list[tuple[object, ...]], operations: int | None, distinct: int | None) -> None:
    for method, processes, share, note, *_ in methods:
        if note:
            text = "" if share is None else f" and sees {100 * float(str(share)):.1f} % of the calls"
            table.notes.append(f"{method}, in {counted(int(str(processes)), 'process')}{text}: {note}")
    if operations and distinct:
        table.notes.append(f"{operations:,} operations on {distinct:,} distinct paths: the rest are repeats.")
    for at, name in enumerate(("calls", "paths", "modules"), 4):
        lost = sum(int(str(row[at])) for row in methods)
        if lost:
            table.warnings.append(f"{lost} {name} did not fit into the rank files: record with a larger --size")
