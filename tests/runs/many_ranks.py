"""Runs that count as large already with a few ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rankscope.api.run import Run, Selection
from rankscope.model.tables import Table
from rankscope.questions import disk_matrix
from rankscope.store import large_runs
from rankscope.store import rank_files as batches
from synthetic_law import Law
from synthetic_run import write_run

LAW = Law(ranks=10, ranks_per_host=3, collectives=300, tallies=12, stragglers=(4,), skew_ns=10**9, drift_ppm=20)
ASKED = ("waiting", "waiting_parts", "collectives", "clocks", "routines", "sizes", "ranks", "coverage", "findings")


def make_large(monkeypatch: pytest.MonkeyPatch, files: int = 2) -> None:
    """From that many files on a run is read as a large one, three files at a time, a few collectives at a time."""
    monkeypatch.setattr(large_runs, "MANY_FROM", files)
    monkeypatch.setattr(batches, "MOST_FILES", 3)
    monkeypatch.setattr(disk_matrix, "CELLS", 700)


def aged_run(folder: Path, law: Law = LAW) -> Path:
    """A synthetic run that was written a while ago."""
    write_run(folder, law)
    for path in rank_files(folder):
        age(path)
    return folder


def age(path: Path, seconds: int = 60) -> None:
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - seconds * 10**9))


def rank_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("ranks/*/*.rank"))


def tables(run: Run, names: Sequence[str] = ASKED) -> dict[str, Table]:
    return {table.name: table for table in run.answers(names, Selection())}


def assert_same(found: dict[str, Table], expected: dict[str, Table], exact: bool = False) -> None:
    """Sums of parts may differ from sums of the whole in the last digits."""
    assert found.keys() == expected.keys()
    for name, table in found.items():
        other = expected[name]
        assert (table.notes, table.warnings) == (other.notes, other.warnings), name
        assert tuple(table.columns) == tuple(other.columns), name
        assert len(table.rows) == len(other.rows), name
        rows, others = table.rows, other.rows
        if name == "findings":  # what they save is replayed in small runs only: it orders them, and ends their titles
            rows, others = (
                sorted([str(row[1]).partition("; ")[0], *row[5:]] for row in some) for some in (rows, others)
            )
        for row, told in zip(rows, others, strict=True):
            assert list(row) == ([*told] if exact else [_about(cell) for cell in told]), name


def _about(cell: Any) -> Any:
    return pytest.approx(cell, rel=1e-9, abs=1e-3) if isinstance(cell, float) else cell


class Watched:
    """Does the work here, and knows which files that was."""

    def __init__(self) -> None:
        self.read: list[str] = []

    hosts: frozenset[str] = frozenset()

    def map(self, work: Callable[[Any], Any], things: Sequence[Any], at: Sequence[Any] = ()) -> Iterator[Any]:
        self.read += [path.name for batch in things for _, path in batch]
        yield from map(work, things)
