"""Nsight Systems reports exported as sqlite (`nsys export --type sqlite`), whatever tables and columns they have."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import numpy as np

from rankscope.formats.nccl_kernels import nccl_operation
from rankscope.formats.source import GZIP, ZSTD, Source
from rankscope.model.gpu import DeviceTotals
from rankscope.model.records import Group, Layer, Note, RankFacts, Reading, Severity
from rankscope.model.tables import Words

# ---------------------------------------------------------------------------------------------------------------------
# The tables of an nsys export: which hold events of which layer, read with the columns this version of nsys wrote.
Row = tuple[Any, ...]

PROCESS_BITS = 24  # a global thread id is the global process id and the thread in its lowest bits
TEXT_LETTERS = 4096
TORCH_SUFFIX = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)  # of the ranges torch makes
PAGEABLE, DEVICE_MEMORY = "Pageable", "Device"
RELEASED = 1  # nsys's operation on memory
API_VERSION = re.compile(r"_v\d+$")  # cudaLaunchKernel_v7000
COPY_KINDS = (
    "unknown Host-to-Device Device-to-Host Host-to-Array Array-to-Host Array-to-Array Array-to-Device "
    "Device-to-Array Device-to-Device Host-to-Host Peer-to-Peer Unified-Host-to-Device Unified-Device-to-Host "
    "Unified-Device-to-Device"
).split()
CUPTI_MEMORY = {1: PAGEABLE}  # where the export does not name the kinds, they are CUPTI's
OPERATOR = re.compile(r"\w+::|\w*Backward\d+$|(?:detach_?|record_param_comms)$")  # ranges that torch makes of operators
DOMAIN_CREATED, MARK = 75, 34  # nsys's event types of NVTX
SIZE = re.compile(r'"(?:Message size \[bytes\]|size)"\s*:\s*"?(\d{1,18})\b')


@dataclass(frozen=True, slots=True)
class EventTable:
    """One table with events: its layer, and the columns (any of several, or None) our fields are made of."""

    table: str
    layer: str
    name: tuple[str, ...]  # string ids, or text where it ends in "text"
    group: tuple[str, ...] = ()
    bytes: tuple[str, ...] = ()
    root: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()  # kinds of memory that a copy reads and writes


GPU_GROUP = ("deviceId", "streamId")
SOURCES = (
    EventTable("CUPTI_ACTIVITY_KIND_KERNEL", Layer.GPU, ("demangledName", "shortName", "mangledName"), GPU_GROUP),
    EventTable(
        "CUPTI_ACTIVITY_KIND_MEMCPY", Layer.GPU, ("copyKind",), GPU_GROUP, ("bytes",), (), ("srcKind", "dstKind")
    ),
    EventTable("CUPTI_ACTIVITY_KIND_MEMSET", Layer.GPU, (), GPU_GROUP, ("bytes",)),
    EventTable("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", Layer.GPU_SYNC, ("syncType",), GPU_GROUP),
    EventTable("CUPTI_ACTIVITY_KIND_RUNTIME", Layer.CUDA_API, ("nameId",)),
    EventTable("CUPTI_ACTIVITY_KIND_DRIVER", Layer.CUDA_API, ("nameId",)),
    EventTable("NVTX_EVENTS", Layer.NVTX, ("text", "textId"), ("domainId",), ("jsonText",)),
    EventTable("MPI_P2P_EVENTS", Layer.MPI, ("textId",), ("commHandle",), ("size",)),
    EventTable("MPI_COLLECTIVES_EVENTS", Layer.MPI, ("textId",), ("commHandle",), ("size",), ("rootRank",)),
    EventTable("MPI_START_WAIT_EVENTS", Layer.MPI, ("textId",)),
    EventTable("MPI_OTHER_EVENTS", Layer.MPI, ("textId",)),
    EventTable("OSRT_API", Layer.OS, ("nameId",)),
)


@dataclass(slots=True)
class Database:
    """The tables and columns that are there, and what is looked up again and again."""

    connection: sqlite3.Connection
    tables: dict[str, frozenset[str]] = field(default_factory=dict)
    string: Any = None
    labels: dict[str, dict[int, str]] = field(default_factory=dict)
    domains: dict[tuple[int, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"  # no views, no modules
        )
        for (name,) in self.connection.execute(named).fetchall():
            self.tables[name] = frozenset(
                row[1] for row in self.connection.execute(f"PRAGMA table_info({quoted(name)})")
            )
        self.string = lru_cache(maxsize=1 << 16)(self._string)
        self.labels["syncType"] = self._labels("ENUM_CUPTI_SYNC_TYPE")
        self.labels["memory"] = self._labels("ENUM_CUDA_MEM_KIND") or CUPTI_MEMORY
        self.domains = self._domains()

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= self.tables.get(table, frozenset()) if table in self.tables else False

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self.connection.execute(sql, parameters).fetchmany(100_000)

    def batches(self, sql: str, parameters: Sequence[Any], rows: int) -> Iterator[list[Row]]:
        cursor = self.connection.execute(sql, parameters)
        while batch := cursor.fetchmany(rows):
            yield batch

    def _string(self, number: Any) -> str:
        if not self.has("StringIds", "id", "value") or not isinstance(number, int):
            return ""
        rows = self.rows("SELECT substr(value, 1, ?) FROM StringIds WHERE id = ?", (TEXT_LETTERS, number))
        return str(rows[0][0]) if rows else f"string {number}"

    def _labels(self, table: str) -> dict[int, str]:
        return dict(self.rows(f"SELECT id, label FROM {table}")) if self.has(table, "id", "label") else {}

    def _domains(self) -> dict[tuple[int, int], str]:
        if not self.has("NVTX_EVENTS", "eventType", "domainId", "text", "globalTid"):
            return {}
        sql = f"""SELECT globalTid >> {PROCESS_BITS}, domainId, substr(text, 1, {TEXT_LETTERS}) FROM NVTX_EVENTS
            WHERE eventType = {DOMAIN_CREATED} AND text IS NOT NULL"""
        return {(process, domain): text for process, domain, text in self.rows(sql)}


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def process_of(database: Database, table: str) -> str:
    """The SQL of a row's global process id; 0 where the table does not tell."""
    if database.has(table, "globalPid"):
        return "coalesce(globalPid, 0)"
    return f"coalesce((globalTid >> {PROCESS_BITS}) << {PROCESS_BITS}, 0)" if database.has(table, "globalTid") else "0"


