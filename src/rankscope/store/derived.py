"""Tables that a function makes of the events of each process: many events, few rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankscope.model.records import COLLECTIVE_LAYERS, BadFile
from rankscope.model.tables import TRACE_TABLES, Summarise
from rankscope.store.columns import arrow_type, columns_of, columns_table, schema_of
from rankscope.store.rank_files import NO_NODES, Nodes, Progress, unseen

# ---------------------------------------------------------------------------------------------------------------------
# Traces of rank files: too many events for memory and, mostly, for any need. Who asks for single ones gets them from
# a folder that goes with the run; sums over them are made from the rank files themselves: derived.py.
ReadTrace = Callable[[Path], Iterator[Mapping[str, Any]]]


@dataclass(slots=True)
class Traces:
    """The rank files that have a trace, by process, and by whom it is read."""

    read: ReadTrace
    files: dict[int, Path]
    nodes: Nodes = field(default_factory=dict)
    _place: tempfile.TemporaryDirectory[str] | None = field(default=None)

    @property
    def written(self) -> bool:
        return self._place is not None

    def write(self, bad: list[str], progress: Progress = unseen) -> Path:
        """Put all events into Parquet files; a trace that cannot be read leaves none, and is named."""
        self._place = new_folder()
        folder = Path(self._place.name)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            results = pool.map(lambda batch: self._written(folder, *batch), self.files.items())
            for done, text in enumerate(results, 1):
                bad += [text] if text else []
                progress(done, len(self.files))
        pq.write_table(schema_of("events").empty_table(), folder / "none.parquet")
        return folder

    def _written(self, folder: Path, process: int, path: Path) -> str:
        if path in self.nodes:
            return f"{path}: its single events are on {self.nodes[path].host} only: rankscope gather brings them here"
        try:
            self._add(folder / f"{process}.parquet", process, path)
        except BadFile as problem:
            return str(problem)
        return ""

    def _add(self, target: Path, process: int, path: Path) -> None:
        writer = None
        try:
            for columns in self.read(path):
                if writer is None:
                    writer = pq.ParquetWriter(target, schema_of("events"), compression="zstd")
                writer.write_table(columns_table("events", process, columns))
        except Exception:
            if writer is not None:
                writer.close()
            target.unlink(missing_ok=True)
            raise
        if writer is not None:
            writer.close()


def traces_of(
    read: ReadTrace | None, files: Sequence[Path], figures: Iterable[pa.Table], nodes: Nodes = NO_NODES
) -> Traces | None:
    """The traces among the rank files of a run, whose readings have told of them; None where there are none."""
    if read is None:
        return None
    columns = [table.filter(pc.starts_with(table["series"], "trace "))["process"] for table in figures]
    processes = sorted({process for column in columns for process in pc.unique(column).to_pylist()})
    return Traces(read, {process: files[process] for process in processes}, nodes) if processes else None


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes when nobody holds it any more."""
    return tempfile.TemporaryDirectory(prefix="rankscope-events-")


# ---------------------------------------------------------------- derived
COLUMNS = ("process", "layer", "name", "group", "start_ns", "end_ns", "thread", "correlation")
BATCH_ROWS = 1 << 17

Columns = Mapping[str, Any]
Made = dict[str, list[pa.Table]]
Task = Callable[[], Made]
Told = Made | BadFile
InOrder = Callable[[Callable[[Task], Told], Sequence[Task]], Iterator[Told]]


def in_threads(work: Callable[[Task], Told], tasks: Sequence[Task]) -> Iterator[Told]:
    """What takes the time (native/read/trace_sums.c, decoding, sorting) lets the other threads go on."""
    with ThreadPoolExecutor(max(1, min(len(tasks), len(os.sched_getaffinity(0))))) as pool:
        yield from pool.map(work, tasks)


def derived(tasks: Sequence[Task], bad: list[str], in_order: InOrder = in_threads) -> dict[str, pa.Table]:
    """The tables of all tasks, in their order; what a bad file would have told is missing, and it is named.

    Who does the work matters to nobody: tasks can be sent to other processes and machines that see the files.
    """
    results: Made = {name: [] for name in TRACE_TABLES}
    for result in in_order(outcome_of, tasks):
        if isinstance(result, BadFile):
            bad.append(str(result))
            continue
        for name, tables in result.items():
            results[name] += tables
    return {name: pa.concat_tables([derived_schema(name).empty_table(), *tables]) for name, tables in results.items()}


def outcome_of(task: Task) -> Told:
    """The result of one task, or why there is none."""
    try:
        return task()
    except BadFile as problem:
        return problem


