"""What happened, one line for each event?"""

from __future__ import annotations

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

# ---------------------------------------------------------------- how much of what happened does the trace keep?
TRACE_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("layer", Unit.NAME, "Layer"),
    Column("kept", Unit.COUNT, "Events kept", "number of events in the trace"),
    Column(
        "lost",
        Unit.COUNT,
        "Events lost",
        "events offered to it − `kept`: overwritten by newer ones (`--trace-keep newest`), come when it was full "
        "(`oldest`), or without room at all",
    ),
    Column(
        "begins_ns",
        Unit.NS,
        "Begins after start",
        "from the start of the process to the start of the earliest event kept",
    ),
    Column("spans_ns", Unit.NS, "Spans", "from the start of the earliest event kept to the latest end"),
)
TRACE_SQL = """
    SELECT rank, substr(series, 7) AS layer,
        sum(value) FILTER (name = 'events kept')::BIGINT, sum(value) FILTER (name = 'events lost')::BIGINT,
        max(value) FILTER (name = 'begins')::BIGINT, max(value) FILTER (name = 'spans')::BIGINT
    FROM figures JOIN ranks USING (process) WHERE starts_with(series, 'trace ') AND tool = '' AND {condition}
    GROUP BY process, rank, layer ORDER BY rank, layer"""


def trace(tables: Tables, selection: Selection = ALL) -> Table:
    """Events kept and lost of each layer of each rank, and the time from the first to the last of those kept."""
    table = Table("trace", "Trace", TRACE_COLUMNS, list(tables.query(TRACE_SQL.format(condition=selection.condition))))
    if any(row[3] for row in table.rows):
        table.notes.append("A larger --trace keeps more; --trace-keep says which are kept.")
    return arranged(table, selection)


# ---------------------------------------------------------------- events
EVENTS_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("layer", Unit.NAME, "Layer"),
    Column(
        "kind",
        Unit.NAME,
        "Kind",
        "`call`: time inside a call, of a kernel, a copy, a range; `progress`: from the start of a nonblocking "
        "operation to its completion. The two overlap: do not add them up",
    ),
    Column("name", Unit.NAME, "Name"),
    Column("group", Unit.NAME, "Group"),
    Column("sequence", Unit.COUNT, "Sequence", "number of a collective in its group, from the log"),
    Column("start_ns", Unit.NUMBER, "Start, Unix time", "Unix time of the start in ns, by the clock of its host"),
    Column("duration_ns", Unit.NS, "Time", "end − start; empty where the end was not seen"),
    Column("bytes", Unit.BYTES, "Bytes", "bytes of the call (what is counted: Bytes)"),
    Column("phase", Unit.NAME, "Phase"),
    Column("thread", Unit.NAME, "Thread"),
    Column("root", Unit.NAME, "Root", "rank of the root in the group, of a collective from the log"),
    Column(
        "call_ns",
        Unit.NS,
        "In the call",
        "of a nonblocking collective from the log: time inside the starting call and inside the one that waited for it",
    ),
    Column("failed", Unit.NAME, "Failed", "`yes` where the call returned an error"),
)
EVENTS_SQL = """
    SELECT rank, layer, kind, name, "group", sequence, events.start_ns, events.end_ns - events.start_ns AS duration_ns,
        bytes, events.phase, thread, root, call_ns, CASE WHEN failed THEN 'yes' ELSE '' END AS failed
    FROM events JOIN ranks USING (process) WHERE {condition} ORDER BY {order}"""


def events_sql(selection: Selection) -> str:
    """The SQL for the events: by their start, or largest first by the column that was asked for."""
    names = [column.name for column in EVENTS_COLUMNS]
    order = f'"{selection.sort}" DESC NULLS LAST' if selection.sort in names else "start_ns, rank"
    limit = f" LIMIT {selection.top}" if selection.top is not None else ""
    return EVENTS_SQL.format(condition=selection.condition, order=order) + limit


def events(tables: Tables, selection: Selection = ALL) -> Table:
    """The events of the collective logs, of traces and of loaded files."""
    table = Table("events", "Events", EVENTS_COLUMNS, list(tables.query(events_sql(selection))))
    counting = f"SELECT count(*) FROM events JOIN ranks USING (process) WHERE {selection.condition}"
    more = tables.query(counting)[0][0] - len(table.rows)
    if more > 0:
        table.notes.append(f"{more} more rows: --top 0 shows all")
    return table
