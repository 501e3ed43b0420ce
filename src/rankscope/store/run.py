"""Opens a run: its tables in an embedded database."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from rankscope.model import Note, Severity
from rankscope.store.columns import RECORDS, columns_of, records_table, schema_of
from rankscope.store.folder import Job, find_run, rank_files, read_job
from rankscope.store.load import Loaded, Progress, Read, load
from rankscope.store.roles import assign_roles


class Run:
    """The tables run, ranks, tallies, groups, peers, notes and (when asked for) events of one run."""

    def __init__(self, folder: Path, job: Job, loaded: Loaded, problems: Sequence[str]) -> None:
        self.folder = folder
        self.bad_files = loaded.bad
        self._tables = _arrow_tables(job, loaded, problems)
        self._database = duckdb.connect(":memory:")
        for name, table in self._tables.items():
            self._database.register(name, table)

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that the SQL asks for."""
        return self._database.execute(sql, list(parameters)).fetchall()

    def columns(self, sql: str, parameters: Sequence[Any] = ()) -> Mapping[str, Any]:
        """The same as arrays, for questions of many rows."""
        return columns_of(self._database.sql(sql, params=list(parameters)).to_arrow_table())

    @property
    def has_events(self) -> bool:
        """Whether events were read, and there were any."""
        return "events" in self._tables and self._tables["events"].num_rows > 0


def open_run(path: Path | None, read: Read, events: bool = True, progress: Progress | None = None) -> Run:
    """Open a run's folder (default: the latest), reading each of its files with `read`."""
    folder = find_run(path)
    job, problems = read_job(folder)
    loaded = load(rank_files(folder), read, events, progress or (lambda done, total: None))
    assign_roles(loaded.facts)
    return Run(folder, job, loaded, problems)


def _arrow_tables(job: Job, loaded: Loaded, problems: Sequence[str]) -> dict[str, pa.Table]:
    tables = {name: pa.concat_tables(parts) for name, parts in loaded.tables.items()}
    for name in RECORDS.keys() - tables.keys() - {"events"}:
        tables[name] = schema_of(name).empty_table()
    warnings = [Note(text, Severity.WARNING) for text in (*problems, *loaded.bad)]
    about_run = records_table("notes", [None] * len(warnings), warnings)
    tables["notes"] = pa.concat_tables([about_run, tables["notes"]])
    tables["ranks"] = records_table("ranks", loaded.processes, loaded.facts)
    tables["run"] = _run_table(job, loaded)
    return tables


def _run_table(job: Job, loaded: Loaded) -> pa.Table:
    columns = {
        "command": pa.array([shlex.join(job.command)], pa.string()),
        "launcher": pa.array([job.launcher], pa.string()),
        "expected_ranks": pa.array([job.expected_ranks], pa.int64()),
        "started_ns": pa.array([job.started_ns], pa.int64()),
        "host": pa.array([job.host], pa.string()),
        "cwd": pa.array([job.cwd], pa.string()),
        "rankscope_version": pa.array([job.rankscope_version], pa.string()),
        "files": pa.array([len(loaded.facts) + len(loaded.bad)], pa.int64()),
        "bad_files": pa.array([len(loaded.bad)], pa.int64()),
    }
    return pa.table(columns)
