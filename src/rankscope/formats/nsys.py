"""Nsight Systems reports exported as sqlite (`nsys export --type sqlite`), whatever tables and columns they have."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

from rankscope.formats.source import GZIP, ZSTD, Source
from rankscope.model import Note, RankFacts, Reading, Severity
from rankscope.readers.nsys_facts import facts_of, process_ids, start_of
from rankscope.readers.nsys_tables import SOURCES, Database, EventTable, columns_of, select

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
        raise source.bad("is compressed: unpack it first, sqlite reads only plain files")
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
        raise source.bad("is not a file of its own: sqlite reads only files")
    try:
        with source.path.open("rb") as file:
            return file.read(len(MAGIC)), source.path.stat().st_size
    except OSError as problem:
        raise source.bad(f"cannot be opened: {problem.strerror}") from None


def _processes(source: Source, database: Database) -> Iterator[Reading]:
    tables = [one for one in SOURCES if database.has(one.table, "start", "end")]
    found = process_ids(database, tables)
    if not found:
        raise source.bad("has no kernels, copies, calls or ranges in it")
    base_ns = start_of(database)
    for global_pid in found:
        facts = facts_of(database, source, global_pid, alone=len(found) == 1)
        yield Reading(facts, notes=_notes(source, base_ns))
        for one in tables:
            yield from _events(source, database, one, global_pid, base_ns or 0, facts)


def _notes(source: Source, base_ns: int | None) -> list[Note]:
    told = "times do not count from 1970: the report does not tell when it began"
    return [Note(told, where=str(source))] if base_ns is None else []


def _events(
    source: Source, database: Database, table: EventTable, global_pid: int, base_ns: int, facts: RankFacts
) -> Iterator[Reading]:
    left_out = 0
    for rows in database.batches(select(database, table), (global_pid,), BATCH_ROWS):
        columns, bad = columns_of(database, table, rows, base_ns)
        left_out += bad
        yield Reading(facts, continues=True, event_columns=columns)
    if left_out:
        told = f"{table.table}: {left_out} events left out: they end before they start, or have no times"
        yield Reading(facts, continues=True, notes=[Note(told, Severity.WARNING, str(source))])
