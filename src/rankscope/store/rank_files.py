"""Reads all files of a run of a few ranks; those of many are read by many.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from rankscope.model import BadFile, RankFacts, Reading
from rankscope.store.columns import joined, reading_tables

BATCH = 32  # files whose tables are joined at a time

Read = Callable[[Path], Reading]
Progress = Callable[[int, int], None]


def unseen(done: int, total: int) -> None:
    """Progress that nobody looks at."""


@dataclass(slots=True)
class Loaded:
    """What came out of some files."""

    processes: list[int] = field(default_factory=list)
    facts: list[RankFacts] = field(default_factory=list)
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)


def load(files: Sequence[Path], read: Read, events: bool, progress: Progress) -> Loaded:
    """Everything the files hold; a bad file is told and the others are still read."""
    batches = [list(enumerate(files))[at : at + BATCH] for at in range(0, len(files), BATCH)]
    all_loaded = Loaded()
    for batch in batches:
        loaded = load_batch(batch, read, events)
        all_loaded.processes += loaded.processes
        all_loaded.facts += loaded.facts
        all_loaded.bad += loaded.bad
        for name, tables in loaded.tables.items():
            all_loaded.tables.setdefault(name, []).extend(tables)
        progress(len(all_loaded.processes) + len(all_loaded.bad), len(files))
    return all_loaded


Batch = Sequence[tuple[int, Path]]


def load_batch(batch: Batch, read: Read, events: bool) -> Loaded:
    """One batch, its tables joined."""
    loaded = Loaded()
    for process, path in batch:
        try:
            reading = read(path)
            tables = reading_tables(process, reading, events)
        except BadFile as problem:
            loaded.bad.append(str(problem))
            continue
        loaded.processes.append(process)
        loaded.facts.append(reading.facts)
        for name, table in tables.items():
            loaded.tables.setdefault(name, []).append(table)
    loaded.tables = {name: [joined(tables)] for name, tables in loaded.tables.items()}
    return loaded
