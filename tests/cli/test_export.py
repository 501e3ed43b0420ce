"""`rankscope export`: tables and metrics, called as the dispatcher calls it."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import rankscope as rs
from rankscope.cli.export import run
from runs.step_runs import two_ranks

LINE = re.compile(r'^[a-z_]+(\{([a-z_]+="(\\.|[^"\\])*",?)*\})? (-?[0-9.e+-]+|NaN|[+-]Inf)$')
EVIL = 'MPI_"evil"\\\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return two_ranks(tmp_path / "run", EVIL)


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_all_tables_are_there_with_their_rows(
    form: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tables"
    assert run([str(folder), f"--{form}", "--out", str(out)]) == 0
    told = json.loads((out / "schema.json").read_text())
    assert told["schema_version"] == rs.SCHEMA_VERSION and told["rows"]["records/events"] == 40
    opened = rs.open(folder)
    for name, rows in told["rows"].items():
        assert (out / f"{name}.{form}").exists()
        kind, _, table = name.partition("/")
        assert rows == len(opened.table(table) if kind == "questions" else opened.query(f'select * from "{table}"'))
    calls = opened.query("select calls from tallies order by calls").rows
    if form == "parquet":
        assert sorted(pq.read_table(out / "records/tallies.parquet")["calls"].to_pylist()) == [row[0] for row in calls]
    elif form == "csv":
        with (out / "records/tallies.csv").open(newline="") as file:
            assert sorted(int(row["calls"]) for row in csv.DictReader(file)) == [row[0] for row in calls]
    else:
        lines = (out / "records/tallies.json").read_text().splitlines()
        assert sorted(json.loads(line)["calls"] for line in lines) == [row[0] for row in calls]


def test_metrics_are_in_prometheus_format(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.prom"
    assert run([str(folder), "--prometheus", "--out", str(out)]) == 0
    lines = out.read_text().splitlines()
    assert all(LINE.match(line) for line in lines if not line.startswith("#"))
    assert 'rankscope_call_seconds_total{rank="1",host="node0",layer="mpi",name="MPI_Allreduce"} 2.0' in lines
    assert 'rankscope_calls_total{rank="0",host="node0",layer="mpi",name="MPI_Allreduce"} 10' in lines
    assert any(r"MPI_\"evil\"\\\\x0a" in line for line in lines)
    named = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(named) == len(set(named)) and "rankscope_ranks 2" in lines


def test_a_timeline_is_the_default_and_named_after_the_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([str(folder)]) == 0
    assert re.fullmatch(r"\d+ slices on \d+ tracks in run.perfetto-trace\n", capsys.readouterr().out)
    assert (tmp_path / "run.perfetto-trace").stat().st_size > 1000


def test_nothing_half_written_is_left(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("keep")
    before = sorted(tmp_path.iterdir())
    assert run([str(folder), "--csv", "--out", str(tmp_path / "full")]) == 2
    assert run([str(folder), "--perfetto", "--out", str(tmp_path / "no" / "such")]) == 2
    assert run([str(tmp_path / "nowhere")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3 and all(line.startswith("rankscope: ") for line in told)
    assert sorted(tmp_path.iterdir()) == before and (tmp_path / "full" / "mine").read_text() == "keep"


def test_files_that_cannot_be_read_are_told(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ranks/node0/101.rank").write_bytes(b"x" * 9000)
    assert run([str(folder), "--chrome", "--out", str(tmp_path / "trace.json")]) == 1
    assert "101.rank" in capsys.readouterr().err
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
