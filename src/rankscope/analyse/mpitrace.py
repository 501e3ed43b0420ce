"""What libmpitrace tells of each task: its routines, its message sizes, its times."""

from __future__ import annotations

from rankscope.analyse.mpi import BYTES_SQL, IS_COMMUNICATION
from rankscope.analyse.selection import ALL, Selection
from rankscope.model import Column, Table, Tables, Unit

TASK_COLUMNS = (
    Column("rank", Unit.NAME),
    Column("world_size", Unit.COUNT),
    Column("host", Unit.NAME),
    Column("comm_ns", Unit.NS),
    Column("elapsed_ns", Unit.NS),
    Column("user_ns", Unit.NS),
    Column("system_ns", Unit.NS),
    Column("max_rss_bytes", Unit.BYTES),
    Column("switches", Unit.COUNT),
    Column("cpu", Unit.NAME),
    Column("own_file", Unit.NAME),
)
COUNTED = (
    Column("calls", Unit.COUNT),
    Column("bytes", Unit.BYTES),
    Column("total_ns", Unit.NS),
)
ROUTINE_COLUMNS = (Column("rank", Unit.NAME), Column("name", Unit.NAME), *COUNTED)
SIZE_COLUMNS = (Column("rank", Unit.NAME), Column("name", Unit.NAME), Column("size_class", Unit.COUNT), *COUNTED)

TASKS = f"""
    SELECT rank, coalesce(world_size, 1), host, coalesce(comm_ns, 0), coalesce(mpi_elapsed_ns, elapsed_ns, 0),
        coalesce(user_ns, 0), coalesce(system_ns, 0), coalesce(max_rss_bytes, 0),
        coalesce(voluntary_switches + involuntary_switches, switches, 0), cpu, NOT second_hand
    FROM ranks LEFT JOIN (SELECT process, sum(total_ns) AS comm_ns FROM tallies
                          WHERE {IS_COMMUNICATION} AND kind = 'call' GROUP BY process) USING (process)
    WHERE {{condition}} ORDER BY rank"""
EXTREME_COLUMNS = (
    Column("rank", Unit.NAME),
    Column("what", Unit.NAME),
    Column("statistic", Unit.NAME),
    Column("of_rank", Unit.NAME),
    Column("value", Unit.NUMBER),
)
EXTREMES = """
    SELECT ranks.rank, name, statistic, scale::BIGINT, value FROM figures JOIN ranks USING (process)
    WHERE role = 'rank' AND series IN ('all tasks', 'this task') AND scale_name = 'rank' ORDER BY ALL"""
ROUTINES = f"""
    SELECT rank, name, coalesce((sum(calls) FILTER (kind = 'call'))::BIGINT, 0), {BYTES_SQL},
        coalesce(sum(total_ns) FILTER (kind = 'call'), 0)
    FROM tallies JOIN ranks USING (process) WHERE {IS_COMMUNICATION} AND {{condition}}
    GROUP BY rank, name ORDER BY rank, name"""
SIZES = f"""
    WITH sized AS (
        SELECT rank, name, kind, size_class,
            sum(calls)::BIGINT AS calls, sum(bytes)::BIGINT AS bytes, sum(total_ns) AS total_ns
        FROM tallies JOIN ranks USING (process)
        WHERE {IS_COMMUNICATION} AND size_class IS NOT NULL AND {{condition}} GROUP BY ALL),
    carrying AS (SELECT rank, name, CASE WHEN bool_or(kind = 'call') THEN 'call' ELSE 'progress' END AS kind
                 FROM sized WHERE bytes > 0 GROUP BY rank, name)
    SELECT rank, name, size_class, calls, bytes, total_ns FROM sized JOIN carrying USING (rank, name, kind)
    ORDER BY rank, name, size_class"""


def tasks(tables: Tables) -> Table:
    """All ranks: the summary that the first task shown carries needs them, whichever are shown."""
    return Table("tasks", "Tasks", TASK_COLUMNS, tables.query(TASKS.format(condition="role = 'rank'")))


def summary_tasks(tables: Tables) -> Table:
    """All ranks as the first one's summary tells of them, where it was loaded; else as they tell of themselves."""
    condition = "role = 'summary' OR (role = 'rank' AND rank NOT IN (SELECT rank FROM ranks WHERE role = 'summary'))"
    return Table(
        "summary", "MPI timing summary for all ranks", TASK_COLUMNS, tables.query(TASKS.format(condition=condition))
    )


def told_extremes(tables: Tables) -> Table:
    """Which task was said to have the least, the median and the most: equal times have no other order."""
    return Table("extremes", "Communication summary for all tasks", EXTREME_COLUMNS, tables.query(EXTREMES))


def is_new_layout(tables: Tables) -> bool:
    """Whether the profiles that were loaded are in libmpitrace's new layout."""
    found = tables.query("SELECT count(*) FROM ranks WHERE versions = 'libmpitrace (new layout)'")
    return bool(found[0][0])


def task_routines(tables: Tables, selection: Selection = ALL) -> Table:
    """The routines of each selected rank."""
    rows = tables.query(ROUTINES.format(condition=selection.condition))
    return Table("task_routines", "MPI routines by rank", ROUTINE_COLUMNS, rows)


def task_sizes(tables: Tables, selection: Selection = ALL) -> Table:
    """The message sizes of each selected rank, for routines that carry bytes there."""
    rows = tables.query(SIZES.format(condition=selection.condition))
    return Table("task_sizes", "Message sizes by rank", SIZE_COLUMNS, rows)
