"""Joins what was recorded in a run with what was loaded into it."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.model import RankFacts, names_of
from rankscope.store.columns import RECORDS
from rankscope.store.foreign import loaded_folders
from rankscope.store.joining import Members

KEPT_ON_DISK = ("events",)  # may be many: read from the files by each question, as far as it needs them
UNTRACED = "untraced_events"  # those of logs and loaded files: without the traces of rank files
RECORDED_LAYERS = frozenset(("mpi",))

Place = tuple[str, int, int]  # file's folder, process there, process in the run


def sound_folders(run: Path) -> tuple[list[Path], list[str]]:
    """What is loaded in a run and can be read, and a line for each that cannot."""
    sound, bad = [], []
    for folder, about in loaded_folders(run):
        try:
            for path in folder.glob("*.parquet"):
                pq.read_metadata(path)
            sound.append(folder)
        except (pa.ArrowException, OSError) as problem:
            told = f"{path}: cannot be read: {' '.join(str(problem)[:200].split())}"
            bad.append(f"{told} (load {about.get('source', 'it')} again)")
    return sound, bad


def place_processes(folders: Sequence[Path], members: Members) -> list[Place]:
    """Every loaded process as a process of the run."""
    places: list[Place] = []
    for folder in folders:
        for row in pq.read_table(folder / "ranks.parquet").to_pylist():
            facts = RankFacts(**{name: row[name] for name in names_of(RankFacts) if name in row})
            places.append((str(folder), row["process"], members.place(facts, frozenset(row.get("layers") or ()))))
    members.settle()
    return places


def add_loaded(database: Any, recorded: dict[str, pa.Table], folders: Sequence[Path], places: list[Place]) -> None:
    """Make every table but `ranks` and `run` the union of what was recorded and what was loaded."""
    columns = list(zip(*places, strict=True)) or [(), (), ()]
    kinds = (pa.string(), pa.int32(), pa.int32())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    database.register("loaded_places", pa.Table.from_arrays(arrays, ["folder", "there", "here"]))
    for name in RECORDS.keys() - {"ranks"}:
        files = [folder / f"{name}.parquet" for folder in folders if (folder / f"{name}.parquet").exists()]
        if name in recorded:  # what is not there stays on disk and is a view already: add_many
            database.register(f"recorded_{name}", recorded[name])
        made = "VIEW" if name in KEPT_ON_DISK else "TABLE"
        called = UNTRACED if name == "events" else name
        database.execute(f"CREATE TEMP {made} {called} AS {_union_sql(name, files)}")


def add_traces(database: Any, folder: Path) -> None:
    """Make `events` the union of all other events and those of traces, which stay on disk."""
    database.execute(f"""CREATE OR REPLACE TEMP VIEW events AS SELECT * FROM {UNTRACED}
        UNION ALL BY NAME SELECT * FROM read_parquet('{_quoted(folder)}/*.parquet')""")


def _union_sql(name: str, files: Sequence[Path]) -> str:
    wanted = ", ".join(f'"{column}"' for column in names_of(RECORDS[name]))
    recorded = f'SELECT process, {wanted} FROM "recorded_{name}"'
    if not files:
        return recorded
    paths = ", ".join(f"'{_quoted(path)}'" for path in files)
    # the recorded table comes first and has every column of today's model: an old file may lack some
    return f"""{recorded} UNION ALL BY NAME
        SELECT here AS process, * EXCLUDE (process, filename, folder, there, here)
        FROM read_parquet([{paths}], filename = true, union_by_name = true) JOIN loaded_places
        ON there = process AND filename = folder || '/{name}.parquet'"""


def _quoted(path: Path) -> str:
    return glob.escape(str(path)).replace("'", "''")
