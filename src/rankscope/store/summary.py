"""What some rank files hold, as Parquet: a pure function of the files, for any process of any machine to work out."""

from __future__ import annotations

import io
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.model import BadFile, RankFacts
from rankscope.store.columns import reading_tables, records_table
from rankscope.store.load import Batch, Read

ENDED = ("exited", "signalled", "replaced")  # only these have said that they write no more
YOUNG_NS = 2_000_000_000  # a file changed since may change once more without a new time
TIMES = ("start_ns", "end_ns", "sequence")
WORDS = ("layer", "name", "group", "phase", "dtype", "kind")

Stamp = tuple[int, int, int]  # size, time of change, inode


@dataclass(slots=True)
class Summary:
    """The tables of a batch of rank files, each as the bytes of a Parquet file."""

    stamps: dict[int, Stamp] = field(default_factory=dict)  # by process: of those that will not change any more
    bad: dict[int, str] = field(default_factory=dict)
    tables: dict[str, bytes] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)


def stamp_of(path: Path) -> Stamp:
    """What changes with a file, as far as the file system tells."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, found.st_ino


def below(run: Path, path: Path) -> str:
    """A file's path in the run's folder; there may be a hundred thousand of them."""
    text, folder = str(path), f"{run}{os.sep}"
    return text[len(folder) :] if text.startswith(folder) else os.path.relpath(path, run)


def summarise(batch: Batch, read: Read, events: bool) -> Summary:
    """Everything that the files of a batch hold; a bad file is told and the others are still read."""
    summary = Summary()
    facts: dict[int, RankFacts] = {}
    tables: dict[str, list[pa.Table]] = {}
    for process, path in batch:
        try:
            before = stamp_of(path)
            reading = read(path)
            found = reading_tables(process, reading, events, empty=False)
        except BadFile as problem:
            summary.bad[process] = str(problem)
            continue
        except OSError as problem:
            summary.bad[process] = f"{path}: cannot be read: {problem.strerror or problem}"
            continue
        facts[process] = reading.facts
        for name, table in found.items():
            tables.setdefault(name, []).append(table)
        if reading.facts.ending in ENDED and _is_at_rest(path, before):
            summary.stamps[process] = before
    if facts:
        tables["ranks"] = [records_table("ranks", list(facts), list(facts.values()))]
    for name, parts in tables.items():
        whole = pa.concat_tables(parts).unify_dictionaries()
        summary.rows[name], summary.tables[name] = whole.num_rows, _parquet(name, whole)
    return summary


def _is_at_rest(path: Path, before: Stamp) -> bool:
    return stamp_of(path) == before and before[1] < time.time_ns() - YOUNG_NS


def _parquet(name: str, table: pa.Table) -> bytes:
    """Events are many: their times as differences, which need no compression on top."""
    made = io.BytesIO()
    if name == "events":
        encodings = dict.fromkeys(TIMES, "DELTA_BINARY_PACKED")
        pq.write_table(
            table, made, compression="none", use_dictionary=[*WORDS, "process", "bytes", "root", "thread"],
            column_encoding=encodings, write_page_checksum=True,
        )  # fmt: skip
    else:
        pq.write_table(table, made, compression="zstd", write_page_checksum=True)
    return made.getvalue()
