"""What ran, when, where, and how much of its time was MPI?"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.mpi.calls import shares
from rankscope.questions.selection import ALL, Selection
from rankscope.questions.wording import counted, ranges

COLUMNS = (
    Column("command", Unit.NAME, "Command"),
    Column("started", Unit.NAME, "Started"),
    Column("elapsed_ns", Unit.NS, "Elapsed"),
    Column("ranks", Unit.COUNT, "Ranks"),
    Column("hosts", Unit.COUNT, "Hosts"),
    Column("processes", Unit.COUNT, "Processes"),
    Column("launcher", Unit.NAME, "Launcher"),
    Column("rank_source", Unit.NAME, "Ranks known from"),
    Column("versions", Unit.NAME, "Versions"),
    Column("tools", Unit.NAME, "Loaded from files of"),
    Column("comm_ns", Unit.NS, "MPI time, all ranks"),
    Column("comm_share", Unit.SHARE, "MPI of elapsed"),
)
SQL = """
    SELECT count(*) FILTER (role = 'rank'), nullif(count(DISTINCT nullif(host, '')) FILTER (role = 'rank'), 0),
        count(*) FILTER (ending <> 'replaced' AND role NOT IN ('document', 'summary'))
            + coalesce(sum(short_processes), 0)::BIGINT,
        min(started_ns), max(ended_ns), list_sort(list(DISTINCT versions) FILTER (role = 'rank' AND versions <> '')),
        list_sort(list(DISTINCT rank_source) FILTER (role = 'rank' AND rank_source NOT IN ('', 'none'))),
        min_by(command, rank) FILTER (role = 'rank'), list_sort(list(DISTINCT tool) FILTER (tool <> ''))
    FROM ranks"""


def overview(tables: Tables, selection: Selection = ALL) -> Table:
    """One run in a few facts."""
    ranks, hosts, processes, first_ns, last_ns, versions, sources, rank_command, tools = tables.query(SQL)[0]
    command, launcher, started_ns = tables.query("SELECT command, launcher, started_ns FROM run")[0]
    found = shares(tables, selection)
    comm_ns, span_ns = sum(one.comm_ns for one in found), sum(one.span_ns or 0 for one in found)
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
        comm_ns if found else None,
        comm_ns / span_ns if span_ns else None,
    )
    table = Table("overview", "Overview", COLUMNS, [row], vertical=True)
    table.warnings += _still_running(tables)
    return table


def _still_running(tables: Tables) -> list[str]:
    going = [row[0] for row in tables.query("SELECT rank FROM ranks WHERE ending = 'running' AND role = 'rank'")]
    told = f"The run is still going on ({counted(len(going), 'rank')}: {ranges(going)}): these are the numbers so far."
    return [told] if going else []


def _distinct(versions: list[Any]) -> list[str]:
    parts = [part for text in versions for part in str(text).split("; ")]
    return list(dict.fromkeys(part for part in parts if part.strip()))


def _moment(unix_ns: int) -> str:
    try:
        return datetime.fromtimestamp(unix_ns / 1e9, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):  # a loaded file may say anything
        return ""
