"""A study's folder: what has ended counts, what was half-way does not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rankscope.studies.errors import BadStudy
from rankscope.studies.files import read_json, write_json
from rankscope.studies.interpreters import Pythons
from rankscope.studies.ledger import Ledger
from rankscope.studies.plan import Cell, Missing, Outcome, Study
from rankscope.studies.request import StudyRequest, differing

CELL = Cell((("backend", "a"),), 2, 1)


def test_a_cell_waits_until_it_has_ended(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "s")
    attempt = ledger.new_attempt(CELL)
    assert ledger.outcome(CELL).state == "waiting"
    (attempt / "results" / "1.json").write_text('{"rank": 1, "x": 4}')
    (attempt / "results" / "0.json").write_text('{"rank": 0, "x": 3}')
    (attempt / "results" / "2.json").write_text('{"rank": 2, "x"')  # half-written by a rank
    ledger.keep(Outcome(CELL, "done", "", 1.5, str(attempt), ("a", "b")))
    found = Ledger(tmp_path / "s").outcome(CELL)
    assert (found.state, found.seconds, found.folder, found.command) == ("done", 1.5, str(attempt), ("a", "b"))
    assert [one["x"] for one in found.results] == [3, 4]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "sleeping"}'])
def test_a_damaged_cell_waits(tmp_path: Path, text: str) -> None:
    ledger = Ledger(tmp_path)
    (tmp_path / "cells" / CELL.name).mkdir(parents=True)
    (tmp_path / "cells" / CELL.name / "cell.json").write_text(text)
    assert ledger.outcome(CELL).state == "waiting"


def test_attempts_are_never_used_twice(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    made = [ledger.new_attempt(CELL) for _ in range(11)]
    assert [path.name for path in ledger.attempts(CELL)] == [f"attempt-{number}" for number in range(1, 12)]
    assert ledger.attempts(CELL) == made


def test_held_by_one_process(tmp_path: Path) -> None:
    with Ledger(tmp_path / "s").held(), pytest.raises(BadStudy, match="another process is running this study"):
        with Ledger(tmp_path / "s").held():
            pass
    with Ledger(tmp_path / "s").held():
        pass


def test_json_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == {"a": 1} and os.listdir(tmp_path) == ["a.json"]
    path.write_text("[1]")
    assert read_json(path) is None and read_json(tmp_path / "b.json") is None


def test_what_differs_is_named() -> None:
    study = Study("s", "S", "", lambda settings: {}, lambda *given: Missing(""), lambda *given: [])
    mine = StudyRequest(study, {"big_size": "4", "op": "sum"}, Pythons([]), [1], 1).identity()
    other = json.loads(json.dumps(mine))
    assert differing(other, mine) == []
    other["settings"]["big_size"], other["launcher"], other["definition"] = "8", "srun", "x"
    assert differing(other, mine) == ["launcher", "its file's [workload] or [launch]", "--big-size"]
