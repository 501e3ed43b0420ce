"""What an nsys export tells of each process: ids, names, rank, devices, versions, and when it all began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rankscope.formats.source import Source
from rankscope.model import RankFacts
from rankscope.readers.nsys_tables import PROCESS_BITS, Database, EventTable, process_of

MOST_PROCESSES = 10_000


def process_ids(database: Database, tables: Sequence[EventTable]) -> list[int]:
    """The global ids of all processes with events."""
    found: set[int] = set()
    for one in tables:
        sql = f"SELECT DISTINCT {process_of(database, one.table)} FROM {one.table} LIMIT {MOST_PROCESSES}"
        found.update(row[0] for row in database.rows(sql) if isinstance(row[0], int))
    return sorted(found)[:MOST_PROCESSES]


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
    found = _one(database, "SELECT rank FROM MPI_RANKS WHERE globalPid = ?", global_pid)
    return found if isinstance(found, int) and 0 <= found < 2**31 else None


def _devices(database: Database) -> str:
    if not database.has("TARGET_INFO_GPU", "name"):
        return ""
    names = Counter(str(row[0]) for row in database.rows("SELECT name FROM TARGET_INFO_GPU LIMIT 1000"))
    return ", ".join(f"{count} × {name}" for name, count in names.items())


def _versions(database: Database) -> str:
    found = [("nsys", _text(database, "META_DATA_EXPORT", "value", "name", "EXPORT_PRODUCT_VERSION"))]
    found.append(("NVIDIA driver", _environment(database, "NvDriverVersion")))
    found.append(("CUDA driver", _cuda(_environment(database, "CudaDriverVersion"))))
    return "; ".join(f"{name} {version}" for name, version in found if version)


def _cuda(coded: str) -> str:
    """13000 means 13.0."""
    return f"{int(coded) // 1000}.{int(coded) % 1000 // 10}" if coded.isdecimal() and len(coded) < 9 else ""


def _environment(database: Database, key: str) -> str:
    return _text(database, "TARGET_INFO_SYSTEM_ENV", "value", "name", key)


def _text(database: Database, table: str, column: str, key: str, value: Any) -> str:
    if not database.has(table, column, key):
        return ""
    found = _one(database, f"SELECT substr({column}, 1, 1000) FROM {table} WHERE {key} = ? LIMIT 1", value)
    return str(found) if isinstance(found, (str, int)) else ""


def _one(database: Database, sql: str, *parameters: Any) -> Any:
    found = database.rows(sql, parameters)
    return found[0][0] if found else None