def select(database: Database, table: EventTable) -> str:
    """Start, end, thread, correlation, bytes, root, two columns of the group, two of memory, then those of the name."""

    def column(names: Sequence[str], place: int = 0) -> str:
        present = [name for name in names if database.has(table.table, name)]
        return quoted(present[place]) if place < len(present) else "NULL"

    columns = [
        "start",
        '"end"',
        column(("globalTid",)),
        column(("correlationId",)),
        column(table.bytes),
        column(table.root),
    ]
    columns += [column(table.group), column(table.group, 1), column(table.memory), column(table.memory, 1)]
    columns += [
        f"substr({column(['text'])}, 1, {TEXT_LETTERS})" if name == "text" else column([name]) for name in table.name
    ]
    events = (
        f" AND eventType <> {DOMAIN_CREATED}"
        if database.has(table.table, "eventType") and table.layer == Layer.NVTX
        else ""
    )
    return f"SELECT {', '.join(columns)} FROM {table.table} WHERE {process_of(database, table.table)} = ?{events}"


def columns_of(database: Database, table: EventTable, rows: list[Row], base_ns: int) -> tuple[Mapping[str, Any], int]:
    """The rows as event columns, and how many were left out because they end before they start."""
    good = [row for row in rows if _timed(row)]
    if not good:
        return {}, len(rows)
    names, groups, layers = ([make(database, table, row) for row in good] for make in (_name, _group, _layer))
    columns = {
        "layer": _words(layers),
        "name": _words(names),
        "start_ns": np.array([row[0] for row in good], np.int64) + base_ns,
        "end_ns": np.array([row[0] if row[1] is None else row[1] for row in good], np.int64) + base_ns,
        "group": _words(groups),
        "bytes": _numbers([_size(row[4]) for row in good]),
        "correlation": _numbers([row[3] for row in good]),
        "root": _numbers([row[5] for row in good]),
        "thread": np.array([_thread(row[2]) for row in good], np.int64),
        **_hints(database, table, good, names),
    }
    return columns, len(rows) - len(good)


