"""Which Python has what a cell needs, and where the study ran."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.studies.document import cells_table, document, where_table, write
from rankscope.studies.environment import environment, joined
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Python, Pythons, probe
from rankscope.studies.plan import Cell, Missing, Outcome, Study


def test_a_python_is_asked() -> None:
    found = probe(sys.executable)
    assert found.path == sys.executable and found.version == sys.version.split()[0]
    assert "numpy" in found.modules and "horovod" not in found.modules


def test_the_first_that_has_all() -> None:
    pythons = Pythons([])
    pythons.__dict__["all"] = [
        Python("/a", "3", "/", {"torch": "2"}),
        Python("/b", "3", "/", {"torch": "2", "numpy": "1"}),
    ]
    assert pythons.having("torch") is pythons.all[0] and pythons.having("torch", "numpy") is pythons.all[1]
    assert pythons.having("jax") is None
    assert pythons.without("jax") == "no jax in /a, /b: install it, or name the Python that has it with --python"


def test_paths_are_kept_so_that_any_folder_finds_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Pythons(["env/bin/python", "python3"]).lasting_paths() == [f"{tmp_path}/env/bin/python", "python3"]
    assert Pythons(["env/bin/python"], ["torch"]).lasting_paths() == ["env/bin/python"]


def test_what_is_no_python_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadStudy, match="there is no such program"):
        probe("/no/such/python")
    (tmp_path / "python").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(BadStudy, match="it cannot be asked for its modules"):
        probe(str(tmp_path / "python"))


def test_assumed_ones_are_not_asked() -> None:
    (only,) = Pythons(["/there/bin/python"], ["torch", "numpy"]).all
    assert only.modules.keys() == {"torch", "numpy"} and only.path == "/there/bin/python"
    assert only.mpirun == "/there/bin/mpirun"
    assert Pythons([], ["torch"]).all[0].path == "python3" and Pythons([], ["torch"]).all[0].mpirun == "mpirun"


def test_environment_has_what_readers_need_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "NCCL_DEBUG": "INFO",
        "CCL_KVS_TOKEN": "abc1",
        "SLURM_JWT": "abc2",
        "UCX_PROXY": "http://me:abc3@host/x",
        "AWS_SECRET_ACCESS_KEY": "abc4",
        "HOME_PAGE": "abc5",
    }.items():
        monkeypatch.setenv(name, value)
    found = environment(Pythons([sys.executable]))
    assert found["variables"]["NCCL_DEBUG"] == "INFO" and found["variables"]["UCX_PROXY"] == "http://…@host/x"
    assert "abc" not in json.dumps(found)
    assert found["cpus"] >= 1 and found["memory_bytes"] > 1 << 20 and found["cpus_allowed"] and found["networks"]
    assert found["pythons"][0]["path"] == sys.executable and "numpy" in found["pythons"][0]["packages"]


def test_a_study_that_went_on_elsewhere_says_so() -> None:
    first = {"host": "a", "cpu": "x", "rankscope": "1", "date": "d1", "pythons": [{"path": "p"}]}
    then = {"host": "b", "cpu": "x", "rankscope": "1", "date": "d2", "pythons": [{"path": "p"}, {"path": "q"}]}
    made = joined(joined(None, first), then)
    assert (made["host"], made["cpu"], made["date"]) == ("a; later b", "x", "d1 to d2")
    assert made["pythons"] == [{"path": "p"}, {"path": "q"}]
    assert joined(made, {**then, "date": "d3"})["date"] == "d1 to d3"


def test_what_runs_elsewhere_needs_the_standard_library_only() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import rankscope.studies.elsewhere, rankscope.studies.guard, "
        "rankscope.studies.local; print(*[name for name in sys.modules if name.startswith('rankscope.')])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, ROOT / "src"], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == {
        f"rankscope.{name}"
        for name in (
            *("studies", "studies.elsewhere", "studies.environment", "studies.errors", "studies.files"),
            *("studies.guard", "studies.local", "studies.programs", "studies.interpreters", "whole_file"),
        )
    }


def test_document_shows_every_cell_and_why_it_is_missing(tmp_path: Path) -> None:
    study = Study("s", "The title", "", lambda settings: {}, lambda *given: Missing(""), lambda *given: [])
    cells = [Cell((("a", "x|y"),), ranks, 1) for ranks in (1, 2)]
    outcomes = [Outcome(cells[0], "done", "", 1.5), Outcome(cells[1], "failed", "exit code 1: <b>no</b> luck", 2.0)]
    table = cells_table(study, outcomes)
    assert table.title == "Cells: 1 of 2 done" and table.warnings == [
        "1 of 2 cells are missing in the tables: see Cells"
    ]
    assert table.rows[1] == ("x|y", 2, 1, "failed", 2e9, "exit code 1: <b>no</b> luck")
    tables = document(study, outcomes, {}, {"host": "h", "networks": {"lo": "up"}, "load": 0.5, "devices": []})
    assert where_table({"devices": []}).rows == []
    markdown, page = write(tmp_path, study, outcomes, tables, [], [])
    assert markdown.read_text().startswith("# The title\n") and " luck |" in markdown.read_text()
    assert "<b>no</b>" not in page.read_text() and sorted(path.name for path in tmp_path.iterdir()) == [
        "s.html",
        "s.md",
    ]
