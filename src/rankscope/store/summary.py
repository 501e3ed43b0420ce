"""What some rank files hold, as Parquet: a pure function of the files, for any process of any machine to work out."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.model import BadFile, RankFacts, Reading
from rankscope.store.columns import reading_tables, records_table
from rankscope.store.rank_files import Batch, Read

ENDED = ("exited", "signalled", "replaced")  # these have said that they write no more
NO_LEASES = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS)
QUIET_NS = 600_000_000_000  # far longer than a page that was written to waits for the disk
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
            reading, stamp = read_settled(path, read)
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
        if stamp is not None and _is_at_rest(path, stamp):
            summary.stamps[process] = stamp
    if facts:
        tables["ranks"] = [records_table("ranks", list(facts), list(facts.values()))]
    for name, parts in tables.items():
        whole = pa.concat_tables(parts).unify_dictionaries()
        summary.rows[name], summary.tables[name] = whole.num_rows, _parquet(name, whole)
    return summary


def read_settled(path: Path, read: Read) -> tuple[Reading, Stamp | None]:
    """A rank file, and the stamp it had before if it can change no more, or not without getting another one.

    A process may write to its file, which it has mapped, without changing the file's time, as long as a page waits for
    the disk: some 30 s. So of one that has not said its end it must be known, before the file is read, that no process
    of this machine has it open, or the file must be older than that. What another machine writes brings a new time.
    """
    before, reading = stamp_of(path), read(path)
    ending, quiet = reading.facts.ending, before[1] < time.time_ns() - QUIET_NS
    if ending in ENDED:
        return reading, before
    free = nobody_writes(path) if ending == "vanished" or (quiet and ending != "running") else False
    if not (free or (quiet and free is None)):
        return reading, None
    before, reading = stamp_of(path), read(path)  # all that was written before that was known
    return reading, before if reading.facts.ending == ending else None


def nobody_writes(path: Path) -> bool | None:
    """Whether no process of this machine has the file open for writing, or mapped so; None: its file system knows not.

    The system grants a lease for reading only then, whatever containers hide of each other's processes.
    """
    with path.open("rb") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # if one opens it just now: a signal that does nothing
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as problem:
            return None if problem.errno in NO_LEASES else False
    return True


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
