"""Tables of a large run that stay on disk: behind SQL, and the logs of collectives part by part."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rankscope.store.columns import columns_of
from rankscope.store.folder import NoRun
from rankscope.store.large_runs import DAMAGED, Here, Many, read_table, renumbered

MEMORY = "1GB"  # of the database; what does not fit goes to disk
LOGGED = ("process", "layer", "name", "group", "sequence")
TIMED = ("start_ns", "end_ns", "bytes", "root", "phase", "call_ns")
UNKNOWN = {"sequence": 0, "end_ns": -1, "bytes": 0, "root": -1}


def add_many(database: Any, recorded: dict[str, pa.Table], many: Many) -> list[str]:
    """Make a view `recorded_NAME` of each table that is not in memory; gives their names."""
    database.execute(f"SET memory_limit = '{MEMORY}'; SET temp_directory = '{_quoted(many.kept.passing)}'")
    made = []
    for name in sorted(many.on_disk):
        parts = [(path, here) for path, here, _ in many.parts(name)]
        if not parts:
            continue
        places = [(str(path), there, one) for path, here in parts if here for there, one in here.items()]
        columns = list(zip(*places, strict=True)) or [(), (), ()]
        kinds = (pa.string(), pa.int32(), pa.int32())
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
        database.register(f"places_of_{name}", pa.Table.from_arrays(arrays, ["file", "there", "here"]))
        database.execute(f"CREATE TEMP VIEW recorded_{name} AS {_sql(name, parts)}")
        recorded.pop(name, None)
        made.append(name)
    return made


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
        told = " ".join(str(problem)[:200].split())
        raise NoRun(f"{path}: cannot be read ({told}): remove {path.parent}, it is made again") from None


@dataclass(frozen=True, slots=True)
class LogPart:
    """The logs of collectives of some ranks, read whenever they are asked for."""

    path: Path
    here: Here | None
    processes: Set[int]

    def __call__(self, whole: bool) -> Mapping[str, Any]:
        """The records as arrays; `whole`: not only which collectives they are of."""
        table = self._read([*LOGGED, *(TIMED if whole else ())])
        if not whole:
            return columns_of(table)
        called = pc.is_valid(table.column("call_ns"))
        columns = columns_of(table.drop_columns(["call_ns"]))
        return {**columns, "progress": called.combine_chunks().to_numpy(zero_copy_only=False)}

    def timed(self) -> Mapping[str, Any]:
        """The records with their times; the end is when the rank went on, of nonblocking ones that of the call."""
        table = self._read([*LOGGED, "start_ns", "end_ns", "bytes", "call_ns"])
        start, end, call = (table.column(name) for name in ("start_ns", "end_ns", "call_ns"))
        went_on = pc.coalesce(pc.add(start, call), pc.if_else(pc.less(end, 0), start, end))
        return columns_of(table.set_column(table.column_names.index("end_ns"), "end_ns", went_on))

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
