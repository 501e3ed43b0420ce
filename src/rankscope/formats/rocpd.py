"""Databases of AMD's rocprofv3 and rocprof-sys (rocpd), and of rocmProfileData before them (rpd): sqlite."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from rankscope.formats.event_columns import EventColumns
from rankscope.formats.nsys import MAGIC, opened, quoted
from rankscope.formats.rocprof import DOMAINS, HSA
from rankscope.formats.source import Source
from rankscope.formats.sums import Sums
from rankscope.model.records import Layer, Note, RankFacts, Reading, Severity

TABLE = re.compile(r"(rocpd_[a-z][a-z_]*?)(_?[0-9A-Fa-f]{4,}[0-9A-Fa-f_-]*)?$")
BATCH_ROWS = 50_000
LETTERS = 4096
MOST_WORDS = 2_000_000
COPIES = {"HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD", "HOST_TO_HOST": "HtoH"}
OTHER_ROWS = ("rocpd_memory_allocate", "rocpd_sample", "rocpd_pmc_event")  # that no table of ours has
OLD_COPIES = ("CopyHostToDevice", "CopyDeviceToHost", "CopyDeviceToDevice")
Row = tuple[Any, ...]


def sniff(head: bytes) -> bool:
    """An sqlite database with rocpd's table of strings."""
    return head.startswith(MAGIC) and b"rocpd_string" in head


@dataclass(slots=True)
class Database:
    """The tables of one session: several may have been merged into one file, each under a suffix of its own."""

    connection: sqlite3.Connection
    suffix: str
    tables: Mapping[str, tuple[str, frozenset[str]]]  # by name without the suffix: full name, columns
    strings: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)  # from schema 4.1 on in a table of their own

    def has(self, table: str, *columns: str) -> bool:
        return table in self.tables and set(columns) <= self.tables[table][1]

    def column(self, table: str, *names: str) -> str:
        """The first of these columns that is there, as SQL; NULL where none is."""
        return next((f"one.{quoted(name)}" for name in names if name in self.tables[table][1]), "NULL")

    def rows(self, sql: str) -> Iterator[Row]:
        cursor = self.connection.execute(sql)
        while batch := cursor.fetchmany(BATCH_ROWS):
            yield from batch

    def named(self, table: str) -> str:
        return quoted(self.tables[table][0])

    def string(self, number: Any) -> str:
        return self.strings.get(number, "") if isinstance(number, int) else ""

    def category(self, number: Any) -> str:
        words = self.categories if "rocpd_info_category" in self.tables else self.strings
        return words.get(number, "") if isinstance(number, int) else ""


@dataclass(slots=True)
class RocpdProcess:
    """What is told of one process."""

    facts: RankFacts
    events: EventColumns = field(default_factory=EventColumns)
    sums: Sums | None = None


def read(source: Source) -> Iterator[Reading]:
    """Each process of each session in the database."""
    try:
        with closing(opened(source)) as connection:
            yield from _readings(source, connection)
    except (sqlite3.Error, OverflowError, UnicodeError) as problem:
        raise source.bad(f"cannot be read as a database of rocpd: {problem}") from None


def _readings(source: Source, connection: sqlite3.Connection) -> Iterator[Reading]:
    any_table = False
    for database in _sessions(connection):
        _take_strings(source, database)
        processes: dict[Any, RocpdProcess] = {}
        unread = [*_kernels(source, database, processes), *_copies(source, database, processes)]
        unread += [*_regions(source, database, processes), *_old(source, database, processes)]
        unread += _others(source, database)
        active = [process for process in processes.values() if len(process.events)]
        for place, process in enumerate(active):
            any_table = True
            yield from _of_process(source, process, unread if not place else [], alone=len(active) == 1)
    if not any_table:
        raise source.bad("has no kernel, copy, call or range in it")


def _of_process(source: Source, process: RocpdProcess, unread: list[Note], alone: bool) -> Iterator[Reading]:
    if alone and process.facts.rank is None:
        process.facts.rank = source.hints.rank
    reading = Reading(process.facts, tallies=process.sums.tallies() if process.sums else [])
    text = "the database has times of the machine's own clock, not Unix times"
    reading.notes = [Note(text, where=str(source)), *unread, *process.events.notes(source)]
    for block in process.events.blocks():
        reading.event_columns = block
        yield reading
        reading = Reading(process.facts, continues=True)


