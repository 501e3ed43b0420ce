"""What ran, when, where, and how much of its time was MPI?"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from rankscope.model.records import Layer, Role
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.questions.mpi.calls import shares
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import counted, ranges

# ---------------------------------------------------------------------------------------------------------------------
# Problems in the input, by the readers' own arithmetic?
CHECKS_COLUMNS = (
    Column(
        "severity",
        Unit.NAME,
        "Severity",
        "warning: a number that contradicts another or cannot be right; note: worth knowing",
    ),
    Column("where", Unit.NAME, "Where", "file and line of the first place"),
    Column("text", Unit.NAME, "What", "what the reader of the file found; equal ones are one row"),
    Column("count", Unit.COUNT, "Times", "number of places that say so"),
    Column("ranks", Unit.NAME, "Ranks", "whose files say so"),
)
# Notes of recorded ranks are about the recording and stand in the coverage table.
CHECKS_SQL = """
    SELECT severity, min_by("where", place), text, count(*), list(DISTINCT rank) FILTER (rank IS NOT NULL)
    FROM (SELECT *, row_number() OVER () AS place FROM notes) AS told LEFT JOIN ranks USING (process)
    WHERE told.tool <> '' GROUP BY severity, text ORDER BY severity DESC, min(place)"""


def checks(tables: Tables, selection: Selection = ALL) -> Table:
    """What readers found in the files, duplicates merged, with the first place; warnings before notes."""
    rows = [(*cells, ranges(ranks or ())) for *cells, ranks in tables.query(CHECKS_SQL)]
    wrong = any(row[0] == "warning" for row in rows)
    title = "Problems in the input" if wrong else "Notes on the input"
    return arranged(Table("checks", title, CHECKS_COLUMNS, rows), selection)


# ---------------------------------------------------------------------------------------------------------------------
# Which numbers had somebody summed up already, by series and scale?
FIGURES_COLUMNS = (
    Column("series", Unit.NAME, "Series", "library, place or method, as the document names it"),
    Column("name", Unit.NAME, "What", "what was measured"),
    Column("statistic", Unit.NAME, "Statistic", "min, mean, max … where the number is one of several of a sample"),
    Column(
        "scale", Unit.NUMBER, "At", "number of nodes, ranks, bytes …: the size of the job or message it was measured at"
    ),
    Column("scale_name", Unit.NAME, "Of", "what `scale` counts"),
    Column("value_ns", Unit.NS, "Time", "the number as the document gives it, where it is a time"),
    Column("value_bytes", Unit.BYTES, "Size", "the number as the document gives it, where it is a size"),
    Column("value_count", Unit.COUNT, "Number", "the number as the document gives it, where it is a count"),
    Column("value_share", Unit.SHARE, "Share", "the number as the document gives it, where it is a fraction"),
    Column("value_bytes_per_s", Unit.RATE, "Rate", "the number as the document gives it, where it is a bandwidth"),
    Column("value", Unit.NUMBER, "Value", "the number as the document gives it, in any other unit"),
    Column("unit", Unit.NAME, "Unit", "unit of `value`"),
    Column("rank", Unit.NAME, "Rank", "the rank it belongs to, if any"),
)
UNITS = ("ns", "bytes", "count", "share", "bytes/s")  # in the order of the columns above
# Of what was summed up for each device, what no other table tells; column, name, unit.
OF_DEVICES = (
    ("late_ns", "too late to be placed, at most", "ns"),
    ("migration_ns", "unified memory moving", "ns"),
    ("migrations", "unified memory moves", "count"),
    ("gpu_faults", "unified memory fault groups", "count"),
)
LAST = 2**63 - 1  # behind all devices
DEVICES_SQL = " UNION ALL ".join(
    f"""SELECT process, 'GPU ' || device AS series, '{name}' AS name, {column}::DOUBLE AS value, '{unit}' AS unit,
        (device, {place}) AS place FROM devices WHERE {column} > 0"""
    for place, (column, name, unit) in enumerate(OF_DEVICES)
)
# The figures; a series of which several documents tell the same point is one for each of them, named after its file;
# so is one that has its name from files of equal names.
BY_DOCUMENT_SQL = """
    SELECT figures.* REPLACE (CASE WHEN role = 'document' AND series IN (
            SELECT series FROM figures JOIN ranks USING (process) WHERE role = 'document'
            GROUP BY series, name, statistic, scale_name, scale, unit HAVING count(DISTINCT source) > 1
            UNION SELECT series FROM figures JOIN ranks USING (process) WHERE role = 'document' GROUP BY series
            HAVING count(DISTINCT source) > 1 AND bool_and(parse_filename(source, true) = series))
        THEN series || ' [' || source || ']' ELSE series END AS series)
    FROM figures JOIN ranks USING (process)"""
FIGURES_SQL = f"""
    WITH summed AS ({DEVICES_SQL} UNION ALL
        SELECT process, 'host', 'unified memory faults', unified_faults::DOUBLE, 'count', ({LAST}, 0)
        FROM ranks WHERE unified_faults > 0),
    told AS (SELECT * EXCLUDE (place), '' AS statistic, NULL AS scale, '' AS scale_name, false AS given,
                 row_number() OVER (ORDER BY place, process) AS place FROM summed
        UNION ALL BY NAME SELECT *, true AS given, row_number() OVER () AS place FROM ({BY_DOCUMENT_SQL}))
    SELECT series, name, statistic, scale, scale_name, value, unit, rank FROM told JOIN ranks USING (process)
    WHERE {{condition}} OR (role = 'document' AND {{everybody}})
    ORDER BY given, min(place) OVER (PARTITION BY given, series, name, statistic), scale, place"""


def figures(tables: Tables, selection: Selection = ALL) -> Table:
    """One line per figure, each value in the column of its unit; series in the order of their files."""
    everybody = "true" if selection.ranks is None else "false"  # a document belongs to no rank
    rows = tables.query(FIGURES_SQL.format(condition=selection.condition, everybody=everybody))
    return arranged(Table("figures", "Figures", FIGURES_COLUMNS, [_row(*row) for row in rows]), selection)


def _row(
    series: str, name: str, statistic: str, scale: float | None, scale_name: str, value: float, unit: str, rank: Cell
) -> tuple[Cell, ...]:
    values = [_whole(value) if unit == known else None for known in UNITS]
    other = (None, "") if unit in UNITS else (value, unit)
    return series, name, statistic, _whole(scale), scale_name, *values, *other, rank


def _whole(number: float | None) -> Cell:
    """A whole number without its fraction, as a count is written."""
    return int(number) if number is not None and number.is_integer() and abs(number) < 2**53 else number


# ---------------------------------------------------------------------------------------------------------------------
# What was counted in the layers that have no table of their own?
# layers with tables of their own, which do not tell what is within a range
TALLIES_ELSEWHERE = (Layer.MPI, Layer.GPU, Layer.CUDA_API, Layer.NCCL_ALGO)
TALLIES_COLUMNS = (
    Column(
        "layer",
        Unit.NAME,
        "Layer",
        "what kind of thing was counted; MPI and the GPU have tables of their own, here is only what lies within a "
        "range",
    ),
    Column("group", Unit.NAME, "Group", "device, stream, domain or the like"),
    Column(
        "within",
        Unit.NAME,
        "Within",
        "the range that the row is attributed to; such rows are counted in those without a range too",
    ),
    Column("name", Unit.NAME, "Name", "what was counted"),
    Column("calls", Unit.COUNT, "Calls", "number of calls"),
    Column("total_ns", Unit.NS, "Time", "sum of the time inside them; of collectives of Gloo from start to completion"),
    Column("share", Unit.SHARE, "% of layer", "`total_ns` ÷ the layer's sum; empty for rows within a range"),
    Column("mean_ns", Unit.NS, "Mean", "`total_ns` ÷ `calls`"),
    Column("min_ns", Unit.NS, "Min", "shortest call"),
    Column("max_ns", Unit.NS, "Max", "longest call"),
    Column("bytes", Unit.BYTES, "Bytes", "sum of the bytes of the calls"),
    Column("errors", Unit.COUNT, "Errors", "number of calls that failed"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks (or processes) it was counted on"),
)
# What is within a range is no part of the layer's sum.
TALLIES_SQL = """
    WITH counted AS (
        SELECT '' AS within, * FROM tallies WHERE layer NOT IN ({elsewhere})
        UNION ALL BY NAME SELECT * FROM range_tallies WHERE layer <> 'nvtx'),
    summed AS (
        SELECT layer, "group", replace(within, chr(31), ' > ') AS within, name, sum(calls)::BIGINT AS calls,
            fsum(total_ns) AS total_ns, min(min_ns) AS min_ns, max(max_ns) AS max_ns, sum(bytes)::BIGINT AS bytes,
            sum(errors)::BIGINT AS errors, count(DISTINCT process) AS ranks
        FROM counted JOIN ranks USING (process) WHERE (kind = 'call' OR layer = 'gloo') AND {condition} GROUP BY ALL),
    layers AS (SELECT layer, fsum(total_ns) AS layer_ns FROM summed WHERE within = '' GROUP BY layer)
    SELECT layer, "group", within, name, calls, total_ns,
        CASE WHEN within = '' THEN total_ns / nullif(layer_ns, 0) END, total_ns / nullif(calls, 0), min_ns, max_ns,
        bytes, errors, ranks
    FROM summed LEFT JOIN layers USING (layer)
    ORDER BY layer, within, total_ns DESC, calls DESC, name, "group\""""


