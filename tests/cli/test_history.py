"""The history of recorded runs: summarised once, asked from what is kept, and shown in every form."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.api.runs import listed_run
from rankscope.cli.history import run as history
from rankscope.model.summaries import RunSummary
from rankscope.rank_file import Part
from rankscope.store.history import FOLDER, History
from runs.small_run import SECOND, START, mpi_rank, write_run
from runs.step_runs import steps


def write(folder: Path, at: int, forward_ms: float, **job: Any) -> Path:
    """Two ranks on one host each, which forward, and wait a little for each other."""
    random = np.random.default_rng(at)
    ranks = []
    for rank in range(2):
        parts = [{Part.FORWARD: forward_ms * factor, Part.OTHER: 5.0} for factor in random.lognormal(0, 0.01, 12)]
        made = mpi_rank(rank, 2, host=b"n%d" % rank)
        made.steps(steps(parts, [{Part.OTHER: 3.0}] * 12))
        ranks.append(made)
    told = {"command": ["mpirun", "python", "train.py"], "cwd": "/p", "expected_ranks": 2, **job}
    return write_run(folder / f"run-{at:02}", *ranks, started_ns=START + at * SECOND, **told)


@pytest.fixture(scope="module")
def summarised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen runs; the last eight take a quarter longer, with another commit."""
    folder = tmp_path_factory.mktemp("history") / "runs"
    for at in range(16):
        write(folder, at, 20.0 if at < 8 else 26.0, commit=("a" if at < 8 else "b") * 40)
    (folder / "latest").symlink_to("run-15")
    assert history([str(folder), "--out", str(folder.with_name("screen"))]) == 0
    return folder


@pytest.fixture
def runs(summarised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(summarised, tmp_path / "runs", symlinks=True)
    monkeypatch.chdir(tmp_path)
    return Path("runs")


def table(text: str, name: str) -> list[dict[str, Any]]:
    found = next(one for one in json.loads(text)["tables"] if one["name"] == name)
    return [dict(zip([column["name"] for column in found["columns"]], row, strict=True)) for row in found["rows"]]


def test_a_folder_of_runs_tells_since_when_it_is_slower(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history([str(runs), "--format", "json", "--by", "commit"]) == 0
    out = capsys.readouterr().out
    (row,) = table(out, "regressions")
    assert (row["run"], row["what"], row["commit"]) == ("run-08", "step", "aaaaaaaaaa → bbbbbbbbbb")
    assert row["share"] == pytest.approx(6 / 25, abs=0.03) and row["chance"] < 0.05
    (series,) = table(out, "history")
    assert (series["series"], series["project"], series["runs"]) == ("train.py, 2 ranks", "/p", 16)
    assert series["step_ns"] == pytest.approx(31e6, rel=0.03) and series["exposed_share"] == pytest.approx(
        3 / 31, rel=0.1
    )
    assert series["goodput"] is not None and series["startup_ns"] is not None
    assert [one["value"][:1] for one in table(out, "history_by_commit")] == ["b", "a"]


def test_a_run_is_summarised_once_and_stays_when_it_is_deleted(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert history([str(runs), "--format", "csv"]) == 0
    first = capsys.readouterr().out
    shutil.rmtree(runs / "run-03")

    def never(folder: Path) -> list[RunSummary]:
        raise AssertionError(f"{folder} was read again")

    monkeypatch.setattr("rankscope.api.history.summaries_of", never)
    assert history([str(runs), "--format", "csv"]) == 0
    assert capsys.readouterr().out == first
    assert not list(runs.glob("run-*/.rankscope*"))


def test_a_damaged_file_is_rebuilt(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history([str(runs), "--format", "csv"]) == 0
    first = capsys.readouterr().out
    (kept,) = (runs / FOLDER).glob("*.parquet")
    kept.write_bytes(b"PAR1 nonsense")
    assert history([str(runs)]) == 0
    assert capsys.readouterr().out.count("is damaged") == 1
    assert history([str(runs), "--format", "csv"]) == 0
    assert capsys.readouterr().out == first


def test_a_run_that_goes_on_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 0, 20.0)
    write_run(tmp_path / "running", mpi_rank(0, 1))
    real = listed_run
    monkeypatch.setattr(
        "rankscope.api.history.listed_run", lambda one: replace(real(one), running=one.name == "running")
    )
    assert history([str(tmp_path)]) == 0
    assert History(tmp_path).read().rows["run"].to_pylist() == ["run-00"]


def test_what_is_missing_and_comes_later_is_read_again(tmp_path: Path) -> None:
    place = write(tmp_path, 0, 20.0)
    away = tmp_path / "away"
    shutil.move(place / "ranks" / "n1", away)
    assert history([str(tmp_path)]) == 0
    assert History(tmp_path).read().rows["is_complete"].to_pylist() == [False]
    shutil.move(away, place / "ranks" / "n1")
    assert history([str(tmp_path)]) == 0
    (row,) = History(tmp_path).read().rows.to_pylist()
    assert (row["ranks"], row["is_complete"], row["hosts"]) == (2, True, ["n0", "n1"])


def test_the_screen_says_it_in_words(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert history([str(runs), "--fail"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "16 runs of runs in 1 series: 1 regression (1 ongoing)"
    assert len(lines) < 30 and max(map(len, lines)) <= 120
    assert "worse: step +2" in lines[-1]


def test_some_runs_only(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history([str(runs), "--last", "8", "--format", "json", "--fail"]) == 0
    assert table(capsys.readouterr().out, "history")[0]["runs"] == 8
    assert history([str(runs / "run-00"), str(runs / "run-01"), "--format", "json"]) == 0
    assert table(capsys.readouterr().out, "history")[0]["runs"] == 2
    assert history([str(runs), "--only", "run-0[1-3]", "--format", "csv"]) == 0
    first = next(csv.DictReader(io.StringIO(capsys.readouterr().out.split("\n", 1)[1])))
    assert first["runs"] == "3"


def test_what_cannot_be_read_is_a_run_without_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, 20.0)
    (tmp_path / "empty" / "ranks").mkdir(parents=True)
    assert history([str(tmp_path), "--format", "json"]) == 0
    series = {row["series"]: row["step_ns"] for row in table(capsys.readouterr().out, "history")}
    assert series["unknown, 0 ranks"] is None
    problems = {row["run"]: row["problem"] for row in History(tmp_path).read().rows.to_pylist()}
    assert "no rank files" in problems["empty"] and problems["run-00"] == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["nowhere"], "nowhere: no such run"),
        (["."], "no run found"),
        ([".", "--only", "["], "not a regular expression"),
        ([".", "--series", "moon"], "--series moon: choose some of commit, host"),
        ([".", "--last", "0"], "--last: give a number"),
        ([".", "--html", "x", "--format", "csv"], "--html cannot be combined"),
    ],
)
def test_wrong_questions_are_one_line(
    options: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert history(options) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


def test_the_page_is_one_file(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert history([str(runs), "--html", str(page)]) == 0
    text = page.read_text()
    assert "1 regression goes on; the largest: step of train.py, 2 ranks" in text and "http-equiv" in text