def _sessions(connection: sqlite3.Connection) -> Iterator[Database]:
    """By suffix; views are left aside, for they may do anything."""
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
    grouped: dict[str, dict[str, tuple[str, frozenset[str]]]] = {}
    for (name,) in connection.execute(sql).fetchmany(10_000):
        match = TABLE.match(str(name))
        if match is not None:
            columns = frozenset(row[1] for row in connection.execute(f"PRAGMA table_info({quoted(name)})"))
            grouped.setdefault(match[2] or "", {})[match[1]] = (name, columns)
    for suffix, tables in grouped.items():
        yield Database(connection, suffix, tables)


def _take_strings(source: Source, database: Database) -> None:
    if not database.has("rocpd_string", "id", "string"):
        return
    for number, word in database.rows(f"SELECT id, substr(string, 1, {LETTERS}) FROM {database.named('rocpd_string')}"):
        if isinstance(number, int):
            database.strings[number] = str(word)
        if len(database.strings) > MOST_WORDS:
            raise source.bad(f"more than {MOST_WORDS} strings: not a database of rocpd")
    if database.has("rocpd_info_category", "id", "name"):
        table = database.named("rocpd_info_category")
        for number, word in database.rows(f"SELECT id, substr(name, 1, {LETTERS}) FROM {table} LIMIT {MOST_WORDS}"):
            if isinstance(number, int):
                database.categories[number] = str(word)


# ---------------------------------------------------------------- who
def _process(source: Source, database: Database, processes: dict[Any, RocpdProcess], number: Any) -> RocpdProcess:
    if number not in processes:
        if len(processes) >= 100_000:
            raise source.bad("more than 100000 processes: not a database of rocpd")
        processes[number] = RocpdProcess(_facts(source, database, number))
    return processes[number]


def _facts(source: Source, database: Database, number: Any) -> RankFacts:
    """In the newer schema processes are numbered; the older one has process ids."""
    facts = RankFacts(pid=number if isinstance(number, int) and 0 < number < 2**31 else None, source=str(source))
    if database.has("rocpd_info_process", "id", "pid") and isinstance(number, int):
        command = database.column("rocpd_info_process", "command")
        node = database.column("rocpd_info_process", "nid")
        sql = f"SELECT one.pid, substr({command}, 1, 1000), {node} FROM {database.named('rocpd_info_process')} one"
        for pid, command_line, nid in database.connection.execute(f"{sql} WHERE one.id = ?", (number,)).fetchmany(1):
            facts.pid = pid if isinstance(pid, int) and 0 < pid < 2**31 else None
            facts.command = str(command_line or "")
            facts.host = _host(database, nid)
    facts.devices = _devices(database)
    return facts


def _host(database: Database, node: Any) -> str:
    if not database.has("rocpd_info_node", "id", "hostname") or not isinstance(node, int):
        return ""
    sql = f"SELECT substr(hostname, 1, 255) FROM {database.named('rocpd_info_node')} WHERE id = ?"
    row = database.connection.execute(sql, (node,)).fetchone()
    return str(row[0] or "") if row else ""


def _devices(database: Database) -> str:
    if not database.has("rocpd_info_agent", "id", "type"):
        return ""
    name = database.column("rocpd_info_agent", "product_name", "name")
    sql = f"""SELECT substr({name}, 1, 100), count(*) FROM {database.named("rocpd_info_agent")} one
        WHERE one.type = 'GPU' GROUP BY 1 LIMIT 100"""
    return ", ".join(f"{count} × {name}" for name, count in database.rows(sql))


# ---------------------------------------------------------------- what happened
def _timed(database: Database, table: str) -> tuple[str, str, str]:
    """SQL of start and end, and what has to be joined for them: in schema 4 they lie in a table of their own."""
    if database.has(table, "start", "end"):
        return 'one."start"', 'one."end"', ""
    if database.has(table, "start_id", "end_id") and database.has("rocpd_timestamp", "id", "value"):
        stamps = database.named("rocpd_timestamp")
        joined = (
            f" LEFT JOIN {stamps} begun ON begun.id = one.start_id LEFT JOIN {stamps} ended ON ended.id = one.end_id"
        )
        return "begun.value", "ended.value", joined
    return "NULL", "NULL", ""


