"""Small studies of one's own, run by the command itself, and what is looked at afterwards."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from mpis import ROOT
from rankscope.cli.study import run

WORKLOAD = ROOT / "tests" / "studies" / "squares.py"
RANKSCOPE = [sys.executable, "-m", "rankscope"]
STUDY = [*RANKSCOPE, "study"]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("RANKSCOPE_", "SLURM_"))},
    "PYTHONPATH": str(ROOT / "src"),
    "COLUMNS": "200",
}


def write_toml(
    path: Path,
    command: Sequence[str],
    axes: Mapping[str, Sequence[object]],
    launch: Mapping[str, object] | None = None,
    **more: object,
) -> Path:
    """JSON's words are TOML's, for what is needed here."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in more.items()]
    lines += ["[workload]", f"command = {json.dumps([str(word) for word in command])}"]
    lines += ["[axes]", *(f"{name} = {json.dumps(list(values))}" for name, values in axes.items())]
    lines += ["[launch]", *(f"{name} = {json.dumps(value)}" for name, value in (launch or {}).items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def squares(path: Path, python: str | Path = sys.executable, **more: Any) -> Path:
    """Every rank leaves the square of the axis `number`, times its rank."""
    axes = {"number": [2, 3], "ranks": [1, 2]} | more.pop("axes", {})
    return write_toml(path, [str(python), str(WORKLOAD), "{number}", "{cell}"], axes, **more)


def study(*words: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command, in this process: starting it anew takes longer than its cells."""
    before, said, told = os.getcwd(), io.StringIO(), io.StringIO()
    with mock.patch.dict(os.environ, {**ENVIRONMENT, **variables}, clear=True):
        os.chdir(cwd or before)
        try:
            with redirect_stdout(said), redirect_stderr(told):
                code = run([str(word) for word in words])
        finally:
            os.chdir(before)
    return subprocess.CompletedProcess(words, code, said.getvalue(), told.getvalue())


def cells(folder: Path) -> dict[str, dict[str, Any]]:
    """Cell to how it ended."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(folder.glob("cells/*/cell.json"))}


def states(folder: Path) -> dict[str, str]:
    return {name: cell["state"] for name, cell in cells(folder).items()}


def wrong_values(folder: Path) -> list[str]:
    """Done cells whose ranks have not left exactly what the workload must give."""
    wrong = []
    for name, cell in cells(folder).items():
        if cell["state"] != "done":
            continue
        results = folder / "cells" / name / cell["attempt"] / "results"
        left = {path.name: json.loads(path.read_text()) for path in results.glob("*.json")}
        square = int(cell["values"]["number"]) ** 2
        ranks = range(cell["ranks"])
        if left != {f"{rank}.json": {"rank": rank, "value": square * (rank + 1)} for rank in ranks}:
            wrong.append(f"{name}: {left}")
    return wrong


def processes_with(word: str) -> list[str]:
    """Command lines of running processes that have the word in them."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if word in command:
                found.append(f"{place.name}: {command}")
    return found