@cache
def derived_schema(table: str) -> pa.Schema:
    """The columns of such a table: `process`, then the fields of its record."""
    hints = get_type_hints(TRACE_TABLES[table])
    known = [(field.name, arrow_type(hints[field.name], pa.string())) for field in fields(TRACE_TABLES[table])]
    return pa.schema([("process", pa.int32()), *known])


def of_blocks(summarise: Summarise, process: int, blocks: Iterable[Columns]) -> Made:
    """What the function makes of the events of one process."""
    tables: Made = {}
    for name, columns in summarise(blocks).items():
        schema = derived_schema(name)
        rows = len(next(iter(columns.values())))
        given = {"process": [process] * rows, **columns}
        arrays = [pa.array(given[field.name], field.type) for field in schema]
        tables[name] = [pa.Table.from_arrays(arrays, schema=schema)] if rows else []
    return tables


def trace_tasks(
    summarise: Summarise, read: Callable[[Path], Iterable[Columns]], files: Mapping[int, Path]
) -> list[Task]:
    """One task for each rank file with a trace."""
    return [partial(_of_file, summarise, read, process, path) for process, path in files.items()]


def _of_file(summarise: Summarise, read: Callable[[Path], Iterable[Columns]], process: int, path: Path) -> Made:
    return of_blocks(summarise, process, read(path))


def loaded_tasks(summarise: Summarise, places: Iterable[tuple[str, int, int]]) -> list[Task]:
    """One task for each loaded file, given where its processes are in the run."""
    of_folder: dict[str, dict[int, int]] = {}
    for folder, there, here in places:
        of_folder.setdefault(folder, {})[there] = here
    files = [(Path(folder) / "events.parquet", here) for folder, here in of_folder.items()]
    return [partial(_of_parquet, summarise, path, here) for path, here in files if path.exists()]


def _of_parquet(summarise: Summarise, path: Path, here: Mapping[int, int]) -> Made:
    """A file has the processes one after the other, or all of one: one is looked at at a time."""
    results: Made = {}
    with pq.ParquetFile(path) as file:
        for there in _processes(file, here):
            for name, tables in of_blocks(summarise, here[there], _blocks(file, there, len(here))).items():
                results.setdefault(name, []).extend(tables)
    return results


def _processes(file: Any, here: Mapping[int, int]) -> list[int]:
    if len(here) == 1:
        return list(here)
    return [process for process in pc.unique(file.read(["process"])["process"]).to_pylist() if process in here]


def _blocks(file: Any, process: int, processes: int) -> Iterator[Columns]:
    """The events of one process, those that have ended; groups of rows that cannot have any are not read."""
    groups = [at for at in range(file.num_row_groups) if processes == 1 or _may_have(file, at, process)]
    known = [name for name in COLUMNS if name in file.schema_arrow.names]
    for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=known, use_threads=False):
        yield _block(pa.Table.from_batches([batch]), process if processes > 1 else None)


def _may_have(file: Any, group: int, process: int) -> bool:
    statistics = file.metadata.row_group(group).column(file.schema_arrow.names.index("process")).statistics
    return statistics is None or not statistics.has_min_max or statistics.min <= process <= statistics.max


def _block(table: pa.Table, process: int | None) -> Columns:
    if process is not None:
        table = table.filter(pc.equal(table["process"], process))
    if table["end_ns"].null_count:
        table = table.filter(table["end_ns"].is_valid())
    at = table.column_names.index("correlation") if "correlation" in table.column_names else -1
    if at >= 0 and table["correlation"].null_count == table.num_rows:
        table = table.remove_column(at)
    elif at >= 0 and table["correlation"].null_count:
        table = table.set_column(at, "correlation", pc.fill_null(table["correlation"], -1))
    return columns_of(table.drop_columns(["process"]) if "process" in table.column_names else table)


def memory_tasks(summarise: Summarise, events: pa.Table | None) -> list[Task]:
    """One task for each process of a table in memory that has more than the log of collectives."""
    if events is None or not events.num_rows:
        return []
    known = events.select([name for name in COLUMNS if name in events.column_names])
    logged = pc.is_in(known["layer"].cast(pa.string()), pa.array(COLLECTIVE_LAYERS))
    known = known.filter(pc.invert(logged))
    return [partial(_of_memory, summarise, known, process) for process in pc.unique(known["process"]).to_pylist()]


def _of_memory(summarise: Summarise, events: pa.Table, process: int) -> Made:
    return of_blocks(summarise, process, [_block(events, process)])