def _placed(database: Database, table: str) -> tuple[dict[str, str], str]:
    """SQL of process, thread, agent and queue: on the row itself, or on its track."""
    names = ("pid", "tid", "agent_id", "queue_id")
    own_columns = {name: database.column(table, name) for name in names}
    if (
        own_columns["pid"] != "NULL"
        or not database.has(table, "track_id")
        or not database.has("rocpd_track", "id", "pid")
    ):
        return own_columns, ""
    columns = database.tables["rocpd_track"][1]
    of_track = {name: f"track.{quoted(name)}" if name in columns else "NULL" for name in names}
    return of_track, f" LEFT JOIN {database.named('rocpd_track')} track ON track.id = one.track_id"


def _correlated(database: Database, table: str) -> tuple[str, str, str]:
    """SQL of what links a call and what it launched, and of the category of an event."""
    if not database.has(table, "event_id") or not database.has("rocpd_event", "id"):
        return "NULL", "NULL", ""
    columns = database.tables["rocpd_event"][1]
    stack = "happened.stack_id" if "stack_id" in columns else "NULL"
    category = "happened.category_id" if "category_id" in columns else "NULL"
    return stack, category, f" LEFT JOIN {database.named('rocpd_event')} happened ON happened.id = one.event_id"


def _select(database: Database, table: str, *more: str, joins: str = "") -> str:
    """Process, thread, start, end, link, category, agent, queue, then what else is asked for."""
    start, end, by_time = _timed(database, table)
    place, by_track = _placed(database, table)
    stack, category, by_event = _correlated(database, table)
    columns = (place["pid"], place["tid"], start, end, stack, category, place["agent_id"], place["queue_id"], *more)
    return f"SELECT {', '.join(columns)} FROM {database.named(table)} one{by_time}{by_track}{by_event}{joins}"


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**62 else None


def _left_out(source: Source, table: str, number: int) -> list[Note]:
    text = f"{table}: {number} rows left out: they end before they start, or have no times or no name"
    return [Note(text, Severity.WARNING, str(source))] if number else []


def _kernels(source: Source, database: Database, processes: dict[Any, RocpdProcess]) -> list[Note]:
    table, symbols = "rocpd_kernel_dispatch", "rocpd_info_kernel_symbol"
    if table not in database.tables:
        return []
    name, joins = "NULL", ""
    if database.has(symbols, "id") and database.has(table, "kernel_id"):
        columns = database.tables[symbols][1]
        shown = next(
            (name for name in ("display_name", "truncated_kernel_name", "kernel_name") if name in columns), None
        )
        if shown:
            name, joins = (
                f"substr(symbol.{quoted(shown)}, 1, {LETTERS})",
                f" LEFT JOIN {database.named(symbols)} symbol ON symbol.id = one.kernel_id",
            )
    devices, left_out = _device_numbers(database), 0
    for pid, tid, start, end, stack, _, agent, queue, kernel in database.rows(
        _select(database, table, name, joins=joins)
    ):
        group = f"{devices.get(agent, agent if isinstance(agent, int) else 0)}/{queue if isinstance(queue, int) else 0}"
        added = _add(
            source, database, processes, pid, Layer.GPU, str(kernel or ""), start, end, group, tid, None, stack
        )
        left_out += not added
    return _left_out(source, table, left_out)


def _device_numbers(database: Database) -> dict[Any, int]:
    """Agents are numbered with the processors among them; devices are counted by themselves."""
    if not database.has("rocpd_info_agent", "id", "type"):
        return {}
    index = database.column("rocpd_info_agent", "type_index", "logical_index")
    sql = f"SELECT one.id, {index} FROM {database.named('rocpd_info_agent')} one WHERE one.type = 'GPU' LIMIT 10000"
    return {agent: number for agent, number in database.rows(sql) if isinstance(number, int) and 0 <= number < 10**6}


def _copies(source: Source, database: Database, processes: dict[Any, RocpdProcess]) -> list[Note]:
    table = "rocpd_memory_copy"
    if table not in database.tables:
        return []
    more = [database.column(table, name) for name in ("name_id", "size", "dst_agent_id", "src_agent_id")]
    devices, left_out = _device_numbers(database), 0
    for pid, tid, start, end, stack, _, _, queue, name, size, to, of in database.rows(_select(database, table, *more)):
        direction = database.string(name).removeprefix("MEMORY_COPY_")
        device = devices.get(to, devices.get(of, 0))
        group = f"{device}/{queue if isinstance(queue, int) else '?'}"
        word = f"[HIP memcpy {COPIES.get(direction, direction or 'unknown')}]"
        left_out += not _add(
            source, database, processes, pid, Layer.GPU, word, start, end, group, tid, _whole(size), stack
        )
    return _left_out(source, table, left_out)


