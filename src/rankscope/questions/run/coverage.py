"""What was seen of the job, and what was not?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankscope.model.records import COLLECTIVE_LAYERS, Layer, Role
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.questions.selection import ALL, Selection
from rankscope.questions.wording import counted, ending_text, ranges, rank_words

# ---------------------------------------------------------------- what did the recording itself cost?
OVERHEAD_COLUMNS = (
    Column("which", Unit.NAME, "Rank with", "the ranks with the least, median and largest `share`"),
    Column("rank", Unit.NAME, "Rank"),
    Column(
        "cost_ns",
        Unit.NS,
        "Recording, at least",
        "`steps_cost_ns` + `gpu_cost_ns` + (`calls` − `collectives`) × `call_cost_ns` + `collectives` × the larger of "
        "`call_cost_ns` and `collective_cost_ns`: a lower bound, because what is not measured costs something too",
    ),
    Column("share", Unit.SHARE, "% of elapsed, at least", "(`cost_ns` + `setup_ns`) ÷ `elapsed_ns` of the process"),
    Column(
        "calls", Unit.COUNT, "Calls", "number of updates of tallies: calls, and completions of nonblocking operations"
    ),
    Column("collectives", Unit.COUNT, "Collectives", "number of collectives that left a log record"),
    Column(
        "call_cost_ns",
        Unit.NS,
        "Per call",
        "cost of recording one call, as calibrated in that process at its start; with `--trace`, its record there "
        "included",
    ),
    Column(
        "collective_cost_ns",
        Unit.NS,
        "Per collective",
        "cost of recording one collective with its log record, as calibrated in that process at its start",
    ),
    Column(
        "steps_cost_ns",
        Unit.NS,
        "At ends of steps",
        "measured in that process: time in which the recorder asked the system for CPU time, faults, switches and run "
        "delay, at ends of steps",
    ),
    Column(
        "gpu_cost_ns",
        Unit.NS,
        "GPU records",
        "`gpu_windows.spent_ns`: measured where the GPUs are recorded in windows, and 0 elsewhere",
    ),
    Column("setup_ns", Unit.NS, "Set-up", "time that loading the recorder took"),
)
SQL = """
    WITH counted AS (SELECT process, sum(calls)::BIGINT AS calls FROM tallies GROUP BY process),
    logged AS (SELECT process, sum(collectives)::BIGINT AS collectives FROM groups GROUP BY process),
    costs AS (
        SELECT rank, coalesce(calls, 0) AS calls, least(coalesce(collectives, 0), coalesce(calls, 0)) AS collectives,
            call_cost_ns, collective_cost_ns, coalesce(steps_cost_ns, 0) AS steps_cost_ns,
            coalesce(spent_ns, 0) AS gpu_cost_ns, setup_ns, elapsed_ns
        FROM ranks LEFT JOIN counted USING (process) LEFT JOIN logged USING (process)
            LEFT JOIN gpu_recordings USING (process)
        WHERE {condition} AND call_cost_ns IS NOT NULL)
    SELECT rank,
        steps_cost_ns + gpu_cost_ns + (calls - collectives) * call_cost_ns
            + collectives * greatest(call_cost_ns, collective_cost_ns) AS cost_ns,
        elapsed_ns, calls, collectives, call_cost_ns, collective_cost_ns, steps_cost_ns, gpu_cost_ns,
        setup_ns
    FROM costs ORDER BY (cost_ns + setup_ns) / nullif(elapsed_ns, 0), rank"""


NOT_MEASURED = [
    "Measured: set-up, and the ends of steps. Calls: their number × the cost of one, measured in a loop with warm "
    "caches at the start of the process. % of elapsed: recording and set-up, over the whole process.",
    "Not included: Python's calls into the recorder (some µs for each range, backward and optimizer step), CUPTI's "
    "work for kernel records (not measured with --cuda exact), evicted caches. Only alternating bare "
    "and recorded runs show the whole cost.",
]


def overhead(tables: Tables, selection: Selection = ALL) -> Table:
    """What recording cost at least, for the least, median and most burdened rank, and what is not in it."""
    rows = tables.query(SQL.format(condition=selection.condition))
    table = Table("overhead", "Cost of recording", OVERHEAD_COLUMNS, [])
    places = {"minimum": 0, "median": (len(rows) - 1) // 2, "maximum": len(rows) - 1} if rows else {}
    table.rows = [_row(which, rows[at]) for which, at in places.items()]
    if rows:
        table.notes += NOT_MEASURED
    return table


def _row(which: str, row: tuple[Any, ...]) -> tuple[Cell, ...]:
    rank, cost_ns, elapsed_ns, calls, collectives, per_call, per_collective, *measured, setup_ns = row
    share = (cost_ns + setup_ns) / elapsed_ns if elapsed_ns else None
    return (
        which,
        rank,
        cost_ns,
        share,
        calls,
        collectives,
        per_call or None,
        per_collective or None,
        *measured,
        setup_ns,
    )


# ---------------------------------------------------------------- coverage
COVERAGE_COLUMNS = (
    Column(
        "what",
        Unit.NAME,
        "What",
        "what was counted: expected and seen ranks, hosts, ranks read on their nodes, other processes, ends, "
        "losses, entry points of the MPI library and launching functions of devices that are not intercepted, "
        "processes that could not be recorded, "
        "by reason",
    ),
    Column("count", Unit.COUNT, "Number", "how many there are of `what`"),
    Column("where", Unit.NAME, "Ranks or names", "the ranks concerned, or names"),
)
ROLES: dict[str, str] = {
    Role.HELPER: "helper processes",
    Role.LAUNCHER: "launcher processes",
    Role.ATTEMPT: "ranks of earlier attempts",
    Role.DOCUMENT: "documents: figures or notes only",
    Role.OTHER: "ranks of another job",
    Role.SUMMARY: "ranks described in another rank's file as well",
}
LIBRARIES = {Layer.ONECCL: "oneCCL", Layer.HOROVOD: "Horovod"}
LOSSES = {
    "lost_calls": "calls that did not fit into the file",
    "overwritten_events": "log records overwritten by newer ones",
    "overwritten_messages": "records of messages overwritten by newer ones",
    "lost_trace_events": "events that are not in the trace: it was full",
    "torn_rows": "rows caught in an update: off by at most one call",
    "untracked_requests": "nonblocking operations not followed to completion",
    "folded_groups": "communicators that did not fit",
    "lost_strings": "names that did not fit",
    "paused_calls": "calls skipped while paused",
}
GOOD_ENDS = ("exit 0", "still running", "stopped by Ray")
MOST_NAMES = 8
UNTRACED = "the trace has no events of "  # as rank_files/trace.py says it
DEVICE_NAMES = ("ze", "cl", "hip", "hsa")  # how functions of their runtimes begin

Rows = list[tuple[Cell, ...]]


def coverage(tables: Tables, selection: Selection = ALL) -> Table:
    """Ranks and hosts expected and seen, how they ended, and every kind of loss."""
    table = Table("coverage", "Coverage", COVERAGE_COLUMNS, [])
    _add_expected(tables, table)
    _add_elsewhere(tables, table)
    _add_processes(tables, table)
    _add_endings(tables, table)
    _add_libraries(tables, table)
    _add_losses(tables, table)
    _add_unnumbered(tables, table)
    _add_unwrapped(tables, table)
    _add_xla(tables, table)
    _add_unrecorded(tables, table)
    _add_warnings(tables, table)
    return table


def _add_expected(tables: Tables, table: Table) -> None:
    seen = [row[0] for row in tables.query("SELECT rank FROM ranks WHERE role = 'rank' ORDER BY rank")]
    promised = {
        "run.json": [row[0] for row in tables.query("SELECT expected_ranks FROM run WHERE expected_ranks IS NOT NULL")],
        "world size": [
            row[0]
            for row in tables.query(
                "SELECT DISTINCT world_size FROM ranks WHERE role = 'rank' AND world_size > 0 ORDER BY 1"
            )
        ],
    }
    for source, sizes in promised.items():
        for size in sizes:
            table.rows.append((f"ranks expected by {source}", size, ""))
            _compare(table, source, size, seen)
    table.rows.append(("ranks seen", len(seen), ranges(seen)))
    sql = "SELECT DISTINCT host FROM ranks WHERE role = 'rank' AND host <> '' ORDER BY host"
    hosts = [row[0] for row in tables.query(sql)]
    if hosts:
        table.rows.append(("hosts seen", len(hosts), _names(hosts)))


def _compare(table: Table, source: str, size: int, seen: list[int]) -> None:
    missing = set(range(min(size, 10_000_000))) - set(seen)
    if missing:
        text = f"of {counted(size, 'rank')} expected by {source}, {len(missing)} not recorded: {ranges(missing)}"
        table.warnings.append(text)
    if len(seen) > size:
        table.warnings.append(f"{counted(len(seen), 'rank')} seen, {size} expected by {source}")


def _add_elsewhere(tables: Tables, table: Table) -> None:
    """Ranks whose files are still on their nodes, where workers of Dask have read them."""
    sql = """SELECT text, host, list(rank) FROM notes JOIN ranks USING (process)
        WHERE role = 'rank' AND starts_with(text, 'read on its node') GROUP BY text, host ORDER BY text, host"""
    rows = tables.query(sql)
    for text in dict.fromkeys(row[0] for row in rows):
        of_host = {host: ranks for reason, host, ranks in rows if reason == text}
        where = [f"{ranges(ranks)} on {host}" for host, ranks in of_host.items()]
        table.rows.append((text, sum(len(ranks) for ranks in of_host.values()), _names(where, "; ")))
    if rows:
        table.notes.append("what was read on nodes is lost with them: `rankscope gather` brings it into the run")


def _add_processes(tables: Tables, table: Table) -> None:
    sql = """SELECT CASE ending WHEN 'replaced' THEN 'program images replaced by exec' ELSE role END,
        count(*) FROM ranks WHERE role <> 'rank' GROUP BY 1 ORDER BY 1"""
    for role, count in tables.query(sql):
        table.rows.append((ROLES.get(role, role), count, ""))
    _add_short(tables, table)
    again = tables.query("SELECT rank FROM ranks WHERE role = 'helper' AND finalized IS NOT NULL AND rank IS NOT NULL")
    if again:
        text = f"more processes than ranks ({len(again)}) used MPI, again as rank {ranges(row[0] for row in again)}"
        table.warnings.append(f"{text}: several MPI jobs in one run? Their calls are not in these tables")
    _add_left_aside(tables, table)


def _add_short(tables: Tables, table: Table) -> None:
    """Processes that had nothing to tell: compilers, shells, children that were forked and left."""
    sql = "SELECT sum(short_processes)::BIGINT, sum(short_failed)::BIGINT, sum(short_cpu_ns)::BIGINT FROM ranks"
    processes, failed, cpu_ns = tables.query(sql)[0]
    if processes:
        text = f"{cpu_ns / 1e9:.3g} s of CPU time, {failed} did not end with exit 0"
        table.rows.append(("short processes that left no file", processes, text))


def _add_left_aside(tables: Tables, table: Table) -> None:
    """Loaded processes that are in no table of ranks, and what to do about it."""
    own_size = tables.query("SELECT max(world_size) FROM ranks WHERE role = 'rank'")[0][0]
    by_size: dict[int | None, list[tuple[Any, ...]]] = {}
    for *row, size in tables.query("SELECT rank, source, world_size FROM ranks WHERE role = 'other' ORDER BY process"):
        by_size.setdefault(size if size != own_size else None, []).append(tuple(row))
    for size, others in by_size.items():
        table.warnings.append(_of_another_job(others, size if own_size else None))
    unknown = tables.query("SELECT NULL, source FROM ranks WHERE role = 'helper' AND tool <> '' AND rank IS NULL")
    if unknown:
        text = f"the rank of {len(unknown)} process{'es' * (len(unknown) > 1)} in {_files(_distinct(unknown))}"
        table.warnings.append(f"{text} is not known; not in these tables: load the file with --rank")


def _of_another_job(others: list[tuple[Any, ...]], size: int | None) -> str:
    """Of ranks and files that clash with those of the run."""
    files, ranks = _distinct(others), ranges(row[0] for row in others)
    text = f"{_files(files)} describe{'s' * (len(files) == 1)} rank{'s' * (len(others) > 1)} {ranks}"
    text += f" of {size}: another job." if size else " again: from another job?"
    what = "It is not in these tables: load it as a separate run"
    several = "They are not in these tables: load them as a separate run"
    return f"{text} {what if len(files) == 1 else several}"


def _files(names: Sequence[str]) -> str:
    """Files by name; several of one folder by its name."""
    folders = {name.rpartition("/")[0] for name in names}
    [folder] = folders if len(folders) == 1 else [""]
    return f"{len(names)} files of {folder}" if len(names) > 1 and folder else _names(names)


def _distinct(rows: list[tuple[Any, ...]]) -> list[Any]:
    return list(dict.fromkeys(row[1] for row in rows))


# Ray ends its workers with 1 when the program is done; one that fails is reported to the program, which then fails.
ENDED_BY_RAY = """(
    ending = 'exited' AND exit_code = 1 AND worker <> ''
    AND (host, parent_pid) IN (SELECT (host, pid) FROM ranks WHERE ends_with(executable, '/raylet'))
    AND NOT EXISTS (SELECT 1 FROM ranks AS one WHERE one.role = 'launcher' AND coalesce(one.exit_code, 0) <> 0))"""


def _add_endings(tables: Tables, table: Table) -> None:
    sql = f"""SELECT ending, exit_code, end_signal, list(rank), {ENDED_BY_RAY} AS by_ray FROM ranks
        WHERE role = 'rank' AND NOT (ending = 'unknown' AND tool <> '') GROUP BY ALL ORDER BY count(*) DESC, 1"""
    for ending, exit_code, end_signal, ranks, by_ray in tables.query(sql):
        text = ending_text(ending, exit_code, end_signal) + (", by Ray" if by_ray else "")
        table.rows.append((f"ended: {text}", len(ranks), ranges(ranks)))
        if text not in GOOD_ENDS and not by_ray:
            table.warnings.append(f"{counted(len(ranks), 'rank')} ended abnormally ({text}): {ranges(ranks)}")
    sql = "SELECT rank FROM ranks WHERE role = 'rank' AND finalized = false AND ending <> 'running'"
    skipped = [row[0] for row in tables.query(sql)]
    if skipped:
        table.rows.append(("MPI_Finalize not reached", len(skipped), ranges(skipped)))


def _add_losses(tables: Tables, table: Table) -> None:
    for name, text in LOSSES.items():
        rows = tables.query(f"SELECT rank, {name} FROM ranks WHERE role = 'rank' AND {name} > 0")
        if rows:
            table.rows.append((text, sum(row[1] for row in rows), ranges(row[0] for row in rows)))
    lost = tables.query("SELECT sum(lost_calls)::BIGINT, sum(lost_ns)::BIGINT FROM ranks WHERE lost_calls > 0")[0]
    if lost[0]:
        sentence = f"the tables lack {counted(lost[0], 'call')} ({lost[1] / 1e9:.3f} s) that did not fit in the files"
        table.warnings.append(f"{sentence}: record with a larger --size")
    if _recorded(tables) and not any(row[0] in LOSSES.values() for row in table.rows):
        table.rows.append(("calls, records or names lost", 0, ""))


def _add_libraries(tables: Tables, table: Table) -> None:
    """Libraries that are seen by entry points or tables of theirs, which another version may not have."""
    sql = f"""SELECT layer, sum(calls) FILTER (kind = 'call')::BIGINT, list(DISTINCT rank),
            count(*) FILTER (starts_with(name, 'execution: ')) FROM tallies JOIN ranks USING (process)
        WHERE role = 'rank' AND layer IN {sql_list(tuple(LIBRARIES))} AND ranks.tool = ''
        GROUP BY layer ORDER BY layer"""
    for layer, calls, ranks, executed in tables.query(sql):
        table.rows.append((f"calls of {LIBRARIES[layer]}", calls, ranges(ranks)))
        if layer == "horovod" and not executed:
            text = "Horovod's own thread was not recorded: no negotiation, fusion or execution, only its operations"
            table.notes.append(f"{text} (docs/studies/backends.md)")
    sql = f"SELECT DISTINCT text FROM notes WHERE starts_with(text, '{UNTRACED}') ORDER BY text"
    table.notes += [text for (text,) in tables.query(sql)]


def _add_unwrapped(tables: Tables, table: Table) -> None:
    sql = "SELECT DISTINCT text FROM notes WHERE starts_with(text, 'not intercepted: ') ORDER BY text"
    names = [str(row[0]).removeprefix("not intercepted: ") for row in tables.query(sql)]
    if not _recorded(tables):
        return
    of_devices = [name for name in names if name.startswith(DEVICE_NAMES)]
    others = [name for name in names if name not in of_devices]
    what = "entry points not intercepted" if any(":" in name for name in others) else "MPI entry points not intercepted"
    table.rows.append((what, len(others), _names(others)))
    if of_devices:
        what = "functions that launch work on devices and are not intercepted"
        table.rows.append((what, len(of_devices), _names(of_devices)))
        table.notes.append("What functions that are not intercepted launch is in no table, if the program calls them.")


def _add_unnumbered(tables: Tables, table: Table) -> None:
    """Collectives of loaded files that have no sequence number: which is which on the other ranks is told by order."""
    sql = f"""SELECT count(*), list(DISTINCT rank) FROM untraced_events JOIN ranks USING (process)
        WHERE role = 'rank' AND tool <> '' AND layer IN {sql_list(COLLECTIVE_LAYERS)} AND sequence IS NULL"""
    loaded = tables.query("SELECT loaded_files FROM run")[0][0]
    count, ranks = tables.query(sql)[0] if loaded else (0, [])
    if count:
        what = "records of collectives without a sequence number: matched by group and order"
        table.rows.append((what, count, ranges(ranks)))


LACKING = "; not seen: "  # in what the agent says of jaxlib


def _add_xla(tables: Tables, table: Table) -> None:
    """What of JAX was recorded, and what is not understood of the jaxlib that the program used."""
    sql = """SELECT what, list(rank ORDER BY rank) FROM marks JOIN ranks USING (process)
        WHERE name = 'xla' AND role = 'rank' GROUP BY what ORDER BY what"""
    for what, ranks in tables.query(sql):
        table.rows.append((f"JAX, {what}", len(ranks), ranges(ranks)))
        if LACKING in what:
            library, _, lacking = str(what).partition(LACKING)
            text = f"JAX is only partly understood: of {library.partition(':')[0]}, {lacking} are not recorded"
            table.warnings.append(f"{text}; mark steps with rankscope.step()")


def _add_unrecorded(tables: Tables, table: Table) -> None:
    """Processes that ran without the recorder, by the reason why they could not take it."""
    sql = r"""SELECT told.why, list(DISTINCT told.program ORDER BY told.program), sum(told.n::BIGINT)::BIGINT FROM (
        SELECT regexp_extract(text, '^not recorded: (\d+) × (.*): ([^:]*)$', ['n', 'program', 'why']) AS told FROM notes
        WHERE starts_with(text, 'not recorded: ')) GROUP BY 1 ORDER BY 1"""
    for why, programs, count in tables.query(sql):
        table.rows.append((f"processes not recorded: {why}", count, _names(programs)))


def _add_warnings(tables: Tables, table: Table) -> None:
    """Equal warnings of many ranks are told once."""
    sql = """SELECT text, list(rank) FROM notes LEFT JOIN ranks USING (process)
        WHERE severity = 'warning' AND notes.tool = '' GROUP BY text ORDER BY text"""
    for text, told_by in tables.query(sql):
        ranks = [rank for rank in told_by if rank is not None]
        table.warnings.append(f"{text} ({rank_words(ranks)})" if ranks else text)


def _recorded(tables: Tables) -> bool:
    """Whether rankscope itself recorded any of the run: a loaded file says nothing of what it lost."""
    return bool(tables.query("SELECT files > loaded_files FROM run")[0][0])


def _names(names: Sequence[Any], between: str = ", ") -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return between.join(str(name) for name in names[:MOST_NAMES]) + more
