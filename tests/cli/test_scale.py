"""`rankscope scale` on the documents by hand and on runs of several sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from formats.foreign_files import shared
from rankscope.cli.load import run as load
from rankscope.cli.scale import run as scale
from runs.small_run import SECOND, mpi_rank, write_run


def scaled(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, dict[str, list[dict[str, object]]]]:
    code = scale([*map(str, arguments), "--format", "json"])
    told = json.loads(capsys.readouterr().out)
    names = {table["name"]: [column["name"] for column in table["columns"]] for table in told["tables"]}
    return code, {
        table["name"]: [dict(zip(names[table["name"]], row, strict=True)) for row in table["rows"]]
        for table in told["tables"]
    }


def test_first_all_reduces_grow_as_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load([str(shared("samples/aurora/all_reduce.md")), "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    code, tables = scaled(capsys, tmp_path / "run", "--series", "First all_reduce", "--to", "1024,20000")
    exponents = {row["series"]: row["exponent"] for row in tables["scale_laws"]}
    assert exponents["Torch CCL Aurora"] == pytest.approx(1.65, abs=0.05)
    assert all(row["refused"] for row in tables["scale_projection"]) and code == 1


def test_what_does_not_grow_is_constant_and_is_projected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load([str(shared("seeds/001_8c73be912ac6f8b8.txt")), "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    code, tables = scaled(capsys, tmp_path / "run", "--series", "^tmp-CCL", "--to", "1024")
    assert [row["law"] for row in tables["scale_laws"]] == ["constant"]
    assert tables["scale_projection"][0]["value"] == "858.6 ms" and code == 0


def test_nothing_to_see_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scale([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_runs_of_several_sizes_are_a_series(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Elapsed is 2 s and 16 s shared by the ranks, plus or minus 1 %."""
    for size in (1, 2, 4, 8, 16):
        for repeat, off in enumerate((0.99, 1.01)):
            ended = int((2 + 16 / size) * off * SECOND)
            ranks = [mpi_rank(rank, size, ended_ticks=ended) for rank in range(size)]
            write_run(tmp_path / f"run-{size}-{repeat}", *ranks)
    code, tables = scaled(capsys, tmp_path, "--series", "elapsed", "--to", "32")
    (law,), (foretold,) = tables["scale_laws"], tables["scale_projection"]
    assert law["law"] == "amdahl" and code == 0
    assert float(str(foretold["value"]).split()[0]) == pytest.approx(2.5, rel=0.02)
    shares = [row["efficiency"] for row in tables["scale_speed_up"]]
    assert shares[0] == 1 and shares[-1] == pytest.approx(18 / 3 / 16, rel=0.02)
