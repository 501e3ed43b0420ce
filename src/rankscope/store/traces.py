"""Events of traces on their way to questions: too many for memory, so they wait in a folder that goes with the run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rankscope.store.columns import columns_table, schema_of

ReadTrace = Callable[[Path], Iterator[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Traces:
    """Where the events of traces are put, and by whom they are read."""

    read: ReadTrace
    folder: Path

    def add(self, process: int, path: Path) -> None:
        """Put the events of one rank file, if it has any, into a Parquet file; a bad file leaves none."""
        target, writer = self.folder / f"{process}.parquet", None
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


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes when nobody holds it any more."""
    return tempfile.TemporaryDirectory(prefix="rankscope-events-")
