"""What nvprof tells of each process: GPU activities, API calls, and NVTX ranges with what is attributed to them."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.model.records import Layer
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.questions.selection import ALL, Selection

PROCESS_COLUMNS = (
    Column("process", Unit.NAME),
    Column("pid", Unit.NAME),
    Column("command", Unit.NAME),
    Column("attributed", Unit.NAME),  # whether it is known what was launched inside of ranges
)
WARNING_COLUMNS = (Column("process", Unit.NAME), Column("text", Unit.NAME))
ROW_COLUMNS = (
    Column("process", Unit.NAME),
    Column("thread", Unit.NAME),
    Column("thread_name", Unit.NAME),
    Column("domain", Unit.NAME),
    Column("range", Unit.NAME),
    Column("layer", Unit.NAME),
    Column("share", Unit.SHARE),
    Column("total_ns", Unit.NS),
    Column("calls", Unit.COUNT),
    Column("mean_ns", Unit.NS),
    Column("min_ns", Unit.NS),
    Column("max_ns", Unit.NS),
    Column("name", Unit.NAME),
)
LAYERS = f"layer IN {sql_list([Layer.GPU, Layer.CUDA_API, Layer.NVTX])}"
LAUNCHING = sql_list([Layer.GPU, Layer.CUDA_API])
WITHIN = f"process IN (SELECT process FROM range_tallies WHERE layer IN {LAUNCHING})"
LAUNCHED = f"process IN (SELECT process FROM tallies WHERE layer IN {LAUNCHING})"
# A recording tells what ranges hold, or it was not asked to; other tools' files are taken by their word, but for those
# that were summed up from single events.
SUMMED = "process IN (SELECT process FROM devices)"
ATTRIBUTED = f"((coalesce(tool, '') <> '' AND NOT {SUMMED}) OR {WITHIN} OR NOT {LAUNCHED})"
PROCESSES = f"""
    SELECT process, pid, command, {ATTRIBUTED} FROM ranks
    WHERE {{condition}} AND process IN (SELECT process FROM tallies WHERE {LAYERS}) ORDER BY process"""
WARNINGS = f"""
    SELECT process, text FROM notes JOIN ranks USING (process)
    WHERE {{condition}} AND coalesce(ranks.tool, '') = '' AND (severity = 'warning' OR text LIKE '%equal start and end')
    UNION ALL SELECT process, 'What was launched inside of NVTX ranges was not recorded' FROM ranks
    WHERE {{condition}} AND NOT {ATTRIBUTED} AND process IN (SELECT process FROM tallies WHERE layer = 'nvtx')
    ORDER BY process"""
# A range names its domain and itself as `group` and `name`; what is attributed to it says `domain/range` as `within`,
# after those around it, and belongs to all of them. It is shown with its own thread's range of that name, or else with
# the first thread that has one. Ranges by the ranges around them are the same once more.
SUMS = f"""
    SELECT {{process}} AS process, {{thread}} AS thread, layer, "group", within, name, sum(calls)::BIGINT AS calls,
        sum(total_ns) AS total_ns, min(min_ns) AS min_ns, max(max_ns) AS max_ns
    FROM (SELECT * REPLACE (CASE WHEN layer = 'nvtx' THEN "group" ELSE '' END AS "group"), '' AS within FROM tallies
          UNION ALL BY NAME
          SELECT * REPLACE ('' AS "group", unnest(list_distinct(string_split(within, chr(31)))) AS within)
          FROM range_tallies WHERE layer <> 'nvtx')
    JOIN ranks USING (process) WHERE {LAYERS} AND kind = 'call' AND {{condition}}
    GROUP BY ALL"""
ROWS = """
    WITH sums AS ({sums}),
    ranges AS (SELECT DISTINCT process, thread, "group" AS domain, name AS range, "group" || '/' || name AS place
               FROM sums WHERE layer = 'nvtx'),
    wholes AS (SELECT {process} AS process, series AS layer, sum(value) AS whole_ns
               FROM figures JOIN ranks USING (process) WHERE name = 'time of all rows' AND {condition} GROUP BY ALL),
    homes AS (SELECT process, place, min(thread) AS thread FROM ranges GROUP BY ALL),
    settled AS (
        SELECT sums.process, coalesce(own.thread, homes.thread, sums.thread) AS thread, layer, "group", within, name,
            sum(calls)::BIGINT AS calls, sum(total_ns) AS total_ns, min(min_ns) AS min_ns, max(max_ns) AS max_ns
        FROM sums
        LEFT JOIN ranges AS own ON own.process = sums.process AND own.thread = sums.thread AND own.place = within
        LEFT JOIN homes ON homes.process = sums.process AND homes.place = within GROUP BY ALL),
    placed AS (
        SELECT settled.*,
            CASE WHEN layer = 'nvtx' THEN "group" ELSE coalesce(domain, split_part(within, '/', 1)) END AS domain,
            CASE WHEN layer = 'nvtx' THEN name
                 ELSE coalesce(range, substr(within, strpos(within, '/') + 1)) END AS range,
            sum(total_ns) OVER (PARTITION BY settled.process, settled.thread, layer, within,
                                CASE WHEN layer = 'nvtx' THEN "group" || '/' || name END) AS sum_ns
        FROM settled LEFT JOIN ranges ON settled.process = ranges.process AND settled.thread = ranges.thread
            AND place = within),
    names AS (SELECT DISTINCT {process} AS process, identity, nullif(name, '') AS thread_name, my_rank AS tid
              FROM groups JOIN ranks USING (process) WHERE kind = 'thread' AND {named} AND {condition})
    SELECT placed.process, coalesce(tid, thread) AS thread, coalesce(thread_name, '<unnamed>'), domain, range,
        placed.layer, total_ns / CASE WHEN within = '' THEN greatest(sum_ns, coalesce(whole_ns, 0)) ELSE sum_ns END,
        total_ns, calls, floor(total_ns / nullif(calls, 0)), min_ns, max_ns, placed.name
    FROM placed LEFT JOIN wholes ON placed.process = wholes.process AND placed.layer = wholes.layer
    LEFT JOIN names ON placed.process = names.process AND identity = placed.thread::VARCHAR
    ORDER BY 1, range <> '', placed.thread, domain, range, total_ns DESC NULLS LAST, placed.name"""


def nvprof_processes(tables: Tables, selection: Selection = ALL, merged: bool = False) -> Table:
    """The processes that have a profile: all, since nvprof knows no ranks, or those of the selected ranks."""
    rows = tables.query(PROCESSES.format(condition=_condition(selection, merged)))
    return Table("nvprof_processes", "Processes", PROCESS_COLUMNS, _merged(rows) if merged else rows)


def _merged(rows: Sequence[tuple[Cell, ...]]) -> list[tuple[Cell, ...]]:
    return [(0, None, "", all(row[3] for row in rows))] if rows else []


def nvprof_warnings(tables: Tables, selection: Selection = ALL, merged: bool = False) -> Table:
    """What is to be said about the recording of each of these processes."""
    rows = tables.query(WARNINGS.format(condition=_condition(selection, merged)))
    if merged:
        rows = [(0, text) for text in dict.fromkeys(text for _, text in rows)]
    return Table("nvprof_warnings", "Warnings", WARNING_COLUMNS, rows)


def nvprof_rows(tables: Tables, selection: Selection = ALL, merged: bool = False) -> Table:
    """Every row of their profiles, or of one that adds up the ranks."""
    given = {"condition": _condition(selection, merged), "process": "0" if merged else "process"}
    given["named"] = "false" if merged else "true"
    sums = SUMS.format(**given, thread="0" if merged else "coalesce(thread, 0)")
    return Table("nvprof_rows", "Profiles", ROW_COLUMNS, tables.query(ROWS.format(sums=sums, **given)))


def _condition(selection: Selection, merged: bool) -> str:
    return "true" if selection.ranks is None and not merged else selection.condition
