"""Asks `rankscope scale` for its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli.load import run as load
from rankscope.cli.scale import run as scale

Rows = dict[str, list[dict[str, Any]]]


def scaled(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, Rows]:
    """Its exit code, and the rows of each table by column."""
    code = scale([*map(str, arguments), "--format", "json"])
    printed = capsys.readouterr()
    assert printed.out, printed.err
    told = json.loads(printed.out)["tables"]
    names = {table["name"]: [column["name"] for column in table["columns"]] for table in told}
    return code, {
        table["name"]: [dict(zip(names[table["name"]], row, strict=True)) for row in table["rows"]] for table in told
    }


def loaded(document: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert load([str(document), "--out", str(folder)]) == 0
    capsys.readouterr()
    return folder