def _regions(source: Source, database: Database, processes: dict[Any, RocpdProcess]) -> list[Note]:
    """Calls and ranges of the host; their category says of what."""
    table = "rocpd_region"
    if table not in database.tables:
        return []
    left_out = 0
    sql = _select(database, table, database.column(table, "name_id"))
    for pid, tid, start, end, stack, category, _, _, name in database.rows(sql):
        kind, word = database.category(category).upper(), database.string(name)
        layer = next((layer for known, layer in DOMAINS.items() if known in kind), "") or _by_name(word)
        left_out += not _add(source, database, processes, pid, layer, word, start, end, "", tid, None, stack)
    return _left_out(source, table, left_out)


def _others(source: Source, database: Database) -> list[Note]:
    """Rows that no table has: allocations, samples, counters."""
    counts = {}
    for table in OTHER_ROWS:
        if table in database.tables:
            (counts[table],) = next(database.rows(f"SELECT count(*) FROM {database.named(table)}"))
    return [
        Note(f"{table}: {number} rows, not in any table", where=str(source))
        for table, number in counts.items()
        if number
    ]


def _by_name(name: str) -> str:
    if name.startswith(("hip", "__hip")):
        return Layer.HIP_API
    return HSA if name.startswith("hsa_") else Layer.NVTX


def _add(
    source: Source,
    database: Database,
    processes: dict[Any, RocpdProcess],
    number: Any,
    layer: str,
    name: str,
    start: Any,
    end: Any,
    group: str,
    thread: Any,
    size: int | None,
    link: Any,
) -> bool:
    process = _process(source, database, processes, number)
    if not name or not isinstance(start, int) or not isinstance(end, int):
        return False
    if layer == HSA:
        process.sums = process.sums or Sums(source)
        process.sums.add(HSA, name, max(end - start, 0))
    tid = _whole(thread) or 0
    is_range = layer == Layer.NVTX
    return process.events.add(layer, name, start, end, group, tid, size, _whole(link), user_range=is_range)


# ---------------------------------------------------------------- rocmProfileData
def _old(source: Source, database: Database, processes: dict[Any, RocpdProcess]) -> list[Note]:
    """Its operations name no process: they belong to the call that launched them."""
    if not database.has("rocpd_api", "id", "pid", "tid", "start", "end", "apiName_id"):
        return []
    left_out, pids = 0, set()
    sql = f'SELECT id, pid, tid, "start", "end", apiName_id FROM {database.named("rocpd_api")}'
    for number, pid, tid, start, end, name in database.rows(sql):
        word = database.string(name)
        pids.add(pid)
        left_out += not _add(source, database, processes, pid, _by_name(word), word, start, end, "", tid, None, number)
    notes = _left_out(source, "rocpd_api", left_out)
    return notes + (_old_operations(source, database, processes, pids) if "rocpd_op" in database.tables else [])


def _old_operations(
    source: Source, database: Database, processes: dict[Any, RocpdProcess], pids: set[Any]
) -> list[Note]:
    linked = database.has("rocpd_api_ops", "api_id", "op_id")
    more, joins = ("NULL", "NULL"), ""
    if linked:
        more = ("api.id", "api.pid")
        joins = f""" LEFT JOIN {database.named("rocpd_api_ops")} link ON link.op_id = one.id
            LEFT JOIN {database.named("rocpd_api")} api ON api.id = link.api_id"""
    sql = f"""SELECT one.gpuId, one.queueId, one."start", one."end", one.description_id, one.opType_id,
        {", ".join(more)}
        FROM {database.named("rocpd_op")} one{joins}"""
    only, left_out = next(iter(pids)) if len(pids) == 1 else None, 0
    for device, queue, start, end, description, kind, call, pid in database.rows(sql):
        operation = database.string(kind)
        name = operation if operation.startswith(OLD_COPIES) else database.string(description) or operation
        group = f"{device}/{queue}"
        owner = pid if pid is not None else only
        left_out += not _add(source, database, processes, owner, Layer.GPU, name, start, end, group, 0, None, call)
    return _left_out(source, "rocpd_op", left_out)
