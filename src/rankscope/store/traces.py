"""Traces of rank files: too many events for memory and, mostly, for any need. Who asks for single ones gets them from a
folder that goes with the run; sums over them are made from the rank files themselves: derived.py."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankscope.model import BadFile
from rankscope.store.batches import NO_NODES, Nodes
from rankscope.store.columns import columns_table, schema_of
from rankscope.store.rank_files import Progress, unseen

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
            results = pool.map(lambda one: self._written(folder, *one), self.files.items())
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
    told = [table.filter(pc.starts_with(table["series"], "trace "))["process"] for table in figures]
    processes = sorted({one for column in told for one in pc.unique(column).to_pylist()})
    return Traces(read, {one: files[one] for one in processes}, nodes) if processes else None


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes when nobody holds it any more."""
    return tempfile.TemporaryDirectory(prefix="rankscope-events-")
