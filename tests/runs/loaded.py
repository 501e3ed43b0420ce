"""Makes a run of readings, without files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.formats.source import Source
from rankscope.model.records import Note, Reading, Severity
from rankscope.store.columns import reading_tables
from rankscope.store.rank_files import Recorded
from rankscope.store.roles import assign_roles
from rankscope.store.run import RunContents, RunTables

SHARED = ROOT.parent / "shared"


def shared_file(pattern: str) -> Path:
    """A file of the shared folder, or a skip that says it is not there."""
    found = sorted(SHARED.glob(pattern))
    if not found:
        pytest.skip(f"no {pattern} beside the project")
    return found[0]


def text_source(text: str, name: str = "log") -> Source:
    return Source(Path(name), content=text.encode())


def run_of(readings: Iterable[Reading]) -> RunTables:
    """The tables of these readings."""
    recorded = Recorded()
    for process, reading in enumerate(readings):
        recorded.processes.append(process)
        recorded.facts.append(reading.facts)
        for name, table in reading_tables(process, reading, True).items():
            recorded.tables.setdefault(name, []).append(table)
    assign_roles(recorded.facts)
    return RunTables(RunContents(Path("run"), recorded=recorded))


def warnings_of(readings: Iterable[Reading]) -> list[Note]:
    return [note for reading in readings for note in reading.notes if note.severity is Severity.WARNING]


def warnings(readings: Iterable[Reading]) -> list[str]:
    return [note.text for note in warnings_of(readings)]


Read = Callable[[Source], Iterator[Reading]]
