"""What the tests of studies share: which Pythons have what, and cells that are run for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpis import ROOT, find_mpi
from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Table
from rankscope.studies.builtin import STUDIES
from rankscope.studies.interpreters import Pythons
from rankscope.studies.ledger import Ledger
from rankscope.studies.plan import Outcome
from rankscope.studies.run_study import Silent, StudyRequest, run_study

MAKES = {"torch": "make envs", "horovod": "make env-horovod", "oneccl": "make env-oneccl"}
ENVIRONMENTS = {
    "gloo": "torch",
    "horovod": "horovod",
    "horovod_gloo": "horovod",
    "oneccl": "oneccl",
    "oneccl_mpi": "oneccl",
}


def python_of(environment: str) -> str:
    """The Python of an environment under .envs, or a skip that says how to get it."""
    if environment not in MAKES:
        return str(find_mpi(environment).python)
    folder = ROOT / ".envs" / environment
    ready = (folder / "bin" / "python").exists() and (environment == "torch" or (folder / ".ready").exists())
    if not ready:
        pytest.skip(f".envs/{environment} is missing: run {MAKES[environment]}")
    return str(folder / "bin" / "python")


def run_cells(study: str, folder: Path, scales: list[int], pythons: list[str], **settings: str) -> list[Outcome]:
    """Every cell of a study with these settings."""
    found = STUDIES[study]
    chosen = {name: one.default for name, one in found.parameters.items()} | settings
    asked = StudyRequest(found, chosen, Pythons(pythons), scales, 1, timeout_s=100)
    return run_study(asked, Ledger(folder), Silent())


def tables_of(study: str, outcomes: list[Outcome], **settings: str) -> dict[str, Table]:
    found = STUDIES[study]
    chosen = {name: one.default for name, one in found.parameters.items()} | settings
    return {table.name: table for table in found.tables(outcomes, chosen)}


def rows(table: Table) -> list[dict[str, Value]]:
    """Each row by the names of its columns."""
    return [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]
