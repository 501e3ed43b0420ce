"""The page of many ranks begins with those that differ: what a synthetic run's law did is on its first screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from browser.chromium import Chromium
from rankscope.api.pages import page_text
from rankscope.api.run import Run
from rankscope.questions.page import page_of
from rankscope.questions.ranks.outliers import outliers
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from synthetic_law import Law
from synthetic_run import write_run

LAW = Law(ranks=96, collectives=300, tallies=12, straggler_share=0.9)
ON_SCREEN = """(() => {
  const told = document.querySelector('#differing .lead'), row = document.querySelector('#table-outliers tbody tr');
  const first = document.querySelector('main section').id;
  return [first, told.textContent, row ? row.textContent : '', told.getBoundingClientRect().bottom,
          row ? row.getBoundingClientRect().bottom : 0, innerHeight];
})()"""
FILLED = {"do": "wait", "code": "document.querySelector('#table-outliers tbody tr') !== null"}


@pytest.mark.parametrize("ranks", [96, pytest.param(6144, marks=pytest.mark.slow)])
def test_the_straggler_is_on_the_first_screen(ranks: int, chromium: Chromium, tmp_path: Path) -> None:
    law = replace(LAW, ranks=ranks, stragglers=(77,))
    page = tmp_path / "page.html"
    page.write_text(page_text(Run(write_run(tmp_path / "run", law), keep=False)), encoding="utf-8")
    assert page.stat().st_size < 1_500_000
    told = chromium.ask(page, FILLED, {"do": "evaluate", "code": ON_SCREEN})
    first, lead, row, lead_bottom, row_bottom, height = told.answers[1]
    assert first == "differing"
    assert lead.startswith("Rank 77 on node00006 differs most: ")
    assert row.startswith("77")
    assert lead_bottom < row_bottom <= height


def test_pictures_show_the_ranks_of_the_table(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", replace(LAW, stragglers=(77,))), read_rank_file)
    named = [row[0] for row in outliers(run).rows]
    page = page_of(run, "run")
    assert named == [77]
    marked = {
        table.name: [row[0] for row in table.rows]
        for section in page.sections
        for table in section.tables
        if table.name.endswith("_outliers")
    }
    assert {"balance_outliers", "waiting_outliers"} <= marked.keys()
    assert set(map(tuple, marked.values())) == {(77,)}


@pytest.mark.parametrize("seed", range(1, 5))
def test_nobody_is_accused_where_all_are_alike(seed: int, tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", replace(LAW, seed=seed)), read_rank_file)
    page = page_of(run, "run")
    section = page.sections[0]
    assert (section.name, section.tables) == ("differing", [])
    assert section.lead.startswith("No rank is 3.5 spreads or more from the median in anything. All behave alike.")
    assert not [table for one in page.sections for table in one.tables if table.name.endswith("_outliers")]


def test_a_slow_host_is_named(tmp_path: Path) -> None:
    law = replace(LAW, stragglers=tuple(range(24, 36)))
    section = page_of(open_run(write_run(tmp_path / "run", law), read_rank_file), "run").sections[0]
    assert "The host that differs most is node00002, in wait caused." in section.lead
