"""The summaries of a folder's runs as Parquet: added to by anybody, read in one piece, never half.

Every writer adds a file of its own, so that two never meet; where there are many, whoever comes next writes all rows to
one new file and then removes those that it has read. Of a run that is in several files the newest summary counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankscope.model.summaries import RunSummary
from rankscope.whole_file import write_whole

FOLDER = ".rankscope-history"
FORMAT = b"1"
MOST_FILES = 8  # before they are made one
DAMAGED = ".damaged"
TRIES = 5  # while others join files
ARROW: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    float: pa.float64(),
    float | None: pa.float64(),
    Sequence[str]: pa.list_(pa.string()),
    Sequence[float]: pa.list_(pa.float64()),
}


@cache
def schema() -> pa.Schema:
    """A column for each field of a summary."""
    hints = get_type_hints(RunSummary)
    return pa.schema([(name, ARROW[kind]) for name, kind in hints.items()], metadata={"rankscope_history": FORMAT})


def table_of(summaries: Sequence[RunSummary]) -> pa.Table:
    return pa.table({name: [getattr(summary, name) for summary in summaries] for name in schema().names}, schema())


@dataclass(slots=True)
class Kept:
    """What the files of a folder hold."""

    rows: pa.Table
    warnings: list[str] = field(default_factory=list)


class History:
    """The summaries of the runs of one folder."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.folder = runs / FOLDER

    def read(self) -> Kept:
        """One row a run. A damaged file is one warning, and is put aside: its runs are summarised again."""
        for _ in range(TRIES):
            files = self._files()
            warnings: list[str] = []
            try:
                tables = [table for path in files for table in self._read_file(path, warnings)]
            except FileNotFoundError:  # somebody has joined files meanwhile
                continue
            return Kept(_newest(pa.concat_tables([schema().empty_table(), *tables])), warnings)
        return Kept(schema().empty_table(), [f"{self.folder}: its files change all the time: nothing was read"])

    def add(self, summaries: Sequence[RunSummary]) -> None:
        """Keep these; without the right to write nothing is kept."""
        if not summaries:
            return
        with suppress(OSError):
            self.folder.mkdir(exist_ok=True)
            self._write(table_of(summaries))
            self._join()

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.parquet") if not path.name.startswith("."))

    def _write(self, rows: pa.Table) -> Path:
        buffer = BytesIO()
        pq.write_table(rows, buffer, compression="zstd")
        path = self.folder / f"{time.time_ns()}-{os.uname().nodename}-{os.getpid()}.parquet"
        write_whole(path, [buffer.getvalue()])
        return path

    def _join(self) -> None:
        """Many files become one; only those whose rows are in it go."""
        files = self._files()
        if len(files) <= MOST_FILES:
            return
        warnings: list[str] = []
        with suppress(FileNotFoundError):
            tables = [table for path in files for table in self._read_file(path, warnings)]
            self._write(_newest(pa.concat_tables(tables)))
            for path in files:
                path.unlink(missing_ok=True)

    def _read_file(self, path: Path, warnings: list[str]) -> Iterator[pa.Table]:
        try:
            table = pq.read_table(path, memory_map=True)
            if (table.schema.metadata or {}).get(b"rankscope_history") != FORMAT:
                raise pa.ArrowInvalid("another format")
            yield table.select(schema().names).cast(schema())
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException, ValueError, KeyError) as problem:
            warnings.append(f"{path} is damaged ({str(problem).splitlines()[0][:80]}): its runs are summarised again")
            with suppress(OSError):
                path.replace(path.with_name(path.name + DAMAGED))


def _newest(rows: pa.Table) -> pa.Table:
    """Of each run the last summary."""
    runs = pc.dictionary_encode(rows["run"].combine_chunks()) if rows.num_rows else None
    if runs is None or len(runs.dictionary) == rows.num_rows:
        return rows
    order = np.lexsort((rows["summarised_ns"].to_numpy(), runs.indices.to_numpy()))
    codes = runs.indices.to_numpy()[order]
    last = np.append(codes[1:] != codes[:-1], True)
    return rows.take(np.sort(order[last]))
