"""What libmpitrace tells of each task: its routines, its message sizes, its times."""

from __future__ import annotations

from rankscope.model.records import Role
from rankscope.model.tables import Column, Table, Tables, Unit, sql_list
from rankscope.questions.mpi.calls import BYTES_SQL, COMM_SQL, IS_COMMUNICATION
from rankscope.questions.selection import ALL, Selection

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
    FROM ranks LEFT JOIN ({COMM_SQL}) USING (process)
    WHERE {{members}} QUALIFY row_number() OVER (PARTITION BY rank ORDER BY {{first}}) = 1 ORDER BY rank"""
EXTREME_COLUMNS = (
    Column("rank", Unit.NAME),
    Column("what", Unit.NAME),
    Column("statistic", Unit.NAME),
    Column("of_rank", Unit.NAME),
    Column("value", Unit.NUMBER),
)
EXTREMES = """
    SELECT ranks.rank, name, statistic, scale::BIGINT, value FROM figures JOIN ranks USING (process)
    WHERE {members} AND series IN ('all tasks', 'this task') AND scale_name = 'rank' ORDER BY ALL"""
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


def other_jobs(tables: Tables) -> list[str]:
    """The jobs after the first whose profiles a loaded file holds as well."""
    sql = """SELECT DISTINCT job FROM ranks
        WHERE job <> '' AND role <> 'rank' AND starts_with(versions, 'libmpitrace')"""
    return sorted((str(row[0]) for row in tables.query(sql) if str(row[0]).isdecimal()), key=int)


def tasks(tables: Tables, job: str = "") -> Table:
    """All ranks as they tell of themselves: the summary that the first task shown carries needs them all."""
    rows = tables.query(TASKS.format(members=_members(job), first="second_hand"))
    return Table("tasks", "Tasks", TASK_COLUMNS, rows)


def summary_tasks(tables: Tables, job: str = "") -> Table:
    """All ranks as the first one's summary tells of them, where it was loaded; else as they tell of themselves."""
    rows = tables.query(TASKS.format(members=_members(job), first="NOT second_hand"))
    return Table("summary", "MPI timing summary for all ranks", TASK_COLUMNS, rows)


def told_extremes(tables: Tables, job: str = "") -> Table:
    """Which task was said to have the least, the median and the most: equal times have no other order."""
    rows = tables.query(EXTREMES.format(members=_members(job)))
    return Table("extremes", "Communication summary for all tasks", EXTREME_COLUMNS, rows)


def is_new_layout(tables: Tables, job: str = "") -> bool:
    """Whether the profiles that were loaded are in libmpitrace's new layout."""
    sql = f"SELECT count(*) FROM ranks WHERE versions = 'libmpitrace (new layout)' AND {_members(job)}"
    return bool(tables.query(sql)[0][0])


def task_routines(tables: Tables, selection: Selection = ALL, job: str = "") -> Table:
    """The routines of each selected rank."""
    rows = tables.query(ROUTINES.format(condition=_selected(selection, job)))
    return Table("task_routines", "MPI routines by rank", ROUTINE_COLUMNS, rows)


def task_sizes(tables: Tables, selection: Selection = ALL, job: str = "") -> Table:
    """The message sizes of each selected rank, for routines that carry bytes there."""
    rows = tables.query(SIZES.format(condition=_selected(selection, job)))
    return Table("task_sizes", "Message sizes by rank", SIZE_COLUMNS, rows)


def _members(job: str) -> str:
    """The SQL condition for the ranks of a job, by their own files and by others'."""
    return f"(job = '{int(job)}' AND role <> 'rank')" if job else f"role IN {sql_list([Role.RANK, Role.SUMMARY])}"


def _selected(selection: Selection, job: str) -> str:
    return selection.condition.replace("role = 'rank'", f"{_members(job)} AND NOT second_hand")
