"""Opens a run: its tables in an embedded database."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.model.records import Layer, Note, RankFacts, Severity
from rankscope.model.tables import Summarise, names_of
from rankscope.store import large_runs
from rankscope.store.columns import RECORDS, columns_of, plain_numbers, records_table, schema_of
from rankscope.store.derived import (
    ReadTrace,
    Task,
    Told,
    Traces,
    derived,
    in_threads,
    loaded_tasks,
    memory_tasks,
    new_folder,
    trace_tasks,
    traces_of,
)
from rankscope.store.executors import ANYWHERE, At, Executor, Killed, Pool
from rankscope.store.folder import Job, NoRun, find_run, host_groups_table, rank_files, read_job, unrecorded
from rankscope.store.foreign import FileNames, Members, file_names, loaded_folders
from rankscope.store.large_runs import LogPart, Many, add_many, read_part, step_part
from rankscope.store.rank_files import (
    Elsewhere,
    Nodes,
    Progress,
    Read,
    Recorded,
    Stamp,
    load,
    place_of,
    tell_nodes,
    unseen,
    with_elsewhere,
)
from rankscope.store.roles import assign_roles

# ---------------------------------------------------------------------------------------------------------------------
# Joins what was recorded in a run with what was loaded into it.
KEPT_ON_DISK = ("events",)  # may be many: read from the files by each question, as far as it needs them
UNTRACED = "untraced_events"  # those of logs and loaded files: without the traces of rank files
RECORDED_LAYERS = frozenset((Layer.MPI,))
IN_RANGE = "coalesce(within, '') <> '' OR kind = 'whole'"  # which rows of a mixed file are range_tallies

Place = tuple[str, int, int]  # file's folder, process there, process in the run
LOADED_COLUMNS = {
    "folder": pa.string(),
    "there": pa.int32(),
    "here": pa.int32(),
    "turn": pa.int32(),  # in the order of loading
    "called": pa.string(),
    "label": pa.string(),
}
# a file goes by the name under which it was loaded, unless another one does, too
LABELLED = """ REPLACE (CASE WHEN called <> label AND starts_with("where", called)
    THEN label || substr("where", length(called) + 1) ELSE "where" END AS "where")"""


def sound_folders(run: Path) -> tuple[list[Path], list[str]]:
    """What is loaded in a run and can be read, and a line for each that cannot."""
    sound, bad = [], []
    for folder, about in loaded_folders(run):
        try:
            for path in folder.glob("*.parquet"):
                pq.read_metadata(path)
            sound.append(folder)
        except (pa.ArrowException, OSError) as problem:
            text = f"{path}: cannot be read: {' '.join(str(problem)[:200].split())}"
            bad.append(f"{text} (load {about.get('source', 'it')} again)")
    return sound, bad


def place_processes(folders: Sequence[Path], members: Members, names: FileNames) -> list[Place]:
    """Every loaded process as a process of the run."""
    places: list[Place] = []
    for folder in folders:
        for row in pq.read_table(folder / "ranks.parquet").to_pylist():
            facts = RankFacts(**{name: row[name] for name in names_of(RankFacts) if name in row})
            if facts.source == names.called[folder]:
                facts.source = names.labels[folder]
            places.append((str(folder), row["process"], members.place(facts, frozenset(row.get("layers") or ()))))
    members.settle()
    return places


def add_loaded(
    database: Any, recorded: dict[str, pa.Table], folders: Sequence[Path], places: list[Place], names: FileNames
) -> None:
    """Make every table but `ranks` and `run` the union of what was recorded and what was loaded."""
    about = {str(folder): (turn, names.called[folder], names.labels[folder]) for turn, folder in enumerate(folders)}
    rows = [(*place, *about[place[0]]) for place in places]
    columns = list(zip(*rows, strict=True)) or [()] * len(LOADED_COLUMNS)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, LOADED_COLUMNS.values(), strict=True)]
    database.register("loaded_places", pa.Table.from_arrays(arrays, list(LOADED_COLUMNS)))
    mixed = [folder / "tallies.parquet" for folder in folders if _is_mixed(folder / "tallies.parquet")]
    for name in RECORDS.keys() - {"ranks"}:
        files = [folder / f"{name}.parquet" for folder in folders if (folder / f"{name}.parquet").exists()]
        if name in recorded:  # what is not there stays on disk and is a view already: add_many
            database.register(f"recorded_{name}", recorded[name])
        relation = "VIEW" if name in KEPT_ON_DISK else "TABLE"
        called = UNTRACED if name == "events" else name
        database.execute(f"CREATE TEMP {relation} {called} AS {_union_sql(name, files, mixed)}")


def add_traces(database: Any, folder: Path) -> None:
    """Make `events` the union of all other events and those of traces, which stay on disk."""
    database.execute(f"""CREATE OR REPLACE TEMP VIEW events AS SELECT * FROM {UNTRACED}
        UNION ALL BY NAME SELECT * FROM read_parquet('{_quoted(folder)}/*.parquet')""")


def _is_mixed(tallies: Path) -> bool:
    """Whether a file loaded by an older rankscope holds both, tallies and range_tallies."""
    return tallies.exists() and "within" in pq.read_schema(tallies).names


def _union_sql(name: str, files: Sequence[Path], mixed: Sequence[Path]) -> str:
    wanted = ", ".join(f'"{column}"' for column in names_of(RECORDS[name]))
    # the recorded table comes first and has every column of today's model: an old file may lack some
    parts = [f'SELECT process, {wanted} FROM "recorded_{name}"']
    unmixed = [path for path in files if path not in mixed]
    if unmixed:
        parts.append(_loaded_sql(name, unmixed))
    if mixed and name == "tallies":
        parts.append(_loaded_sql(name, mixed, f"WHERE NOT ({IN_RANGE})", "within,"))
    elif mixed and name == "range_tallies":
        parts.append(_loaded_sql("tallies", mixed, f"WHERE {IN_RANGE}"))
    return " UNION ALL BY NAME ".join(parts)


def _loaded_sql(name: str, files: Sequence[Path], where: str = "", left_out: str = "") -> str:
    paths = ", ".join(f"'{_quoted(path)}'" for path in files)
    # tables keep the order of their files, which is that of what was read
    order = "" if name in KEPT_ON_DISK else "ORDER BY turn, file_row_number"
    left_out += f" process, filename, file_row_number, {', '.join(LOADED_COLUMNS)}"
    return f"""
        (SELECT here AS process, * EXCLUDE ({left_out}){LABELLED if name == "notes" else ""}
        FROM read_parquet([{paths}], filename = true, file_row_number = true, union_by_name = true) JOIN loaded_places
        ON there = process AND filename = folder || '/{name}.parquet' {where} {order})"""


def _quoted(path: Path) -> str:
    return glob.escape(str(path)).replace("'", "''")


# ---------------------------------------------------------------- run
STREAM_ROWS = 10_000
TEXTS, EVENTS = re.compile(r"'[^']*'"), re.compile(r"\bevents\b", re.IGNORECASE)
STREAM_MEMORY = "1GB"  # what does not fit while sorting goes to disk


class BadQuery(ValueError):
    """SQL that cannot be answered, and why."""


@dataclass(frozen=True, slots=True)
class RunContents:
    """All that the folder of a run holds, read or still on disk."""

    folder: Path
    job: Job = field(default_factory=Job)
    recorded: Recorded = field(default_factory=Recorded)  # by us, in rank files
    loaded: Sequence[Path] = ()  # folders of what was loaded into it: other tools' files
    problems: Sequence[str] = ()  # of its description
    traces: Traces | None = None
    many: Many | None = None  # where the rank files are many


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """What of a run is read, by whom, and who looks on."""

    events: bool = True  # those of rank files; those of loaded files stay on disk until a question needs them
    read_trace: ReadTrace | None = None
    executor: Executor | None = None  # reads the files of a large run, and those that are elsewhere
    keep: bool = True  # the tables of a large run, in its folder
    groups: Path | None = None  # hosts that belong together; default: groups.csv of the run
    elsewhere: Sequence[Elsewhere] = ()  # files that only their nodes see: nothing that comes of them is kept
    progress: Progress = unseen  # of files read
    summing: Progress = unseen  # of traces summed


DEFAULTS = OpenOptions()


class RunTables:
    """The tables run and those of columns.RECORDS, of one run."""

    def __init__(self, contents: RunContents, options: OpenOptions = DEFAULTS) -> None:
        recorded, loaded, many = contents.recorded, contents.loaded, contents.many
        self.folder = contents.folder
        self.bad_files = recorded.bad
        self.parallel_groups = ""  # groups of ranks as the user gives them, in place of those that would be inferred
        self._tables = _arrow_tables(contents, unrecorded(contents.folder))
        self._database = duckdb.connect(":memory:")
        self._database.register("host_groups", host_groups_table(options.groups, contents.folder))
        self._traces, self._places, self._derived = contents.traces, list[Place](), False
        self._many, self._is_joined = many, bool(loaded)
        self._executor, self._summing = options.executor, options.summing
        self._bad_at_first = len(recorded.bad)
        views = add_many(self._database, self._tables, many) if many is not None else []
        if loaded:
            self._join(recorded, loaded)
        for name in self._tables.keys() - (RECORDS.keys() - {"ranks"} if loaded else ()):
            self._database.register(_called(name), self._tables[name])
        for name in views if not loaded else ():
            self._database.execute(f"CREATE TEMP VIEW {_called(name)} AS SELECT * FROM recorded_{name}")
        self._database.execute(f"CREATE TEMP VIEW events AS SELECT * FROM {UNTRACED}")

    def _join(self, recorded: Recorded, loaded: Sequence[Path]) -> None:
        members = Members()
        members.begin(recorded.processes, recorded.facts, RECORDED_LAYERS)
        names = file_names(loaded)
        self._places = place_processes(loaded, members, names)
        add_loaded(self._database, self._tables, loaded, self._places, names)
        everyone = [member.process for member in members.all], [member.facts for member in members.all]
        self._tables["ranks"] = records_table("ranks", *everyone)

    def _prepare(self, sql: str) -> None:
        """Have the traces' events there for SQL that asks for single ones."""
        if self._traces is not None and not self._traces.written and EVENTS.search(TEXTS.sub("", sql)):
            add_traces(self._database, self._traces.write(self.bad_files, self._summing))

    def derive(self, summarise: Summarise) -> None:
        """Make the tables of TRACE_TABLES, once."""
        if self._derived:
            return
        tasks = loaded_tasks(summarise, self._places)
        at = [ANYWHERE] * len(tasks)
        if self._traces is not None:
            tasks += trace_tasks(summarise, self._traces.read, self._traces.files)
            at += [place_of(path, self._traces.nodes) for path in self._traces.files.values()]
        in_memory = memory_tasks(summarise, self._tables.get("events"))
        try:
            tables = derived(in_memory + tasks, self.bad_files, partial(self._in_order, len(in_memory), at))
        except Killed as problem:
            raise NoRun(f"{self.folder}: {problem}") from None
        for name, table in tables.items():
            self._database.register(name, table)
        self._derived = True

    def _in_order(
        self, here: int, at: Sequence[At], work: Callable[[Task], Told], tasks: Sequence[Task]
    ) -> Iterator[Told]:
        """The first so many here, the others by the executor, if one was named: by default all in threads.

        A pool of processes would be forked beside the threads of the database, which may hold locks just then.
        """
        shared = tasks[here:] if self._executor is not None else []
        here_done = in_threads(work, tasks[:here] if self._executor is not None else tasks)
        there_done = self._executor.map(work, shared, at) if self._executor is not None else ()
        for done, result in enumerate(chain(here_done, there_done), 1):
            yield result
            self._summing(done, len(tasks))

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that the SQL asks for."""
        self._prepare(sql)
        try:
            return self._database.execute(sql, list(parameters)).fetchall()
        except (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.IOException) as problem:
            text = " ".join(str(problem)[:200].split())
            raise NoRun(f"{self.folder}: holds numbers that cannot be summed: {text}") from None

    def batches(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows that the SQL asks for, some at a time: they may be too many for memory."""
        self._prepare(sql)
        with new_folder() as folder:
            if self._many is None:  # else it has both already
                quoted = folder.replace("'", "''")
                self._database.execute(f"SET memory_limit = '{STREAM_MEMORY}'; SET temp_directory = '{quoted}'")
            cursor = self._database.execute(sql)
            while rows := cursor.fetchmany(STREAM_ROWS):
                yield rows

    def arrow(self, sql: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """The answer to somebody's own SQL; a mistake in it is told in one line."""
        self._prepare(sql)
        try:
            relation = self._database.sql(sql, params=list(parameters))
            return plain_numbers(relation.to_arrow_table() if relation is not None else pa.table({}))
        except duckdb.Error as problem:
            raise BadQuery(" ".join(str(problem).split())) from None

    def blocks(self, sql: str, parameters: Sequence[Any], rows: int) -> Iterator[Mapping[str, Any]]:
        """The same as arrays, at most so many rows at a time."""
        for batch in self.arrow_batches(sql, parameters, rows):
            yield columns_of(pa.Table.from_batches([batch]))

    def arrow_batches(self, sql: str, parameters: Sequence[Any] = (), rows: int = STREAM_ROWS) -> Iterator[Any]:
        """Arrow's batches, one at a time; no other question may be asked meanwhile."""
        self._prepare(sql)
        relation = self._database.sql(sql, params=list(parameters))
        yield from (relation.to_arrow_reader if hasattr(relation, "to_arrow_reader") else relation.fetch_arrow_reader)(
            rows
        )

    def log_parts(self) -> Sequence[LogPart] | None:
        """The logs of collectives of a large run, some ranks at a time and only when asked for; None of a small one."""
        if self._many is None or self._is_joined or "events" not in self._many.on_disk:
            return None
        return [LogPart(path, here, processes) for path, here, processes in self._many.parts("events")]

    def step_parts(self) -> Sequence[Callable[[Sequence[str]], Mapping[str, Any]]] | None:
        """The same of recorded steps that are too many for memory."""
        if self._many is None or self._is_joined or "steps" not in self._many.on_disk:
            return None
        return [partial(step_part, path, here) for path, here, _ in self._many.parts("steps")]

    @property
    def stamps(self) -> dict[str, Stamp] | None:
        """Of the files of a large run that has ended; None of others, and where a trace turned out to be damaged."""
        return self._many.stamps if self._many is not None and len(self.bad_files) == self._bad_at_first else None

    @property
    def has_events(self) -> bool:
        """Whether there are any events: those of rank files only where they were asked for."""
        return self._traces is not None or bool(self.query(f"SELECT 1 FROM {UNTRACED} LIMIT 1"))

    def columns(self, sql: str, parameters: Sequence[Any] = ()) -> Mapping[str, Any]:
        """The same as arrays, for questions of many rows."""
        self._prepare(sql)
        return columns_of(self._database.sql(sql, params=list(parameters)).to_arrow_table())


def open_run(path: Path | None, read: Read, options: OpenOptions = DEFAULTS) -> RunTables:
    """Open a run's folder (default: the latest), reading each of its rank files with `read`."""
    executor = options.executor
    folder = find_run(path) if executor is None else find_run(path).absolute()  # others work in folders of their own
    job, problems = read_job(folder)
    loaded, bad = sound_folders(folder)
    files = with_elsewhere(folder, rank_files(folder, loaded or bad or options.elsewhere), options.elsewhere)
    nodes = {file.path: file for file in options.elsewhere}
    recorded, many = _read(folder, files, read, options, nodes)
    traces = traces_of(options.read_trace if options.events else None, files, _figures(recorded, many), nodes)
    assign_roles(recorded.facts)
    recorded.bad += bad
    return RunTables(RunContents(folder, job, recorded, loaded, problems, traces, many), options)


def _read(
    folder: Path, files: list[Path], read: Read, options: OpenOptions, nodes: Nodes
) -> tuple[Recorded, Many | None]:
    """The rank files: of a small run here and at once, else by the executor, and kept on disk if that is wanted."""
    events, progress = options.events, options.progress
    is_large = len(files) >= large_runs.MANY_FROM
    if not is_large and not nodes:
        return load(files, read, events, progress), None
    keeps, executor = options.keep and is_large, options.executor or Pool()
    recorded, many = large_runs.load_many(folder, files, read, events, progress, executor, keeps, nodes)
    tell_nodes(recorded, files, nodes)
    return recorded, many


def _figures(recorded: Recorded, many: Many | None) -> Iterable[pa.Table]:
    if many is None or "figures" not in many.on_disk:
        return recorded.tables.get("figures", [])
    return (read_part(path, here, "figures", ["process", "series"]) for path, here, _ in many.parts("figures"))


def _called(table: str) -> str:
    return UNTRACED if table == "events" else table


def _arrow_tables(contents: RunContents, remarks: Sequence[str] = ()) -> dict[str, pa.Table]:
    recorded = contents.recorded
    tables = {name: pa.concat_tables(parts) for name, parts in recorded.tables.items()}
    for name in RECORDS.keys() - tables.keys():
        tables[name] = schema_of(name).empty_table()
    warnings = [Note(text, Severity.WARNING) for text in (*contents.problems, *recorded.bad)]
    about = warnings + [Note(text, Severity.NOTE) for text in remarks]
    about_run = records_table("notes", [None] * len(about), about)
    tables["notes"] = pa.concat_tables([about_run, tables["notes"]])
    tables["ranks"] = records_table("ranks", recorded.processes, recorded.facts)
    tables["run"] = _run_table(contents.job, recorded, len(contents.loaded))
    return tables


def _run_table(job: Job, recorded: Recorded, loaded_files: int) -> pa.Table:
    columns = {
        "command": pa.array([shlex.join(job.command)], pa.string()),
        "launcher": pa.array([job.launcher], pa.string()),
        "expected_ranks": pa.array([job.expected_ranks], pa.int64()),
        "started_ns": pa.array([job.started_ns], pa.int64()),
        "host": pa.array([job.host], pa.string()),
        "cwd": pa.array([job.cwd], pa.string()),
        "rankscope_version": pa.array([job.rankscope_version], pa.string()),
        "library_path": pa.array([job.library_path], pa.string()),
        "files": pa.array([len(recorded.facts) + len(recorded.bad) + loaded_files], pa.int64()),
        "loaded_files": pa.array([loaded_files], pa.int64()),
        "bad_files": pa.array([len(recorded.bad)], pa.int64()),
    }
    return pa.table(columns)