def _hints(database: Database, table: EventTable, rows: list[Row], names: list[str]) -> Mapping[str, Any]:
    """What is not kept of single events but needed of their sums."""
    if table.layer == Layer.NVTX:
        return {"user_range": np.array([OPERATOR.match(name) is None for name in names], bool)}
    if table.memory:
        labels = database.labels["memory"]
        return {"pageable": np.array([PAGEABLE in (labels.get(row[8]), labels.get(row[9])) for row in rows], bool)}
    if table.layer == Layer.GPU and not table.bytes:
        return {"algorithm": _words([" ".join(nccl_operation(name)).strip() for name in names])}
    return {}


def _timed(row: Row) -> bool:
    start, end = row[0], row[0] if row[1] is None else row[1]
    return isinstance(start, int) and isinstance(end, int) and -(2**61) < start <= end < 2**61


def _thread(global_tid: Any) -> int:
    return global_tid & (1 << PROCESS_BITS) - 1 if isinstance(global_tid, int) else 0


def _size(value: Any) -> Any:
    match = SIZE.search(value) if isinstance(value, str) else None
    return int(match[1]) if match else value


def _numbers(values: list[Any]) -> Any:
    good = [value if isinstance(value, int) and 0 <= value < 2**63 else -1 for value in values]
    return np.ma.MaskedArray(np.array(good, np.int64), [value < 0 for value in good])


def _words(words: list[str]) -> Words:
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(word, len(known)) for word in words], np.int32)
    return Words(codes, list(known))


def _name(database: Database, table: EventTable, row: Row) -> str:
    if table.table.endswith("_MEMSET"):
        return "[CUDA memset]"
    label = next((value for value in row[10:] if value is not None), None)
    if table.table.endswith("_MEMCPY"):
        known = isinstance(label, int) and 0 < label < len(COPY_KINDS)
        return f"[CUDA memcpy {COPY_KINDS[label]}]" if known and isinstance(label, int) else "[CUDA memcpy]"
    if table.layer == "gpu_sync":
        return (
            database.labels["syncType"].get(label, "synchronization") if isinstance(label, int) else "synchronization"
        )
    name = label if isinstance(label, str) else str(database.string(label))
    return (API_VERSION if table.layer == "cuda_api" else TORCH_SUFFIX).sub("", name)


def _group(database: Database, table: EventTable, row: Row) -> str:
    first, second = row[6], row[7]
    if table.layer == Layer.NVTX:
        return _domain(database, row)
    if table.group == GPU_GROUP:
        return f"{first}/{second}"
    return "" if first is None else str(first)


def _layer(database: Database, table: EventTable, row: Row) -> str:
    return Layer.NCCL if table.layer == Layer.NVTX and _domain(database, row) == "NCCL" else table.layer


def _domain(database: Database, row: Row) -> str:
    process = row[2] >> PROCESS_BITS if isinstance(row[2], int) else 0
    return database.domains.get((process, row[6]), "")


# ---------------------------------------------------------------------------------------------------------------------
# What an nsys export tells of each process: ids, names, rank, devices, versions, and when it all began.
MOST_PROCESSES = 10_000


def process_ids(database: Database, tables: Sequence[EventTable]) -> list[int]:
    """The global ids of all processes with events."""
    pids: set[int] = set()
    for table in tables:
        sql = f"SELECT DISTINCT {process_of(database, table.table)} FROM {table.table} LIMIT {MOST_PROCESSES}"
        pids.update(row[0] for row in database.rows(sql) if isinstance(row[0], int))
    return sorted(pids)[:MOST_PROCESSES]


