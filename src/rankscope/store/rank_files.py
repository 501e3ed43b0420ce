"""Reads all files of a run of a few ranks; those of many are read by many.py."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.model.records import BadFile, Note, RankFacts, Reading, Severity
from rankscope.store.columns import joined, reading_tables, records_table
from rankscope.store.executors import ANYWHERE, At

BATCH = 32  # files whose tables are joined at a time

Read = Callable[[Path], Reading]
Progress = Callable[[int, int], None]


def unseen(done: int, total: int) -> None:
    """Progress that nobody looks at."""


@dataclass(slots=True)
class Recorded:
    """What came out of some rank files."""

    processes: list[int] = field(default_factory=list)
    facts: list[RankFacts] = field(default_factory=list)
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)


def load(files: Sequence[Path], read: Read, events: bool, progress: Progress) -> Recorded:
    """Everything the files hold; a bad file is told and the others are still read."""
    batches = [list(enumerate(files))[at : at + BATCH] for at in range(0, len(files), BATCH)]
    all_loaded = Recorded()
    for batch in batches:
        loaded = load_batch(batch, read, events)
        all_loaded.processes += loaded.processes
        all_loaded.facts += loaded.facts
        all_loaded.bad += loaded.bad
        for name, tables in loaded.tables.items():
            all_loaded.tables.setdefault(name, []).extend(tables)
        progress(len(all_loaded.processes) + len(all_loaded.bad), len(files))
    return all_loaded


Batch = Sequence[tuple[int, Path]]


def load_batch(batch: Batch, read: Read, events: bool) -> Recorded:
    """One batch, its tables joined."""
    loaded = Recorded()
    for process, path in batch:
        try:
            reading = read(path)
            tables = reading_tables(process, reading, events)
        except BadFile as problem:
            loaded.bad.append(str(problem))
            continue
        loaded.processes.append(process)
        loaded.facts.append(reading.facts)
        for name, table in tables.items():
            loaded.tables.setdefault(name, []).append(table)
    loaded.tables = {name: [joined(tables)] for name, tables in loaded.tables.items()}
    return loaded


# ---------------------------------------------------------------------------------------------------------------------
# Which rank files are read together, and where: a batch is of bounded size, and of one host if that host reads it.
MOST_FILES = 512  # of a batch,
MOST_BYTES = 48 << 20  # and what they may take on disk: bounds the memory of a worker
OWN_BYTES = 4 << 20  # of a host, from which its files make batches of their own: fewer are soon read from anywhere

Sized = tuple[int, Path, int]  # process, file, bytes on disk


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A rank file that only its node sees."""

    host: str  # of the node, as it calls itself
    path: Path  # there
    below: str  # its path in the run's folder, which has no copy of it or an older one
    bytes: int
    copied: bool  # whether there is an older one


Nodes = Mapping[Path, Elsewhere]
NO_NODES: Nodes = MappingProxyType({})


def with_elsewhere(run: Path, files: Sequence[Path], nodes: Sequence[Elsewhere]) -> list[Path]:
    """All files in the order that they have once they are gathered; of two of one process the one on its node."""
    if not nodes:
        return list(files)
    known = {str(path): path for path in files} | {str(run / node.below): node.path for node in nodes}
    return [known[path] for path in sorted(known, key=lambda path: path.split(os.sep))]


def tell_nodes(loaded: Recorded, files: list[Path], nodes: Nodes) -> None:
    """Note which files were read on their nodes; some had come into the run before it was their turn."""
    notes: dict[int, Note] = {}
    for process, facts in zip(loaded.processes, loaded.facts, strict=True):
        node = nodes.get(files[process])
        if node is not None and facts.source == str(node.path):
            what = "newer than the copy in the run" if node.copied else "not in the run"
            notes[process] = Note(f"read on its node, {what}", Severity.NOTE, facts.source)
        elif node is not None:
            files[process] = Path(facts.source)
    loaded.tables.setdefault("notes", []).append(records_table("notes", list(notes), list(notes.values())))


def place_of(path: Path, nodes: Nodes) -> At:
    """Where a rank file is best read: its folder is called after its host."""
    return At(nodes[path].host, only=True) if path in nodes else At(path.parent.name)


def batches_of(files: Sequence[tuple[int, Path]], nodes: Nodes, hosts: frozenset[str]) -> list[tuple[Batch, At]]:
    """Batches for workers on these hosts, each host's in turn: then all of them have something to do at once."""
    of_place: dict[At, list[Sized]] = {}
    for process, path in files:
        at = place_of(path, nodes) if hosts or nodes else ANYWHERE
        chosen = at if at.only or at.host in hosts else ANYWHERE
        of_place.setdefault(chosen, []).append((process, path, _size(path, nodes)))
    for at in [at for at, of_host in of_place.items() if at != ANYWHERE and not at.only and _is_small(of_host)]:
        of_place.setdefault(ANYWHERE, []).extend(of_place.pop(at))
    of_place.setdefault(ANYWHERE, []).sort(key=lambda item: item[0])
    turns = [(turn, batch, at) for at, of_host in of_place.items() for turn, batch in enumerate(_cut(of_host))]
    return [(batch, at) for _, batch, at in sorted(turns, key=lambda item: (item[0], item[1][0][0]))]


def _is_small(files: Sequence[Sized]) -> bool:
    return sum(size for _, _, size in files) < OWN_BYTES


def _size(path: Path, nodes: Nodes) -> int:
    if nodes and path in nodes:
        return nodes[path].bytes
    try:
        return os.stat(path).st_blocks * 512
    except OSError:
        return 0


def _cut(files: Sequence[Sized]) -> Iterator[Batch]:
    batch: list[tuple[int, Path]] = []
    taken = 0
    for process, path, size in files:
        if batch and (len(batch) == MOST_FILES or taken + size > MOST_BYTES):
            yield batch
            batch, taken = [], 0
        batch.append((process, path))
        taken += size
    if batch:
        yield batch


# ---------------------------------------------------------------------------------------------------------------------
# What some rank files hold, as Parquet: a pure function of the files, for any process of any machine to work out.
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
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ino


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
            tables_of = reading_tables(process, reading, events, empty=False)
        except BadFile as problem:
            summary.bad[process] = str(problem)
            continue
        except OSError as problem:
            summary.bad[process] = f"{path}: cannot be read: {problem.strerror or problem}"
            continue
        facts[process] = reading.facts
        for name, table in tables_of.items():
            tables.setdefault(name, []).append(table)
        if stamp is not None and _is_at_rest(path, stamp):
            summary.stamps[process] = stamp
    if facts:
        tables["ranks"] = [records_table("ranks", list(facts), list(facts.values()))]
    for name, parts in tables.items():
        merged = pa.concat_tables(parts).unify_dictionaries()
        summary.rows[name], summary.tables[name] = merged.num_rows, _parquet(name, merged)
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
    buffer = io.BytesIO()
    if name == "events":
        encodings = dict.fromkeys(TIMES, "DELTA_BINARY_PACKED")
        pq.write_table(
            table, buffer, compression="none", use_dictionary=[*WORDS, "process", "bytes", "root", "thread"],
            column_encoding=encodings, write_page_checksum=True,
        )  # fmt: skip
    else:
        pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()
