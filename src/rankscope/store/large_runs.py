"""Reads the rank files of a large run: only those that changed, in batches of bounded size, by any executor."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankscope.model.records import RankFacts
from rankscope.model.tables import names_of
from rankscope.store.cache import ALIVE, Entry, Kept
from rankscope.store.columns import columns_of, schema_of
from rankscope.store.executors import Executor, Killed, Lost
from rankscope.store.folder import NoRun
from rankscope.store.rank_files import (
    NO_NODES,
    Batch,
    Nodes,
    Progress,
    Read,
    Recorded,
    Stamp,
    Summary,
    batches_of,
    below,
    stamp_of,
    summarise,
)

MANY_FROM = 256  # files from which tables are made in batches and kept
MOST_ROWS = 4_000_000  # of a table that is held in memory; a longer one stays on disk
ROWS_OF = {"steps": 10, "step_blocks": 8}  # what a row of so many columns counts for
DAMAGED = (pa.ArrowException, OSError, KeyError, ValueError)

Here = dict[int, int]  # process in a kept batch: process in the run


@dataclass(slots=True)
class Many:
    """The tables of a large run: batches of Parquet files, and how their processes are numbered in the run."""

    cache: Kept
    batches: list[tuple[Entry, Here]] = field(default_factory=list)
    on_disk: set[str] = field(default_factory=set)  # tables that are not in memory

    @property
    def stamps(self) -> dict[str, Stamp] | None:
        """Of all files as they were read, by their path below the run; None if one of them may still change."""
        stamps_of: dict[str, Stamp] = {}
        for entry, here in self.batches:
            if entry.bad or any(there not in entry.stamps for there in here):
                return None
            stamps_of |= {entry.files[there]: entry.stamps[there] for there in here}
        return stamps_of

    def parts(self, table: str) -> list[tuple[Path, Here | None, Set[int]]]:
        """The files of one table; numbers of its processes there and here where these are others; and all here."""
        return [
            (entry.path(table), None if entry.is_same(here) else here, set(here.values()))
            for entry, here in self.batches
            if entry.rows.get(table)
        ]


def load_many(
    run: Path,
    files: Sequence[Path],
    read: Read,
    events: bool,
    progress: Progress,
    executor: Executor,
    keep: bool = True,
    nodes: Nodes = NO_NODES,
) -> tuple[Recorded, Many]:
    """The tables of all files, most of them in memory; a bad file is told and the others are still read."""
    cache = Kept(run, keep)
    work = partial(summarise, read=read, events=events)
    try:
        return _load(run, files, work, events, progress, executor, cache, nodes)
    except DAMAGED:  # found only when it was looked into
        if not cache.entries:
            raise
        cache.entries = []
        return _load(run, files, work, events, progress, executor, cache, nodes)
    except Killed as problem:
        raise NoRun(f"{run}: {problem}") from None


def _load(
    run: Path,
    files: Sequence[Path],
    work: Callable[[Batch], Summary],
    events: bool,
    progress: Progress,
    executor: Executor,
    cache: Kept,
    nodes: Nodes,
) -> tuple[Recorded, Many]:
    entries, left = _as_they_were(run, files, cache, events)
    bad: dict[int, str] = {}
    done = len(files) - len(left)
    for batch, summary in _summaries(run, left, work, executor, nodes):
        entries.append(
            (cache.add(batch, summary, events), {there: there for there, _ in batch if there not in summary.bad})
        )
        bad |= summary.bad
        done += len(batch)
        progress(done, len(files))
    entries.sort(key=lambda entry: min(entry[1].values(), default=0))
    cache.finish(entry for entry, _ in entries)
    many = Many(cache, entries, _too_long(entries) | ({"events"} if events else set()))
    loaded = Recorded(bad=[bad[process] for process in sorted(bad)])
    for entry, here in entries:
        _add(loaded, entry, here, many.on_disk | {"events"})
    _in_order(loaded)
    return loaded, many


def _summaries(
    run: Path, files: Batch, work: Callable[[Batch], Summary], executor: Executor, nodes: Nodes
) -> Iterator[tuple[Batch, Summary]]:
    """Each batch with its summary; what is on nodes may change, and is not to be kept."""
    placed = batches_of(files, nodes, executor.hosts if files else frozenset())
    summaries = executor.map(work, [batch for batch, _ in placed], [at for _, at in placed])
    for (batch, at), summary in zip(placed, summaries, strict=True):
        if isinstance(summary, Lost):
            yield batch, Summary(bad={process: f"{path}: {summary}" for process, path in batch})
            continue
        home = dict(_come_home(run, batch, summary, nodes)) if at.only else {}
        if at.only:
            summary.stamps.clear()
            summary.bad = {process: text for process, text in summary.bad.items() if process not in home}
        rest = [item for item in batch if item[0] not in home]
        yield from [(rest, summary)] if rest else ()
        yield from [(list(home.items()), work(list(home.items())))] if home else ()


def _come_home(run: Path, batch: Batch, summary: Summary, nodes: Nodes) -> Batch:
    """Files that were no longer on their node when it came to them: their processes have brought them into the run."""
    there = [(process, run / nodes[path].below) for process, path in batch if process in summary.bad]
    return [(process, path) for process, path in there if path.exists()]


def _as_they_were(
    run: Path, files: Sequence[Path], cache: Kept, events: bool
) -> tuple[list[tuple[Entry, Here]], list[tuple[int, Path]]]:
    """The kept batches that can be used, and the files that are in none of them."""
    numbers = {below(run, path): process for process, path in enumerate(files)}
    used: list[tuple[Entry, Here]] = []
    covered: set[int] = set()
    for entry in cache.entries:
        if events and not entry.events:
            continue
        here = {
            there: numbers[path]
            for there, path in entry.files.items()
            if path in numbers and numbers[path] not in covered and _unchanged(run / path, entry.stamps.get(there))
        }
        if len(here) >= ALIVE * len(entry.files) and _can_be_read(entry):
            used.append((entry, here))
            covered |= set(here.values())
    return used, [(process, path) for process, path in enumerate(files) if process not in covered]


def _unchanged(path: Path, stamp: Stamp | None) -> bool:
    try:
        return stamp is not None and stamp_of(path) == stamp
    except OSError:
        return False


def _can_be_read(entry: Entry) -> bool:
    """A look at the end of each file; what lies in between has checksums."""
    try:
        return all(pq.read_metadata(entry.path(table)).num_rows == rows for table, rows in entry.rows.items())
    except DAMAGED:
        return False


def _too_long(batches: Sequence[tuple[Entry, Here]]) -> set[str]:
    rows: dict[str, int] = {}
    for entry, _ in batches:
        for table, count in entry.rows.items():
            rows[table] = rows.get(table, 0) + count * ROWS_OF.get(table, 1)
    return {table for table, count in rows.items() if count > MOST_ROWS} - {"ranks", "events", "notes"}


def _add(loaded: Recorded, entry: Entry, here: Here, on_disk: set[str]) -> None:
    for name in entry.rows:
        if name in on_disk:
            continue
        table = renumbered(read_table(entry.path(name), name), None if entry.is_same(here) else here)
        if name == "ranks":
            loaded.processes += table.column("process").to_pylist()
            loaded.facts += _facts(table)
        else:
            loaded.tables.setdefault(name, []).append(table)


def read_table(path: Path, name: str, columns: list[str] | None = None) -> pa.Table:
    """A table of one batch, its checksums looked at."""
    table = pq.read_table(path, columns=columns, use_threads=False, page_checksum_verification=True)
    schema = schema_of(name)
    return table.cast(pa.schema([schema.field(column) for column in table.column_names]))


def renumbered(table: pa.Table, here: Mapping[int, int] | None) -> pa.Table:
    """The rows of the processes that are still there, with their numbers in the run."""
    if here is None:
        return table
    there = table.column("process").to_numpy()
    numbers = np.full(max(int(there.max(initial=0)), *here, 0) + 1, -1, np.int32)
    numbers[list(here)] = list(here.values())
    is_here = numbers[there] >= 0
    return table.set_column(0, "process", pa.array(numbers[there])).filter(pa.array(is_here))


def _facts(table: pa.Table) -> list[RankFacts]:
    names = names_of(RankFacts)
    columns = [table.column(name).to_pylist() for name in names]
    return [RankFacts(*row) for row in zip(*columns, strict=True)]


def _in_order(loaded: Recorded) -> None:
    """By process, as if all had been read one after the other."""
    order = np.argsort(np.array(loaded.processes, np.int64), kind="stable").tolist()
    if order == list(range(len(order))):
        return
    loaded.processes = [loaded.processes[at] for at in order]
    loaded.facts = [loaded.facts[at] for at in order]
    for name, parts in loaded.tables.items():
        table_joined: Any = pa.concat_tables(parts).unify_dictionaries()
        at = np.argsort(table_joined.column("process").to_numpy(), kind="stable")
        loaded.tables[name] = [table_joined.take(pa.array(at))]


# ---------------------------------------------------------------------------------------------------------------------
# Tables of a large run that stay on disk: behind SQL, and the logs of collectives part by part.
MEMORY = "1GB"  # of the database; what does not fit goes to disk
LOGGED = ("process", "layer", "name", "group", "sequence")
TIMED = ("start_ns", "end_ns", "bytes", "root", "phase", "call_ns")
UNKNOWN = {"sequence": 0, "end_ns": -1, "bytes": 0, "root": -1}


def add_many(database: Any, recorded: dict[str, pa.Table], many: Many) -> list[str]:
    """Make a view `recorded_NAME` of each table that is not in memory; gives their names."""
    database.execute(f"SET memory_limit = '{MEMORY}'; SET temp_directory = '{_quoted(many.cache.passing)}'")
    names = []
    for name in sorted(many.on_disk):
        parts = [(path, here) for path, here, _ in many.parts(name)]
        if not parts:
            continue
        places = [(str(path), there, number) for path, here in parts if here for there, number in here.items()]
        columns = list(zip(*places, strict=True)) or [(), (), ()]
        kinds = (pa.string(), pa.int32(), pa.int32())
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
        database.register(f"places_of_{name}", pa.Table.from_arrays(arrays, ["file", "there", "here"]))
        database.execute(f"CREATE TEMP VIEW recorded_{name} AS {_sql(name, parts)}")
        recorded.pop(name, None)
        names.append(name)
    return names


def _sql(name: str, parts: list[tuple[Path, Here | None]]) -> str:
    as_is = [f"'{_pattern(path)}'" for path, here in parts if here is None]
    moved = [f"'{_pattern(path)}'" for path, here in parts if here is not None]
    pieces = [f"SELECT * FROM read_parquet([{', '.join(as_is)}])"] if as_is else []
    if moved:
        pieces.append(f"""SELECT here AS process, * EXCLUDE (process, filename, file, there, here)
            FROM read_parquet([{", ".join(moved)}], filename = true) JOIN places_of_{name}
            ON there = process AND filename = file""")
    return " UNION ALL BY NAME ".join(pieces)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _pattern(path: Path) -> str:
    return glob.escape(str(path)).replace("'", "''")


def read_part(path: Path, here: Here | None, table: str, columns: list[str]) -> pa.Table:
    """Some columns of a part of a table, its processes as they are numbered in the run."""
    try:
        return renumbered(read_table(path, table, columns), here)
    except DAMAGED as problem:
        text = " ".join(str(problem)[:200].split())
        raise NoRun(f"{path}: cannot be read ({text}): remove {path.parent}, it is made again") from None


@dataclass(frozen=True, slots=True)
class LogPart:
    """The logs of collectives of some ranks, read whenever they are asked for."""

    path: Path
    here: Here | None
    processes: Set[int]

    def __call__(self, with_times: bool) -> Mapping[str, Any]:
        """The records as arrays; `whole`: not only which collectives they are of."""
        table = self._read([*LOGGED, *(TIMED if with_times else ())])
        if not with_times:
            return columns_of(table)
        called = pc.is_valid(table.column("call_ns"))
        columns = columns_of(table.drop_columns(["call_ns"]))
        return {**columns, "progress": called.combine_chunks().to_numpy(zero_copy_only=False)}

    def timed(self) -> Mapping[str, Any]:
        """The records with the times for which the rank stood still: of nonblocking ones of MPI the call that waited,
        before their end, of others the starting call."""
        table = self._read([*LOGGED, "start_ns", "end_ns", "bytes", "call_ns"])
        start, end, call = (table.column(name) for name in ("start_ns", "end_ns", "call_ns"))
        waited = pc.and_(pc.equal(table.column("layer"), "mpi"), pc.and_(pc.is_valid(call), pc.greater_equal(end, 0)))
        went_on = pc.coalesce(pc.add(start, call), pc.if_else(pc.less(end, 0), start, end))
        began = pc.if_else(waited, pc.max_element_wise(start, pc.subtract(end, call)), start)
        for name, values in (("start_ns", began), ("end_ns", pc.if_else(waited, end, went_on))):
            table = table.set_column(table.column_names.index(name), name, values)
        return columns_of(table)

    def _read(self, columns: list[str]) -> pa.Table:
        table = read_part(self.path, self.here, "events", columns)
        for name, value in UNKNOWN.items():
            if name in table.column_names:
                at = table.column_names.index(name)
                table = table.set_column(at, name, pc.fill_null(table.column(name), value))
        return table


def step_part(path: Path, here: Here | None, columns: Sequence[str]) -> Mapping[str, Any]:
    """These columns of the steps of some ranks."""
    return columns_of(read_part(path, here, "steps", list(columns)))
