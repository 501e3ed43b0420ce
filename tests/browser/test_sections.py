"""Every section of a page shows the numbers that the tables have."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import Chromium
from browser.pages import FILLED, TABLES, page_of_run
from rankscope.cli.report import run as report
from rankscope.model.tables import Table
from rankscope.output.cells import filled, heading, shown
from rankscope.pictures import Page
from rankscope.questions.page import PageOptions, page_of
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run

BELOW = {  # in their order, below the first screen
    "mpi": "step_times timeline wait_map waiting communication balance gpu memory start".split(),
    "gpu": "step_times timeline wait_map waiting communication balance gpu_time gpu memory start".split(),
}
DETAILS = ["overview", "coverage", "overhead", "tables"]


def described(run: Path) -> Page:
    return page_of(open_run(run, read_rank_file), run.name, PageOptions())


def as_shown(table: Table) -> tuple[list[str], list[list[str]]]:
    kept = filled(table.columns, table.rows)
    head = [heading(table.columns[at]) for at in kept]
    return head, [[shown(row[at], table.columns[at].unit) for at in kept] for row in table.rows]


@pytest.mark.parametrize("kind", ["mpi", "gpu"])
def test_tables_are_those_of_the_analyses(chromium: Chromium, kind: str, runs: dict[str, Path]) -> None:
    run = runs[kind]
    page = page_of_run(run, "--names", "mangled")
    told = chromium.ask(page, FILLED, {"do": "evaluate", "code": TABLES})
    on_page = {one["name"]: one for one in told.answers[1]}
    expected = [table for section in described(run).sections for table in section.tables]
    assert len(expected) > 12
    for table in expected:
        head, rows = as_shown(table)
        assert on_page[table.name]["head"] == head, table.name
        assert on_page[table.name]["rows"] == rows, table.name


@pytest.mark.parametrize("kind", ["mpi", "gpu"])
def test_sections_have_a_picture_each(chromium: Chromium, kind: str, runs: dict[str, Path]) -> None:
    """A picture holds something that was drawn; sections of what a run has not are left out."""
    page = page_of_run(runs[kind])
    code = """[...document.querySelectorAll('main section')].map((section) => ({
        name: section.id,
        pictures: [...section.querySelectorAll('.picture')].map((one) => one.querySelectorAll('canvas, li').length),
        titles: [...section.querySelectorAll('figcaption')].map((one) => one.textContent),
    }))"""
    found = chromium.ask(page, FILLED, {"do": "evaluate", "code": code}).answers[1]
    assert [one["name"] for one in found] == ["steps", "findings", *BELOW[kind], *DETAILS]
    for section in found:
        assert section["name"] in ("findings", "overview", "coverage", "tables") or section["pictures"]
        assert all(section["pictures"])
        assert all(any(letter.isdigit() for letter in title) for title in section["titles"]), section


@pytest.mark.parametrize("kind", ["mpi", "gpu"])
def test_legends_of_sizes_count_the_operations(chromium: Chromium, kind: str, runs: dict[str, Path]) -> None:
    """Over all sizes, as the table of the picture counts them; a legend of one name is there too."""
    code = """[...document.querySelectorAll('#communication .picture.sizes .legend')].map((legend) =>
        [...legend.querySelectorAll('button')].map((entry) => entry.textContent))"""
    legends = chromium.ask(page_of_run(runs[kind]), FILLED, {"do": "evaluate", "code": code}).answers[1]
    (section,) = (section for section in described(runs[kind]).sections if section.name == "communication")
    tables = {table.name: table for table in section.tables}
    expected = []
    for chart in section.charts:
        table = tables[chart.table]
        places = [[column.name for column in table.columns].index(name) for name in (chart.series, chart.count)]
        counts: dict[str, int] = {}
        for row in table.rows:
            name, count = (row[place] for place in places)
            counts[str(name)] = counts.get(str(name), 0) + int(count or 0)
        expected += [{f"{name} ({count:,})" for name, count in counts.items()}] * len(chart.parts)
    assert expected and [set(legend) for legend in legends] == expected


def test_copies_what_the_csv_has(chromium: Chromium, runs: dict[str, Path], page: Path, capsys: Any) -> None:
    """Of a table that the command prints as CSV too."""
    spy = "let copied; navigator.clipboard.writeText = async (text) => { window.copied = text; }"
    click = {"do": "evaluate", "code": "document.querySelector('#table-waiting .copy').click()"}
    steps = [FILLED, {"do": "evaluate", "code": spy}, click, {"do": "evaluate", "code": "window.copied"}]
    steps.append({"do": "evaluate", "code": "document.getElementById('told').textContent"})
    *_, copied, said = chromium.ask(page, *steps).answers
    capsys.readouterr()
    assert report([str(runs["mpi"]), "--format", "csv", "--table", "waiting"]) == 0
    printed = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    on_page = list(csv.reader(io.StringIO(copied)))
    assert on_page[0] == printed[0]
    assert [[_number(cell) for cell in row] for row in on_page] == [[_number(cell) for cell in row] for row in printed]
    assert said == "Copied 24 rows of Waiting in collectives."


def _number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell
