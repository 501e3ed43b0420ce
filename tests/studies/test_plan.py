"""Cells: which there are, in which order, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rankscope.studies.errors import BadStudy
from rankscope.studies.plan import Cell, Missing, Outcome, Study, cells
from rankscope.studies.run_study import CellPace

AXES: Mapping[str, Sequence[str]] = {"backend": ["a", "b"], "size": ["1", "2"]}
STUDY = Study("s", "S", "", lambda settings: AXES, lambda *given: Missing("never run"), lambda outcomes, settings: [])


def test_repeats_take_turns() -> None:
    made = cells(STUDY, {}, [1, 2], 2, {})
    assert len(made) == len(set(made)) == 16
    assert [cell.repeat for cell in made] == [1] * 8 + [2] * 8
    assert [cell.label for cell in made[:3]] == [
        "a, 1, 1 rank, repeat 1",
        "a, 1, 2 ranks, repeat 1",
        "a, 2, 1 rank, repeat 1",
    ]
    assert made[2]["backend"] == "a" and made[2]["size"] == "2"


def test_only() -> None:
    made = cells(STUDY, {}, [4], 1, {"backend": ["b"]})
    assert [cell.name for cell in made] == ["backend=b,size=1,ranks=4,repeat=1", "backend=b,size=2,ranks=4,repeat=1"]


@pytest.mark.parametrize(
    ("only", "said"),
    [
        ({"colour": ["red"]}, "--only colour=…: the study s has no such axis; it has backend, size"),
        ({"size": ["1", "3"]}, "--only size=1,3: there is no 3; choose of 1, 2"),
    ],
)
def test_only_what_there_is(only: Mapping[str, Sequence[str]], said: str) -> None:
    with pytest.raises(BadStudy) as problem:
        cells(STUDY, {}, [1], 1, only)
    assert str(problem.value) == said


@pytest.mark.parametrize(("scales", "repeats"), [([], 1), ([1], 0)])
def test_no_cell_is_an_error(scales: Sequence[int], repeats: int) -> None:
    with pytest.raises(BadStudy, match="has no cell"):
        cells(STUDY, {}, scales, repeats, {})


def test_names_are_folders_and_differ() -> None:
    values = ["a/b", "a_b", "../up", "x" * 400, "x" * 401, "ä", "a b", "a,ranks=1"]
    names = [Cell((("axis", value),), 1, 1).name for value in values]
    assert len(set(names)) == len(values)
    assert all(len(name.encode()) < 250 and "/" not in name and name.isascii() for name in names)


def test_time_left_is_that_of_cells_alike() -> None:
    pace = CellPace()
    done, alike, other = Cell((("a", "x"),), 2, 1), Cell((("a", "x"),), 2, 2), Cell((("a", "y"),), 4, 1)
    assert pace.left_s([alike]) is None
    pace.took(Outcome(done, "done", seconds=3.0))
    pace.took(Outcome(Cell((("a", "x"),), 1, 1), "failed", seconds=1.0))
    pace.took(Outcome(Cell((("a", "z"),), 1, 1), "not here"))
    assert pace.left_s([alike]) == 3.0
    assert pace.left_s([alike, other]) == 3.0 + 2.0  # of the other nothing is known but the mean of all
    assert pace.left_s([]) == 0.0
