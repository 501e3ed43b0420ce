"""The page as a file: what is in it, and what nothing in it can do."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from browser.large_run import write_large_run
from rankscope.cli.report import run as report
from rankscope.model.tables import Table
from rankscope.output.html import to_html
from rankscope.output.html.page import FOLDER, LIVE, MODULES, scripts
from rankscope.pictures import Advice, Figure, Page, Screen
from rankscope.questions.page import PageOptions, page_of
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs.small_run import mpi_rank, write_run


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Page:
    run = write_large_run(tmp_path_factory.mktemp("html") / "run", ranks=64, steps=300)
    return page_of(open_run(run, read_rank_file), "run")


def test_charts_draw_columns_that_are_there(described: Page) -> None:
    for section in described.sections:
        tables = {table.name: table for table in section.tables}
        for chart in section.charts:
            named = {chart.label, *chart.parts, *chart.orders, *([chart.series] if chart.series else [])}
            assert named <= {column.name for column in tables[chart.table].columns}, chart.title
            assert chart.parts


def test_titles_are_sentences_with_a_number(described: Page) -> None:
    titles = [chart.title for section in described.sections for chart in section.charts]
    assert len(titles) >= 10
    assert all(re.search(r"\d", title) and len(title.split()) > 4 for title in titles), titles


def test_size_of_64_ranks(described: Page) -> None:
    """Less than 3 MB, of which the scripts are a small part."""
    assert len(to_html(described).encode()) < 3_000_000
    assert sum(len(text) for _, text in scripts()) < 150_000


def test_policy_names_every_script_and_style_by_its_hash(described: Page) -> None:
    text = to_html(described)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;; script-src &#x27;sha256-")
    assert "unsafe" not in policy[1]
    inline = re.findall(r'<script type="text/plain" data-type="\w*">(.*?)</script>', text, re.DOTALL)
    inline += re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (start,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)  # all others wait for the first paint
    assert len(inline) == 4 and "'paint'" in start
    inline.append(start)
    for code in inline:
        assert base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() in policy[1]


def test_nothing_is_asked_of_anybody(described: Page) -> None:
    """No address of another file, no attribute that runs or styles."""
    text = to_html(described)
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"\s(src|srcset|style|on\w+)=", markup)
    assert {link for link in re.findall(r'href="([^"]*)"', markup) if not link.startswith("#")} == set()
    assert "@import" not in text and "url(" not in text


def test_without_scripts_the_words_are_there(described: Page) -> None:
    text = to_html(described)
    for section in described.sections:
        assert f">{section.question}</h2>" in text
    assert "<noscript>" in text


def test_names_are_text() -> None:
    """In titles, notes, warnings and cells."""
    bad = "</script><b>&\x1b\u202e"
    empty = Table("coverage", bad, (), [], [bad], [bad])
    advice = Advice("HIGH", bad, bad, [("no_such", bad)], "rule", 1.0, 0.5)
    seen = Screen(bad, [bad], [bad], bad, None, None, [advice], bad, None, bad, [bad], [], 1, None, False)
    page = Page(bad, seen, [Figure(bad, bad, bad)], replace(empty, name="overview"), empty, [], [bad])
    text = to_html(page)
    assert "<b>" not in text
    assert text.count("&lt;/script&gt;&lt;b&gt;&amp;\\x1b\\u202e") >= 16


def test_each_script_is_part_of_the_page() -> None:
    """No file is forgotten, and each is small enough to be read."""
    files = {path.stem: path for path in (FOLDER / "scripts").glob("*.js")}
    assert set(MODULES) | {"start", "language", LIVE} == set(files)
    assert max(len(path.read_text(encoding="utf-8").splitlines()) for path in files.values()) <= 450


def test_a_run_of_nothing_has_a_short_page(tmp_path: Path) -> None:
    """Sections without data are left out."""
    run = write_run(tmp_path / "run", mpi_rank(0, 1))
    page = page_of(open_run(run, read_rank_file), "run")
    assert {section.name for section in page.sections} <= {"start", "memory", "balance", "overhead"}


def test_more_tables_are_made_only_if_they_are_not_there_yet(described: Page, tmp_path: Path) -> None:
    def must_not() -> Table:
        raise AssertionError

    run = open_run(write_run(tmp_path / "run", mpi_rank(0, 2), mpi_rank(1, 2)), read_rank_file)
    other = Table("other", "Other", (), [], warnings=["told"])
    page = page_of(run, "run", PageOptions(more={"findings": must_not, "balance": must_not, "other": lambda: other}))
    assert page.sections[-1].tables == [other]


def test_the_command_writes_a_page_or_says_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, page = write_run(tmp_path / "run", mpi_rank(0, 1)), tmp_path / "page.html"
    assert report([str(run), "--html", str(page)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "open it in a browser" in capsys.readouterr().err
    assert report([str(run), "--html", str(tmp_path / "no" / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert report([str(run), "--html", str(page), "--format", "csv"]) == 2
    assert "--html cannot be combined with" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
