"""What was read from one foreign file, kept in the folder of a run as Parquet: whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankscope.model import BadFile, RankFacts, Reading
from rankscope.store.columns import joined, reading_tables, records_table, schema_of
from rankscope.store.facts import completed

FORMAT = 1
ABOUT = "about.json"
FLUSH_ROWS = 100_000
MOST_PROCESSES = 1 << 18
LAYERED = ("tallies", "events")
PROCESS_TABLES = (*LAYERED, "groups", "peers")
UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)


class LoadedFile:
    """Takes readings one by one; nothing of them can be seen before `finish`."""

    def __init__(self, run: Path, source: str) -> None:
        self.source = source
        self.processes: list[RankFacts] = []
        self.rows: dict[str, int] = {}
        self._layers: list[set[str]] = []
        self._told: set[int] = set()  # processes of which more is known than figures and notes
        self._waiting: dict[str, list[pa.Table]] = {}
        self._waiting_rows: dict[str, int] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        (run / "loaded").mkdir(exist_ok=True)
        self.made = Path(tempfile.mkdtemp(prefix=".making-", dir=run / "loaded"))
        self.made.chmod(0o777 & ~_umask())  # others may read the run as they may its other folders

    def add(self, reading: Reading) -> None:
        """One more reading; a number that fits no table is an error of the file."""
        self._enter(reading)
        for note in reading.notes:
            note.tool = note.tool or reading.facts.tool or self.processes[-1].tool or "load"
        try:
            tables = reading_tables(len(self.processes) - 1, reading, events=True)
        except UNFIT as problem:
            raise self._unfit(problem) from None
        for name, table in tables.items():
            self._keep(name, table)
            if name in PROCESS_TABLES and table.num_rows:
                self._told.add(len(self.processes) - 1)
            if name in LAYERED:
                self._layers[-1].update(pc.unique(table["layer"]).to_pylist())

    def _enter(self, reading: Reading) -> None:
        if reading.continues and self.processes:
            self.processes[-1] = completed(reading.facts, self.processes[-1])
        else:
            self.processes.append(reading.facts)
            self._layers.append(set())
        if len(self.processes) > MOST_PROCESSES:
            raise BadFile(f"{self.source}: speaks of more than {MOST_PROCESSES} processes")

    def _unfit(self, problem: BaseException) -> BadFile:
        return BadFile(f"{self.source}: holds what fits no table ({' '.join(str(problem)[:200].split())})")

    def _keep(self, name: str, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self._waiting.setdefault(name, []).append(table)
        self.rows[name] = self.rows.get(name, 0) + table.num_rows
        self._waiting_rows[name] = self._waiting_rows.get(name, 0) + table.num_rows
        if self._waiting_rows[name] >= FLUSH_ROWS:
            self._flush(name)

    def _flush(self, name: str) -> None:
        table = joined(self._waiting.pop(name))
        self._waiting_rows[name] = 0
        if name not in self._writers:
            self._writers[name] = pq.ParquetWriter(self.made / f"{name}.parquet", schema_of(name), compression="zstd")
        self._writers[name].write_table(table)

    def settle(self) -> list[RankFacts]:
        """The processes, once all readings are in: who has but figures or notes is a document, not a process."""
        for at, facts in enumerate(self.processes):
            if at not in self._told and facts.rank is None and facts.pid is None:
                facts.role = "document"
        return self.processes

    def finish(self, key: str, about: Mapping[str, Any]) -> None:
        """Write the rest, describe it, and put it in the place of what was there of the same content, the key."""
        for name in list(self._waiting):
            self._flush(name)
        self._close()
        pq.write_table(self._ranks(), self.made / "ranks.parquet", compression="zstd")
        told = {"format": FORMAT, "source": self.source, **about, "rows": self.rows}
        (self.made / ABOUT).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        _put(self.made, self.made.with_name(key))

    def _ranks(self) -> pa.Table:
        try:
            table = records_table("ranks", list(range(len(self.processes))), self.processes)
        except UNFIT as problem:
            raise self._unfit(problem) from None
        layers = [sorted(str(layer) for layer in found) for found in self._layers]
        return table.append_column("layers", pa.array(layers, pa.list_(pa.string())))

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def abandon(self) -> None:
        """Leave no trace."""
        self._close()
        shutil.rmtree(self.made, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _put(made: Path, final: Path) -> None:
    old = final.with_name(f".old-{final.name}-{os.getpid()}")
    if final.exists():
        final.rename(old)
    made.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def loaded_folders(run: Path) -> list[tuple[Path, dict[str, Any]]]:
    """What is loaded in a run, each with its description, in the order of loading."""
    found = [(path.parent, _about(path)) for path in run.glob(f"loaded/[!.]*/{ABOUT}")]
    return sorted(found, key=lambda one: (_number(one[1], "loaded_ns"), _number(one[1], "place"), one[0].name))


def _about(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        told = None
    return told if isinstance(told, dict) else {}


def _number(about: Mapping[str, Any], name: str) -> int:
    value = about.get(name)
    return value if type(value) is int else 0


def remove_replaced(run: Path, source: str, key: str) -> bool:
    """Drop what an earlier version of the same file gave; true if there was one."""
    old = [folder for folder, about in loaded_folders(run) if about.get("source") == source and folder.name != key]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return bool(old)
