"""Readings as the tables of a run, without a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from rankscope.model import Note, Reading, Severity
from rankscope.store.columns import records_table
from rankscope.store.roles import assign_roles

SHARED = Path(__file__).parents[2].parent / "shared"
LISTS = ("tallies", "range_tallies", "devices", "figures", "notes", "groups", "peers")


class Tables:
    """The tables of these readings, each a process."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self.database = duckdb.connect(":memory:")
        facts = [reading.facts for reading in readings]
        assign_roles(facts)
        self.database.register("ranks", records_table("ranks", range(len(facts)), facts))
        for name in LISTS:
            rows = [(process, row) for process, reading in enumerate(readings) for row in getattr(reading, name)]
            table = records_table(name, [process for process, _ in rows], [row for _, row in rows])
            self.database.register(name, table)

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.database.execute(sql, list(parameters)).fetchall()

    def columns(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, Any]:
        return self.database.execute(sql, list(parameters)).fetchnumpy()


def run_of(readings: Iterable[Reading]) -> Tables:
    return Tables(list(readings))


def warnings_of(readings: Iterable[Reading]) -> list[Note]:
    return [note for reading in readings for note in reading.notes if note.severity is Severity.WARNING]
