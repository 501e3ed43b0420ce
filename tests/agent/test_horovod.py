"""Horovod's operations as its interface for torch issues them, in front of a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rankscope as api
from mpis import ROOT

PROGRAM = ROOT / "tests" / "programs" / "standin_horovod" / "train.py"


def run(folder: Path, by: str, *before: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "STANDIN_BY": by, "RANK": "1", "WORLD_SIZE": "3", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*map(str, before), sys.executable, str(PROGRAM)]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(params=["mpi", "gloo"])
def opened(request: pytest.FixtureRequest, rankscope: Path, tmp_path: Path) -> tuple[str, Any]:
    bare = run(tmp_path, request.param)
    watched = run(tmp_path, request.param, rankscope, "run", "--quiet", "--out", tmp_path / "run", "--")
    assert bare.returncode == 0 and "handle three" in bare.stdout and "thirteen" in bare.stdout, bare.stderr
    assert (watched.returncode, watched.stdout, watched.stderr) == (0, bare.stdout, bare.stderr)
    return request.param, api.open(tmp_path / "run")


def test_operations(opened: tuple[str, Any]) -> None:
    by, found = opened
    sql = """SELECT layer, name, kind, sum(calls)::BIGINT, sum(bytes)::BIGINT, sum(errors)::BIGINT FROM tallies
        WHERE layer IN ('horovod', 'gloo') GROUP BY ALL ORDER BY ALL"""
    carried = "gloo" if by == "gloo" else "horovod"
    assert found.query(sql).rows == sorted(
        [
            ("horovod", "horovod:allreduce", "call", 3, 0, 0),
            ("horovod", "horovod:broadcast", "call", 1, 0, 0),
            ("horovod", "horovod:synchronize", "call", 4, 0, 1),
            (carried, "horovod:allreduce", "progress", 4, 40 + 80 + 44 + 52, 1),
            (carried, "horovod:barrier", "progress", 1, 0, 0),
            (carried, "horovod:broadcast", "progress", 1, 120, 1),
        ]
    )


def test_only_what_no_other_library_logs_is_in_the_log(opened: tuple[str, Any]) -> None:
    by, found = opened
    sql = "SELECT name, bytes, sequence, root, failed FROM events ORDER BY start_ns"
    logged = [
        ("horovod:allreduce", 40, 1, None, False),
        ("horovod:allreduce", 80, 2, None, False),
        ("horovod:allreduce", 44, 1, None, False),
        ("horovod:broadcast", 120, 2, 1, True),
        ("horovod:allreduce", 52, 3, None, True),
        ("horovod:barrier", 0, 3, None, False),
    ]
    assert found.query(sql).rows == (logged if by == "gloo" else [])
    sets = found.query("SELECT kind, size, my_rank FROM groups ORDER BY name").rows
    assert sets == [("process_set", 3, 1), ("process_set", 2, 0)]


def test_what_is_missing_is_said(opened: tuple[str, Any]) -> None:
    coverage = opened[1].table("coverage")
    assert ("calls of Horovod", 8) in [row[:2] for row in coverage.rows]
    assert any("Horovod's own thread was not recorded" in note for note in coverage.notes)


def test_a_trace_says_what_it_does_not_hold(rankscope: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "mpi", rankscope, "run", "--trace", "1M", "--quiet", "--out", tmp_path / "run", "--")
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        [rankscope, "report", tmp_path / "run", "--table", "coverage"], capture_output=True, text=True, check=True
    )
    assert "the trace has no events of Horovod" in shown.stdout
