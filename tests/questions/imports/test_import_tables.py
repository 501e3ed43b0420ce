"""Tables of several imports: numbers of the hand-made document, and break-evens worked out by hand."""

from __future__ import annotations

import re

import pytest

from rankscope.questions.imports.frameworks import (
    ImportTime,
    StagedImport,
    calls_per_framework,
    frameworks_compared,
    staged_times,
    time_per_place,
)
from runs.import_runs import HandFilled, small_run
from runs.loaded import shared_file

S = 1e9


def document() -> tuple[list[ImportTime], list[StagedImport]]:
    """The times of the first table of the document, and of its TMP method."""
    measured, staged = [], []
    for line in shared_file("seeds/001_*.txt").read_text().split("## Time to full set")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not re.fullmatch(r"\d+", cells[0]):
            continue
        nodes = int(cells[0])
        if cells[1] in ("260", "300"):
            for at, name in ((1, "CCL"), (5, "HVD"), (9, "mpi4py")):
                staged.append(StagedImport(name, nodes, float(cells[at]) * S, float(cells[at + 1]) * S))
                assert staged[-1].total_ns == pytest.approx(float(cells[at + 2]) * S)
        else:
            for first, place in ((1, "soft"), (6, "lus")):
                for at, name in enumerate(("CCL", "HVD", "mpi4py"), first):
                    measured.append(ImportTime(place, name, nodes, float(cells[at]) * S))
    return measured, staged


def test_calls_per_framework() -> None:
    other = HandFilled()
    other.process()
    other.calls(0, "interpreter", "openat", 3)
    table = calls_per_framework([("torch", small_run()), ("bare", other)])
    assert table.rows == [
        ("Total torch", 394, "openat torch", 122, "stats torch", 237),
        ("Total bare", 3, "openat bare", 3, "stats bare", 0),
    ]
    compared = frameworks_compared([("torch", small_run()), ("bare", other)])
    assert [row[0] for row in compared.rows] == ["torch", "bare"]
    assert all(len(row) == len(compared.columns) for row in compared.rows)


def test_the_document_s_tables() -> None:
    measured, staged = document()
    table = time_per_place(measured, staged)
    assert [column.title for column in table.columns][:3] == ["Nodes", "soft-CCL", "soft-HVD"]
    assert len(table.rows) == 10 and table.rows[-1][:2] == (512, pytest.approx(605.25613 * S))
    assert table.notes == [
        "soft-CCL: in place is faster up to about 160 nodes, staging from there on",
        "soft-HVD: in place is faster up to about 184 nodes, staging from there on",
        "soft-mpi4py: never in range: in place is faster at every size from 1 to 512 nodes",
        "lus-CCL: never in range: in place is faster at every size from 1 to 512 nodes",
        "lus-HVD: never in range: in place is faster at every size from 1 to 512 nodes",
        "lus-mpi4py: never in range: in place is faster at every size from 1 to 512 nodes",
    ]
    tmp = staged_times(staged)
    assert [column.title for column in tmp.columns][:4] == ["Nodes", "tmp transfer", "tmp-CCL", "Total tmp-CCL"]
    assert tmp.rows[0][3] == pytest.approx(260.85047 * S)


def test_cells_that_were_not_measured_stay_empty() -> None:
    table = time_per_place([ImportTime("a", "x", 1, 2.0), ImportTime("b", "x", 2, None)])
    assert table.rows == [(1, 2.0, None), (2, None, None)] and table.notes == []
