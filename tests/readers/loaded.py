"""Readings as a run, without a folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rankscope.model import Note, Reading, Severity
from rankscope.store.columns import reading_tables
from rankscope.store.folder import Job
from rankscope.store.load import Loaded
from rankscope.store.roles import assign_roles
from rankscope.store.run import Run

SHARED = Path(__file__).parents[2].parent / "shared"


def run_of(readings: Iterable[Reading]) -> Run:
    """A run of these readings, each a process."""
    loaded = Loaded()
    for process, reading in enumerate(readings):
        loaded.processes.append(process)
        loaded.facts.append(reading.facts)
        for name, table in reading_tables(process, reading, events=True).items():
            loaded.tables.setdefault(name, []).append(table)
    assign_roles(loaded.facts)
    return Run(Path("loaded"), Job(), loaded, [])


def warnings_of(readings: Iterable[Reading]) -> list[Note]:
    return [note for reading in readings for note in reading.notes if note.severity is Severity.WARNING]