def start_of(database: Database) -> int | None:
    """What to add to a time in the file to make it Unix time."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if not database.has(table, "utcEpochNs"):
        return None
    unix_ns = _one(database, f"SELECT utcEpochNs FROM {table}")
    clock_ns = _one(database, f"SELECT systemClockNs FROM {table}") if database.has(table, "systemClockNs") else None
    details = database.has("ANALYSIS_DETAILS", "startTime")
    first_ns = _one(database, "SELECT startTime FROM ANALYSIS_DETAILS") if details else None
    if not isinstance(unix_ns, int) or not 0 <= unix_ns < 2**62:
        return None
    counts_from_boot = isinstance(clock_ns, int) and isinstance(first_ns, int) and first_ns >= clock_ns
    return unix_ns - clock_ns if counts_from_boot and isinstance(clock_ns, int) else unix_ns


def facts_of(database: Database, source: Source, global_pid: int, alone: bool) -> RankFacts:
    """The facts of one process; a rank given by the user is meant for the only one."""
    pid = global_pid >> PROCESS_BITS & 0xFFFFFF
    facts = RankFacts(pid=pid or None, source=str(source), host=_environment(database, "Hostname"))
    facts.executable = _text(database, "PROCESSES", "name", "globalPid", global_pid)
    facts.rank = _rank(database, global_pid)
    facts.rank_source = "MPI_RANKS" if facts.rank is not None else ""
    if facts.rank is None and alone and source.hints.rank is not None:
        facts.rank, facts.rank_source = source.hints.rank, "--rank"
    facts.devices = _devices(database)
    facts.versions = _versions(database)
    return facts


def _rank(database: Database, global_pid: int) -> int | None:
    if not database.has("MPI_RANKS", "globalPid", "rank"):
        return None
    rank = _one(database, "SELECT rank FROM MPI_RANKS WHERE globalPid = ?", global_pid)
    return rank if isinstance(rank, int) and 0 <= rank < 2**31 else None


def _devices(database: Database) -> str:
    if not database.has("TARGET_INFO_GPU", "name"):
        return ""
    names = Counter(str(row[0]) for row in database.rows("SELECT name FROM TARGET_INFO_GPU LIMIT 1000"))
    return ", ".join(f"{count} × {name}" for name, count in names.items())


def _versions(database: Database) -> str:
    versions = [("nsys", _text(database, "META_DATA_EXPORT", "value", "name", "EXPORT_PRODUCT_VERSION"))]
    versions.append(("NVIDIA driver", _environment(database, "NvDriverVersion")))
    versions.append(("CUDA driver", _cuda(_environment(database, "CudaDriverVersion"))))
    return "; ".join(f"{name} {version}" for name, version in versions if version)


def _cuda(coded: str) -> str:
    """13000 means 13.0."""
    return f"{int(coded) // 1000}.{int(coded) % 1000 // 10}" if coded.isdecimal() and len(coded) < 9 else ""


def _environment(database: Database, key: str) -> str:
    return _text(database, "TARGET_INFO_SYSTEM_ENV", "value", "name", key)


def _text(database: Database, table: str, column: str, key: str, value: Any) -> str:
    if not database.has(table, column, key):
        return ""
    text = _one(database, f"SELECT substr({column}, 1, 1000) FROM {table} WHERE {key} = ? LIMIT 1", value)
    return str(text) if isinstance(text, (str, int)) else ""


def _one(database: Database, sql: str, *parameters: Any) -> Any:
    rows = database.rows(sql, parameters)
    return rows[0][0] if rows else None


# ---------------------------------------------------------------- nsys
MAGIC = b"SQLite format 3\x00"
OURS = (b"StringIds", b"CUPTI_ACTIVITY_KIND", b"NVTX_EVENTS", b"TARGET_INFO", b"META_DATA_EXPORT", b"OSRT_API")
BATCH_ROWS = 50_000
STEPS = 1_000_000  # of sqlite's machine, some hundredths of a second
SOME_STEPS, STEPS_PER_MB = 500, 100  # in millions: what reading an honest file does not need


def sniff(head: bytes) -> bool:
    """An sqlite database whose schema names tables of nsys."""
    return head.startswith(MAGIC) and sum(name in head for name in OURS) >= 2


def read(source: Source) -> Iterator[Reading]:
    """Each process in the report that did something, its events in batches."""
    try:
        with closing(opened(source)) as connection:
            yield from _processes(source, Database(connection))
    except (sqlite3.Error, OverflowError, UnicodeError) as problem:
        raise source.bad(f"cannot be read as an nsys report: {problem}") from None


def opened(source: Source) -> sqlite3.Connection:
    """The database, for reading only; what a hostile schema could do is switched off."""
    magic, size = _first_bytes(source)
    if magic.startswith((GZIP, ZSTD)):
        raise source.bad("is compressed: decompress it first, sqlite reads only plain files")
    if magic != MAGIC:
        raise source.bad("is not an sqlite database")
    connection = sqlite3.connect(f"file:{quote(str(source.path.absolute()))}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    for guard in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
        connection.execute(f"PRAGMA {guard}")
    looks = iter(range(SOME_STEPS + STEPS_PER_MB * (size >> 20)))
    connection.set_progress_handler(lambda: next(looks, None) is None, STEPS)
    return connection


def _first_bytes(source: Source) -> tuple[bytes, int]:
    if source.content is not None:
        raise source.bad("is part of another file: sqlite reads only whole files")
    try:
        with source.path.open("rb") as file:
            return file.read(len(MAGIC)), source.path.stat().st_size
    except OSError as problem:
        raise source.bad(f"cannot be opened: {problem.strerror}") from None


def _processes(source: Source, database: Database) -> Iterator[Reading]:
    tables = [table for table in SOURCES if database.has(table.table, "start", "end")]
    pids = process_ids(database, tables)
    if not pids:
        raise source.bad("has no kernels, copies, calls or ranges in it")
    base_ns = start_of(database)
    for global_pid in pids:
        facts = facts_of(database, source, global_pid, alone=len(pids) == 1)
        yield Reading(facts, notes=_notes(source, base_ns), groups=_communicators(database, global_pid, facts))
        yield Reading(facts, continues=True, devices=_memory(database, global_pid))
        for table in tables:
            yield from _events(source, database, table, global_pid, base_ns or 0, facts)


def _communicators(database: Database, global_pid: int, facts: RankFacts) -> list[Group]:
    """A process that uses one communicator is taken to use MPI_COMM_WORLD: handles differ from rank to rank."""
    table = "MPI_COLLECTIVES_EVENTS"
    if not database.has(table, "commHandle"):
        return []
    sql = f"SELECT DISTINCT commHandle FROM {table} WHERE {process_of(database, table)} = ? LIMIT 100"
    handles = [row[0] for row in database.rows(sql, (global_pid,)) if row[0] is not None]
    if len(handles) > 1:
        return [Group(str(handle), f"{handle}, group unknown", guessed=True) for handle in handles]
    ranks = _one(database, "SELECT count(*) FROM MPI_RANKS") if database.has("MPI_RANKS", "rank") else None
    size = ranks if isinstance(ranks, int) and ranks > 1 else None  # a report of each rank has only its own
    return [Group(str(handle), "MPI_COMM_WORLD, by order", size=size, my_rank=facts.rank) for handle in handles]


MEMORY_TABLE = "CUDA_GPU_MEMORY_USAGE_EVENTS"


def _memory(database: Database, global_pid: int) -> list[DeviceTotals]:
    """Allocations on devices, one by one: nsys does not sum them up."""
    if not database.has(MEMORY_TABLE, "start", "deviceId", "bytes", "memoryOperationType"):
        return []
    kinds = database.labels["memory"]
    kind = "memKind" if database.has(MEMORY_TABLE, "memKind") else "NULL"
    sql = f"""SELECT deviceId, bytes, memoryOperationType, {kind} FROM {MEMORY_TABLE}
        WHERE {process_of(database, MEMORY_TABLE)} = ? ORDER BY start"""
    devices: dict[int, DeviceTotals] = {}
    for rows in database.batches(sql, (global_pid,), BATCH_ROWS):
        for device, size, operation, of_kind in rows:
            is_sound = isinstance(device, int) and isinstance(size, int) and 0 <= device < 1000 and 0 <= size < 2**48
            if is_sound and kinds.get(of_kind, DEVICE_MEMORY).startswith(DEVICE_MEMORY):
                _allocate(devices.setdefault(device, DeviceTotals(device)), size, operation == RELEASED)
    return list(devices.values())


def _allocate(device_totals: DeviceTotals, size: int, is_release: bool) -> None:
    if is_release:
        device_totals.releases += 1
        device_totals.released_bytes += size
    else:
        device_totals.allocations += 1
        device_totals.allocated_bytes += size
    # what was allocated before the report began may be released in it
    device_totals.current_bytes = max(0, device_totals.current_bytes + (-size if is_release else size))
    device_totals.peak_bytes = max(device_totals.peak_bytes, device_totals.current_bytes)


def _notes(source: Source, base_ns: int | None) -> list[Note]:
    text = "times are not Unix times: the report does not say when it began"
    return [Note(text, where=str(source))] if base_ns is None else []


def _events(
    source: Source, database: Database, table: EventTable, global_pid: int, base_ns: int, facts: RankFacts
) -> Iterator[Reading]:
    left_out = 0
    for rows in database.batches(select(database, table), (global_pid,), BATCH_ROWS):
        columns, bad = columns_of(database, table, rows, base_ns)
        left_out += bad
        yield Reading(facts, continues=True, event_columns=columns)
    if left_out:
        text = f"{table.table}: {left_out} events left out: they end before they start, or have no times"
        yield Reading(facts, continues=True, notes=[Note(text, Severity.WARNING, str(source))])
