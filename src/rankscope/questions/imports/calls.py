"""Which system calls do the imports make?"""

from __future__ import annotations

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.imports.trees import CALL_COLUMNS, COUNTED, chosen, sums
from rankscope.questions.selection import ALL, Selection, arranged

# ---------------------------------------------------------------- why were the system calls of the imports made?
COUNT_COLUMNS = (
    *CALL_COLUMNS,
    Column("missing", Unit.COUNT, "Missing", "calls that returned ENOENT: no such file"),
    Column("read_bytes", Unit.BYTES, "Read", "bytes that the reads returned"),
    Column("call_ns", Unit.NS, "In calls", "time inside the calls that are more than waiting"),
)
IMPORT_CAUSES_COLUMNS = (
    Column("cause", Unit.NAME, "Cause", "`search`, `code`, `loader`, `module` or `interpreter`"),
    Column(
        "what",
        Unit.NAME,
        "What that is",
        "search: Python looks for the module in sys.path and in packages. code: its bytecode or source is read. "
        "loader: the dynamic loader opens and maps libraries. module: the module's own code runs. interpreter: no "
        "import was under way in that thread",
    ),
    Column("share", Unit.SHARE, "% of calls", "`calls` ÷ all calls"),
    *COUNT_COLUMNS,
    Column("distinct_paths", Unit.COUNT, "Distinct paths", "number of different paths looked up for this cause"),
)
CAUSES = {
    "search": "Python looks for the module",
    "code": "bytecode and source are read",
    "loader": "the dynamic loader looks for and maps libraries",
    "module": "the module's own code",
    "interpreter": "before, after and beside the imports",
}
IMPORT_CAUSES_SQL = f"""
    SELECT cause, {sums()} FROM system_calls JOIN ranks USING (process)
    WHERE {{condition}} GROUP BY cause ORDER BY calls DESC, cause"""
PATHS_SQL = """
    SELECT cause, count(DISTINCT path) FROM paths JOIN ranks USING (process) WHERE {condition} GROUP BY cause"""


def import_causes(tables: Tables, selection: Selection = ALL) -> Table:
    """The causes add up to all calls of the run."""
    condition = chosen(selection)
    rows = tables.query(IMPORT_CAUSES_SQL.format(condition=condition))
    distinct = dict(tables.query(PATHS_SQL.format(condition=condition)))
    total = sum(row[1] for row in rows)
    table = Table("import_causes", "Causes of the system calls", IMPORT_CAUSES_COLUMNS, [])
    for cause, *counts in rows:
        share = counts[COUNTED.index("calls")] / total if total else None
        table.rows.append((cause, CAUSES.get(cause, ""), share, *counts, distinct.get(cause)))
    return arranged(table, selection)


# ---------------------------------------------------------------- on which file systems are the files of the imports?
IMPORT_MOUNTS_COLUMNS = (
    Column("mount", Unit.NAME, "Mount point", "mount point; calls that name no file are one line"),
    Column("type", Unit.NAME, "Type", "of the file system"),
    Column("share", Unit.SHARE, "% of calls", "`calls` ÷ all calls"),
    *COUNT_COLUMNS,
    Column("mean_ns", Unit.NS, "Per call", "`call_ns` ÷ `calls`"),
)
IMPORT_MOUNTS_SQL = f"""
    WITH kinds AS (SELECT process, mount, any_value(fs_type) AS fs_type FROM mounts GROUP BY process, mount)
    SELECT coalesce(mount, ''), coalesce(fs_type, ''), {sums()}
    FROM system_calls JOIN ranks USING (process) LEFT JOIN kinds USING (process, mount)
    WHERE {{condition}} GROUP BY 1, 2 ORDER BY calls DESC, 1"""


def import_mounts(tables: Tables, selection: Selection = ALL) -> Table:
    """By mount point and type; calls that name no file (memory, signals, sockets) are one line without either."""
    rows = tables.query(IMPORT_MOUNTS_SQL.format(condition=chosen(selection)))
    total = sum(row[2] for row in rows)
    table = Table("import_mounts", "File systems", IMPORT_MOUNTS_COLUMNS, [])
    for mount, kind, *counts in rows:
        calls, call_ns = counts[0], counts[-1]
        share = calls / total if total else None
        table.rows.append((mount or "(no file)", kind, share, *counts, call_ns / calls if calls else None))
    return arranged(table, selection)


# ---------------------------------------------------------------- which module asks which file system for how much?
IMPORT_MODULE_MOUNTS_COLUMNS = (
    Column("module", Unit.NAME, "Module"),
    Column("mount", Unit.NAME, "Mount point"),
    Column("type", Unit.NAME, "Type", "of the file system"),
    *COUNT_COLUMNS,
)
IMPORT_MODULE_MOUNTS_SQL = f"""
    WITH kinds AS (SELECT process, mount, any_value(fs_type) AS fs_type FROM mounts GROUP BY process, mount),
    names AS (SELECT process, module, name FROM modules)
    SELECT coalesce(name, '(interpreter)'), mount, coalesce(fs_type, ''), {sums()}
    FROM system_calls JOIN ranks USING (process) LEFT JOIN kinds USING (process, mount)
    LEFT JOIN names USING (process, module)
    WHERE {{condition}} AND mount <> '' GROUP BY 1, 2, 3 ORDER BY calls DESC, 1, 2"""


