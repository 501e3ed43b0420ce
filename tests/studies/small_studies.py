"""Runs a few cells of a built-in study, for real, and gives what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.model.tables import Cell, Table
from rankscope.studies.interpreters import Pythons
from rankscope.studies.ledger import Ledger
from rankscope.studies.plan import Outcome, Settings, Study
from rankscope.studies.run_study import Silent, StudyRequest, run_study


def python_of(environment: str, how: str = "make envs") -> str:
    found = ROOT / ".envs" / environment / "bin" / "python"
    if not found.exists():
        pytest.skip(f".envs/{environment} is missing: run {how}")
    return str(found)


def settings_of(study: Study, **chosen: str) -> Settings:
    return {**{name: one.default for name, one in study.parameters.items()}, **chosen}


def ran(
    folder: Path,
    study: Study,
    settings: Settings,
    pythons: Sequence[str],
    scales: Sequence[int],
    only: Mapping[str, Sequence[str]] | None = None,
) -> list[Outcome]:
    asked = StudyRequest(study, settings, Pythons(pythons), scales, 1, only=only or {}, timeout_s=100)
    outcomes = run_study(asked, Ledger(folder), Silent())
    assert [(one.cell.label, one.state, one.reason) for one in outcomes if not one.done] == []
    return outcomes


def named(tables: Sequence[Table], name: str) -> list[dict[str, Cell]]:
    """The rows of the table of that name, by column."""
    (found,) = [table for table in tables if table.name == name]
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]
