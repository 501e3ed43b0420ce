"""The study of imports, run for real with a light framework: disk, a slow file system, and staged from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mpis import ROOT
from questions.scaling.asking import scaled
from rankscope.slowfs.mount import reason_against_running
from rankscope.studies.imports import STUDY, job, places
from rankscope.studies.interpreters import Pythons
from rankscope.studies.plan import Cell, Missing, cells
from studies.studying import cells as ended
from studies.studying import study

PACKAGES = ROOT / ".envs" / "packages"
DEFAULTS = {name: one.default for name, one in STUDY.parameters.items()}
LIGHT = ("--frameworks", "click", "--calls-of", "", "--latency", "50us", "--scale", "1,2", "--repeat", "1")


@pytest.fixture
def python() -> Path:
    if not (PACKAGES / "bin" / "python").exists():
        pytest.skip(".envs/packages is missing: run make envs")
    return PACKAGES / "bin" / "python"


@pytest.fixture
def mountable() -> None:
    if reason := reason_against_running():
        pytest.skip(reason)


def rows_of(text: str, title: str) -> list[list[str]]:
    """The rows of one table of a Markdown document."""
    part = text.split(f"## {title}")[1].split("## ")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in part.splitlines() if line[:2] == "| "][
        2:
    ]


@pytest.mark.usefixtures("mountable")
def test_a_light_framework_at_every_place(python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = study("imports", *LIGHT, "--python", python, "--out", tmp_path / "s", "--node-storage", tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "s" / "imports.md").read_text()
    ((_, total, _, opens, _, stats, _, failed),) = rows_of(text, "System calls to import, one rank")
    numbers = [int(word.replace(",", "")) for word in (total, opens, stats, failed)]
    assert numbers[0] > numbers[1] + numbers[2] and min(numbers) > 10
    assert [row[0] for row in rows_of(text, "Import time per place and scale")] == ["1", "2"]
    assert [len(row) for row in rows_of(text, "TMP method: copy to the node, then import from there")] == [4, 4]
    assert [row[1] for row in rows_of(text, "Ranks from which staging is faster")] == ["local", "slow", "cached"]
    check_bounds(rows_of(text, "The slow file system: expected and measured"))
    check_results(tmp_path / "s")
    page = (tmp_path / "s" / "imports.html").read_text()
    assert page.count("<svg") == 2 and '<p class="verdict">' in page  # for a wide and a narrow window
    _, tables = scaled(capsys, tmp_path / "s")
    series = {row["series"] for row in tables["scale_laws"]}
    assert series == {"local", "slow", "cached", "staged", "staged, with transfer"}
    assert not list(tmp_path.glob("rankscope-stage-*/*-*/")), "a staged copy was left behind"


def check_bounds(rows: list[list[str]]) -> None:
    """What one rank's paths predict is what the file system counts, but for the start of the interpreter."""
    assert [(row[1], row[2]) for row in rows] == [(place, n) for place in ("slow", "cached") for n in "12"]
    for row in rows:
        expected, asked = (int(word.replace(",", "")) for word in row[3:5])
        started = 150 * int(row[2])  # looking for the interpreter and starting it, before anything is recorded
        assert 0.95 * expected < asked < 1.05 * expected + started, row


def check_results(folder: Path) -> None:
    """In place the module lies in the environment, staged it does not; a slow place asked its server."""
    for path in folder.glob("cells/*/attempt-1"):
        results: list[dict[str, Any]] = [json.loads(one.read_text()) for one in path.glob("results/*.json")]
        assert len(results) == int(path.parent.name.split("ranks=")[1].split(",")[0])
        inside = {str(one["origin"]).startswith(str(PACKAGES.resolve())) for one in results}
        assert inside == {"place=staged" not in path.parent.name}
        assert (path / "server").exists() == any(word in path.parent.name for word in ("slow", "cached", "staged"))


def test_an_environment_elsewhere_and_what_is_not_there(python: Path, tmp_path: Path) -> None:
    """A folder of one's own is a place; one without Python is shown with its reason, and the rest is done."""
    own = f"own={python.parents[1]},none={tmp_path / 'none'}"
    done = study("imports", *LIGHT, "--places", own, "--python", python, "--out", tmp_path / "s", "--scale", "1")
    assert done.returncode == 1, done.stderr
    states = {name.split(",")[1]: one for name, one in ended(tmp_path / "s").items()}
    assert states["place=own"]["state"] == "done" and states["place=counted"]["state"] == "done"
    assert states["place=none"]["state"] == "not here" and "put an environment there" in states["place=none"]["reason"]


def test_calls_are_counted_once_at_the_smallest_scale() -> None:
    made = cells(STUDY, {**DEFAULTS, "frameworks": "numpy"}, [2, 8], 2, {})
    assert {cell["place"] for cell in made if cell.repeat == 2} == {"local", "slow", "cached", "staged"}
    assert [(cell["framework"], cell["place"], cell.ranks) for cell in made if cell.repeat == 1] == [
        ("numpy", "counted", 2),
        *(("numpy", place, ranks) for place in ("local", "slow", "cached", "staged") for ranks in (2, 8)),
        ("torch", "counted", 2),
    ]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("places", "disk", "choose of local, slow, cached, staged"),
        ("latency", "5", "with its unit"),
        ("rate", "many", "whole numbers above 0"),
        ("jobs", "5,0", "whole numbers above 0"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(tmp_path: Path, name: str, value: str, words: str) -> None:
    done = study("imports", f"--{name}", value, "--python", sys.executable, "--out", tmp_path / "s")
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_without_the_right_to_mount_slow_places_are_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.studies.imports.reason_against_running", lambda: "/dev/fuse: not allowed")
    settings = {**DEFAULTS, "frameworks": "json"}
    for place in places(settings):
        cell = Cell((("framework", "json"), ("place", place)), 1, 1)
        found = job(cell, settings, Pythons([sys.executable]), "/cell")
        assert isinstance(found, Missing) == (place != "local")
        assert place == "local" or "/dev/fuse: not allowed" in getattr(found, "reason", "")