def import_module_mounts(tables: Tables, selection: Selection = ALL) -> Table:
    """Each module's own calls by mount point, without those that name no file."""
    rows = tables.query(IMPORT_MODULE_MOUNTS_SQL.format(condition=chosen(selection)))
    return arranged(
        Table("import_module_mounts", "Modules by file system", IMPORT_MODULE_MOUNTS_COLUMNS, rows), selection
    )


# ---------------------------------------------------------------------------------------------------------------------
# Which paths do the imports ask for, and how often the same again?
IMPORT_PATHS_COLUMNS = (
    Column("path", Unit.NAME, "Path", "as it was asked for"),
    Column("times", Unit.COUNT, "Times", "number of operations on the path"),
    Column("missing", Unit.COUNT, "Missing", "of `times`: answered with ENOENT"),
    Column("stats", Unit.COUNT, "Stats", "of `times`: stat"),
    Column("opens", Unit.COUNT, "Opens", "of `times`: open"),
    Column("others", Unit.COUNT, "Others", "of `times`: access, readlink, list, exec"),
    Column("modules", Unit.COUNT, "Modules", "number of different modules that asked"),
    Column("most_by", Unit.NAME, "Mostly by", "the module that asked most"),
    Column("most_cause", Unit.NAME, "Main cause", "the cause for which it was asked most"),
)
IMPORT_PATHS_SQL = """
    WITH mine AS (
        SELECT path, operation, result, times, cause, coalesce(modules.name, '(interpreter)') AS name
        FROM paths JOIN ranks USING (process) LEFT JOIN modules USING (process, module) WHERE {condition}),
    by_module AS (SELECT path, name, cause, sum(times) AS times FROM mine GROUP BY ALL)
    SELECT path, sum(times)::BIGINT, sum(CASE WHEN result = 'ENOENT' THEN times ELSE 0 END)::BIGINT,
        sum(CASE WHEN operation = 'stat' THEN times ELSE 0 END)::BIGINT,
        sum(CASE WHEN operation = 'open' THEN times ELSE 0 END)::BIGINT,
        sum(CASE WHEN operation NOT IN ('stat', 'open') THEN times ELSE 0 END)::BIGINT,
        count(DISTINCT name),
        (SELECT arg_max(name, (times, name)) FROM by_module WHERE by_module.path = mine.path),
        (SELECT arg_max(cause, (times, cause)) FROM by_module WHERE by_module.path = mine.path)
    FROM mine GROUP BY path ORDER BY 2 DESC, path"""


def import_paths(tables: Tables, selection: Selection = ALL) -> Table:
    """One line for each distinct path, the most asked for first."""
    rows = tables.query(IMPORT_PATHS_SQL.format(condition=chosen(selection)))
    table = Table("import_paths", "Paths", IMPORT_PATHS_COLUMNS, rows)
    total = sum(row[1] for row in rows)
    if rows:
        table.notes.append(f"{total:,} operations on {len(rows):,} distinct paths.")
    return arranged(table, selection)


# ---------------------------------------------------------------- calls
CALLS_COLUMNS = (
    Column("call", Unit.NAME, "Call", "name of the system call"),
    Column("share", Unit.SHARE, "% of the time", "`total_ns` ÷ sum of `total_ns`"),
    Column("calls", Unit.COUNT, "Calls", "number of calls"),
    Column("total_ns", Unit.NS, "Time", "time inside these calls"),
    Column("mean_ns", Unit.NS, "Mean", "`total_ns` ÷ `calls`"),
    Column("failed", Unit.COUNT, "Failed", "calls that returned an error"),
    Column("missing", Unit.COUNT, "Missing", "calls that returned ENOENT: no such file"),
    Column("bytes", Unit.BYTES, "Returned", "bytes that reads returned"),
    Column("strace_calls", Unit.COUNT, "strace", "calls that a loaded `strace -c` of the same command counted"),
)
CALLS_SQL = """
    WITH seen AS (
        SELECT call, sum(calls)::BIGINT AS calls, sum(total_ns)::BIGINT AS total_ns, sum(failed)::BIGINT AS failed,
            sum(missing)::BIGINT AS missing, sum(bytes)::BIGINT AS bytes
        FROM system_calls JOIN ranks USING (process) WHERE {condition} GROUP BY call),
    told AS (
        SELECT name AS call, sum(calls)::BIGINT AS strace FROM tallies
        WHERE layer = 'calls' AND kind = 'call' GROUP BY name)
    SELECT coalesce(seen.call, told.call), calls, total_ns, failed, missing, bytes, strace
    FROM seen FULL JOIN told USING (call) ORDER BY coalesce(calls, strace) DESC, 1"""


def import_calls(tables: Tables, selection: Selection = ALL) -> Table:
    """One line for each system call; beside it what a loaded `strace -c` of the same command says."""
    rows = tables.query(CALLS_SQL.format(condition=chosen(selection)))
    total = sum(row[2] or 0 for row in rows)
    table = Table("import_calls", "System calls", CALLS_COLUMNS, [])
    for call, calls, total_ns, failed, missing, size, strace in rows:
        share = total_ns / total if total and total_ns is not None else None
        mean = total_ns / calls if calls and total_ns is not None else None
        table.rows.append((call, share, calls, total_ns, mean, failed, missing, size, strace))
    strace_total = sum(row[6] or 0 for row in rows)
    if strace_total and any(row[1] for row in rows):
        seen = sum(row[1] or 0 for row in rows)
        share = 100 * seen / strace_total
        table.notes.append(f"{seen:,} calls here, {strace_total:,} in the loaded strace: {share:.1f} %.")
    return arranged(table, selection)
