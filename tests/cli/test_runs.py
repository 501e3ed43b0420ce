"""Runs by name and by number, and their list."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from mpis import ROOT
from rankscope.api.compare import side_of
from rankscope.cli.load import run as load
from rankscope.cli.report import run as report
from rankscope.cli.runs import run as runs
from runs.small_run import SECOND, START, mpi_rank, write_run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs: `train` twice, a day apart, and one with a name of its own in between."""
    for at, name in enumerate(("2026-11-14T10-00-00-train", "march", "2026-11-16T10-00-00-train")):
        ranks = [mpi_rank(rank, at + 1) for rank in range(at + 1)]
        write_run(tmp_path / "rankscope-runs" / name, *ranks, started_ns=START + at * SECOND)
    (tmp_path / "rankscope-runs" / "latest").symlink_to("2026-11-16T10-00-00-train")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "rankscope-runs"


@pytest.mark.parametrize(
    ("asked", "ranks"),
    [
        *(("@1", 3), ("@2", 2), ("@3", 1), ("train", 3), ("march", 2), ("latest", 3)),
        *(("2026-11-14T10-00-00-train", 1), ("rankscope-runs/march", 2)),
    ],
)
def test_a_run_is_found(asked: str, ranks: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report([asked, "--table", "ranks", "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == ranks + 1


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("@4", "@4: 3 runs in rankscope-runs/: @1 is the newest"),
        ("@x", "@x: 3 runs in"),
        ("trian", "trian: no such run: did you mean train? (rankscope runs lists them)"),
        ("../march", "../march: no such run"),
    ],
)
def test_one_that_is_not_there(asked: str, told: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report([asked]) == 2
    assert told in capsys.readouterr().err


def test_what_was_loaded_under_a_name_is_found_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load([str(ROOT / "tests/formats/fixtures/start_times.md"), "--name", "april"]) == 0
    *_, command = capsys.readouterr().out.splitlines()
    assert command == "rankscope report april"
    assert report(["april"]) == 0
    assert capsys.readouterr().out.startswith("rankscope  april   loaded from handmade")


def test_a_comparison_takes_names_and_numbers(here: Path) -> None:
    assert [side_of(text)[1][0].name for text in ("@1", "march", "@3")] == [
        "2026-11-16T10-00-00-train",
        "march",
        "2026-11-14T10-00-00-train",
    ]


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert runs(["--format", "csv", *options]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_the_list(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, "--read")
    assert [(row["number"], row["name"], row["ranks"]) for row in found] == [
        ("@1", "train", "3"),
        ("@2", "march", "2"),
        ("@3", "train", "1"),
    ]
    assert all(row["finding"].startswith("No findings") for row in found)
    kept = json.loads((here / "march" / ".summary.json").read_text())
    assert kept["ranks"] == 2


def test_what_was_read_once_is_not_read_again_until_the_run_changes(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listed(capsys, "--read")

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("rankscope.api.runs.summarise", refuse)
    assert listed(capsys) == before
    os.utime(next(here.glob("march/ranks/*/*.rank")), ns=(time.time_ns(), time.time_ns()))
    with pytest.raises(AssertionError, match="read again"):
        listed(capsys)


def test_there_may_be_hundreds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope.cli.runs.BUDGET_S", 0.2)
    for at in range(200):
        write_run(tmp_path / f"run-{at}", mpi_rank(0, 1), started_ns=START + at * SECOND)
    found = listed(capsys, str(tmp_path))
    assert [row["name"] for row in found] == [f"run-{at}" for at in range(199, 179, -1)]
    assert len(listed(capsys, str(tmp_path), "--all")) == 200  # most of them not read yet


def test_no_folder_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runs([str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [[], ["@1"]])
def test_where_nothing_was_recorded(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert report(asked) == 2
    assert "no runs in rankscope-runs/: record one with `rankscope run COMMAND`" in capsys.readouterr().err
