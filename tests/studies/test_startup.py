"""The study of start-up: real jobs, by the program's clock and by the recorder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.studies.startup import ONE_BY_ONE, PARTS
from studies.real_cells import ENVIRONMENTS, python_of, rows, run_cells, tables_of

SETTINGS = {"elements": "65536"}


def seconds_of(row: dict[str, object]) -> dict[str, float]:
    return {part: float(str(row[f"{part}_ns"])) / 1e9 for part in PARTS}


@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_mpi4py(name: str, tmp_path: Path) -> None:
    outcomes = run_cells("startup", tmp_path, [1, 2], [python_of(name)], backends="mpi4py", **SETTINGS)
    assert [(one.state, one.reason) for one in outcomes] == [("done", "")] * 2
    tables = tables_of("startup", outcomes)
    together = rows(tables["startup"])
    assert [(row["backend"], row["ranks"]) for row in together] == [("mpi4py", 1), ("mpi4py", 2)]
    for row in together:
        told = seconds_of(row)
        assert all(told[part] > 0 for part in PARTS)
        assert told["total"] >= max(told[part] for part in ONE_BY_ONE)
    recorded = rows(tables["recorded_phases"])
    init = [row for row in recorded if row["phase"] == "init"]
    assert [(row["scale"], row["ranks"]) for row in init] == [(1, 1), (2, 2)]
    assert all(str(row["what"]).startswith("MPI_Init") for row in init)
    # MPI is initialised in our part of that name, so the recorder's is within it
    for row, seen in zip(together, init, strict=True):
        assert float(str(seen["max_ns"])) <= float(str(row["init_ns"])) * 1.05


@pytest.mark.slow
def test_one_table_for_each_part(tmp_path: Path) -> None:
    pythons = [python_of("openmpi"), python_of("torch")]
    outcomes = run_cells("startup", tmp_path, [2], pythons, backends="mpi4py,gloo", **SETTINGS)
    assert [(one.state, one.reason) for one in outcomes] == [("done", "")] * 2
    tables = tables_of("startup", outcomes)
    for part in ONE_BY_ONE:
        assert [column.name for column in tables[part].columns] == ["ranks", f"mpi4py_{part}_ns", f"gloo_{part}_ns"]
        ((ranks, *values),) = tables[part].rows
        assert ranks == 2 and all(float(str(value)) > 0 for value in values)
    assert any("gloo: DistributedDataParallel" in note for note in tables["startup"].notes)
    phases = [(row["backend"], row["phase"]) for row in rows(tables["recorded_phases"])]
    assert {("gloo", "imports"), ("gloo", "init"), ("gloo", "first collective"), ("mpi4py", "init")} <= set(phases)


@pytest.mark.parametrize("backend", ["horovod", "oneccl"])
def test_other_backends(backend: str, tmp_path: Path) -> None:
    pythons = [python_of(ENVIRONMENTS[backend])]
    (outcome,) = run_cells("startup", tmp_path, [2], pythons, backends=backend, **SETTINGS)
    assert (outcome.state, outcome.reason) == ("done", "")
    (row,) = rows(tables_of("startup", [outcome])["startup"])
    assert all(value > 0 for value in seconds_of(row).values())


def test_what_is_not_here_says_how_to_get_it(tmp_path: Path) -> None:
    (outcome,) = run_cells("startup", tmp_path, [2], [python_of("openmpi")], backends="oneccl", **SETTINGS)
    assert outcome.state == "not here" and "make env-oneccl" in outcome.reason