def tallies(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls, time and bytes of everything counted, layer by layer, the costliest first."""
    elsewhere = ", ".join(f"'{layer}'" for layer in TALLIES_ELSEWHERE)
    rows = tables.query(TALLIES_SQL.format(elsewhere=elsewhere, condition=selection.condition))
    table = Table("tallies", "Other counters", TALLIES_COLUMNS, rows)
    if any(row[2] for row in rows):
        table.notes.append("Within: attributed to that range, and counted in the lines without a range as well.")
    return arranged(table, selection)


# ---------------------------------------------------------------- overview
OVERVIEW_COLUMNS = (
    Column(
        "command", Unit.NAME, "Command", "as given to `rankscope run`; without run.json, the command of the lowest rank"
    ),
    Column("started", Unit.NAME, "Started", "the earlier of run.json's time and the first process start"),
    Column("elapsed_ns", Unit.NS, "Elapsed", "last end of any process − `started`"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks seen"),
    Column("hosts", Unit.COUNT, "Hosts", "number of different hosts of the ranks"),
    Column(
        "processes",
        Unit.COUNT,
        "Processes",
        "ranks, helpers and launchers; program images that an exec replaced are not counted again",
    ),
    Column("launcher", Unit.NAME, "Launcher", "from run.json, where `rankscope run` started the launcher"),
    Column("rank_source", Unit.NAME, "Rank IDs from", "which variables or library the rank numbers were taken from"),
    Column("versions", Unit.NAME, "Versions", "of the recorder and the MPI library"),
    Column(
        "tools",
        Unit.NAME,
        "Loaded from",
        "the formats of the files that were loaded, empty for a run that was only recorded",
    ),
    Column("comm_ns", Unit.NS, "MPI time, all ranks", "sum of MPI time over the ranks"),
    Column("comm_share", Unit.SHARE, "MPI, % of wall time", "`comm_ns` ÷ sum of `mpi_elapsed_ns`"),
)
OVERVIEW_SQL = f"""
    SELECT count(*) FILTER (role = 'rank'), nullif(count(DISTINCT nullif(host, '')) FILTER (role = 'rank'), 0),
        count(*) FILTER (ending <> 'replaced' AND role NOT IN {sql_list([Role.DOCUMENT, Role.SUMMARY])})
            + coalesce(sum(short_processes), 0)::BIGINT,
        min(started_ns), max(ended_ns), list_sort(list(DISTINCT versions) FILTER (role = 'rank' AND versions <> '')),
        list_sort(list(DISTINCT rank_source) FILTER (role = 'rank' AND rank_source NOT IN ('', 'none'))),
        min_by(command, rank) FILTER (role = 'rank'), list_sort(list(DISTINCT tool) FILTER (tool <> ''))
    FROM ranks"""


ELAPSED_SQL = """
    SELECT max(ended_ns) - least(min(ranks.started_ns), (SELECT min(started_ns) FROM run)), max(elapsed_ns)
    FROM ranks"""


def run_elapsed_ns(tables: Tables) -> int | None:
    """From the start of the run to the last end of a process, or, where that is not known, of its longest process."""
    whole_ns: int | None
    longest_ns: int | None
    whole_ns, longest_ns = tables.query(ELAPSED_SQL)[0]
    return whole_ns if whole_ns and whole_ns > 0 else longest_ns


def overview(tables: Tables, selection: Selection = ALL) -> Table:
    """One run in a few facts."""
    ranks, hosts, processes, first_ns, last_ns, versions, sources, rank_command, tools = tables.query(OVERVIEW_SQL)[0]
    command, launcher, started_ns = tables.query("SELECT command, launcher, started_ns FROM run")[0]
    mpi_shares = shares(tables, selection)
    comm_ns, span_ns = sum(share.comm_ns for share in mpi_shares), sum(share.span_ns or 0 for share in mpi_shares)
    begun_ns = min(moment for moment in (started_ns, first_ns, last_ns, 2**62) if moment is not None)
    row = (
        command or rank_command or "",
        _moment(begun_ns) if last_ns is not None else "",
        max(0, last_ns - begun_ns) if last_ns is not None else None,
        *(ranks, hosts, processes),
        launcher or "",
        ", ".join(sources or []),
        "; ".join(_distinct(versions or [])),
        ", ".join(_distinct(tools or [])),
        comm_ns if mpi_shares else None,
        comm_ns / span_ns if span_ns else None,
    )
    table = Table("overview", "Overview", OVERVIEW_COLUMNS, [row], vertical=True)
    table.warnings += _still_running(tables)
    return table


def _still_running(tables: Tables) -> list[str]:
    going = [row[0] for row in tables.query("SELECT rank FROM ranks WHERE ending = 'running' AND role = 'rank'")]
    text = f"The run is still going on ({counted(len(going), 'rank')}: {ranges(going)}): these are the numbers so far."
    return [text] if going else []


def _distinct(versions: list[Any]) -> list[str]:
    parts = [part for text in versions for part in str(text).split("; ")]
    return list(dict.fromkeys(part for part in parts if part.strip()))


def _moment(unix_ns: int) -> str:
    try:
        return datetime.fromtimestamp(unix_ns / 1e9, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):  # a loaded file may say anything
        return ""
