"""The page of every kind of run whose first screen is kept: nothing overlaps, nothing is cut off, its numbers agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import Chromium
from browser.pages import FILLED, TABLES, page_of_run
from browser.test_places import PLACES, check
from browser.test_sections import as_shown
from output.screens import KEPT, runs
from rankscope.api.run import Run, Selection, Wrong
from rankscope.cli.compare import run as compare
from rankscope.model.tables import Table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
KINDS = sorted({path.stem.rpartition("-")[0] for path in KEPT.glob("*.txt")} - {"study"})  # whose cells have the pages
WINDOWS = [(1440, 900), (390, 844)]
# what reaches beyond the window or its own box, where nothing lets one scroll to it
CUT_OFF = """(() => {
    const scrolls = (one) => one && (/auto|scroll/.test(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
    const words = 'h1, h2, h3, p, li, dd, dt, td, th, summary, figcaption, button, label, .figures div, .saved';
    const seen = [...document.querySelectorAll(words)].filter((one) => one.checkVisibility()
        && one.getClientRects().length && !one.closest('.unseen, .skip') && !scrolls(one));
    const out = seen.filter((one) => one.getBoundingClientRect().right > innerWidth + 1
        || one.getBoundingClientRect().left < -1);
    const hidden = seen.filter((one) => getComputedStyle(one).overflowX === 'hidden'
        && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).textOverflow !== 'ellipsis');
    return [document.documentElement.scrollWidth - innerWidth, [...out, ...hidden].map((one) => one.textContent)];
})()"""
FIGURES = """[...document.querySelectorAll('.figures div')].map((one) => one.innerText.replaceAll('\\n', ' '))"""
ADVICE = """[...document.querySelectorAll('#findings li')].map((one) => ({
    level: one.querySelector('.level').textContent, title: one.querySelector('strong').textContent,
    saved: one.querySelector('.saved')?.textContent ?? '' }))"""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return dict(runs(tmp_path_factory.mktemp("kinds")))


@pytest.fixture(scope="module")
def pages(kinds: dict[str, Path]) -> dict[str, Path]:
    made = {kind: page_of_run(kinds[kind], "--names", "mangled") for kind in KINDS}
    sides = [f"before={kinds['gpu_data_bound']}", f"after={kinds['gpu_pageable']}"]
    made[COMPARISON] = kinds["gpu_ddp"].with_name("comparison.html")
    assert compare([*sides, "--html", str(made[COMPARISON])]) == 0
    return made


COMPARISON = "comparison"
BY_LOGS = ("outliers", "alike", "places")  # of many ranks a page reads the logs, and a command only with --logs


def evaluate(code: str) -> dict[str, Any]:
    return {"do": "evaluate", "code": code}


@pytest.mark.parametrize(("width", "height"), WINDOWS)
@pytest.mark.parametrize("kind", [*KINDS, COMPARISON])
def test_nothing_overlaps_and_nothing_is_cut_off(
    kind: str, width: int, height: int, chromium: Chromium, pages: dict[str, Path]
) -> None:
    """As the page opens, without resizing."""
    _, places, (beyond, cut) = chromium.ask(
        pages[kind], FILLED, evaluate(PLACES), evaluate(CUT_OFF), width=width, height=height
    ).answers
    check(places)
    assert beyond <= 0 and cut == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_is_the_command_s(
    kind: str, chromium: Chromium, kinds: dict[str, Path], pages: dict[str, Path]
) -> None:
    """Cell by cell, as `rankscope report --table` has it."""
    on_page = {table["name"]: table for table in chromium.ask(pages[kind], FILLED, evaluate(TABLES)).answers[1]}
    run = Run(kinds[kind])
    compared = 0
    for name, found in on_page.items():
        table = _of_the_command(run, name) if name not in BY_LOGS else None
        if table is None:
            continue
        compared += 1
        head, rows = as_shown(table)
        shared = [at for at, title in enumerate(head) if head.count(title) == 1 and title in found["head"]]
        assert shared, name
        for at in shared:
            column = found["head"].index(head[at])
            theirs = [row[column] for row in found["rows"]]
            assert theirs == [row[at] for row in rows][: len(theirs)] or set(theirs) <= {row[at] for row in rows}, name
    assert compared >= len(on_page) / 2


def _of_the_command(run: Run, name: str) -> Table | None:
    """None of what only pages have."""
    try:
        [table] = run.answers([name], Selection(), "mangled")
    except Wrong:
        return None
    return table if table.rows else None


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_screen_says_what_the_terminal_says(
    kind: str, chromium: Chromium, kinds: dict[str, Path], pages: dict[str, Path]
) -> None:
    """The same findings in the same order, and key figures that are numbers of the kept screen."""
    screen = Run(kinds[kind]).screen()
    _, advice, figures = chromium.ask(pages[kind], FILLED, evaluate(ADVICE), evaluate(FIGURES)).answers
    titles = [(row["level"], row["title"].replace("\u00a0", " ")) for row in advice]
    assert titles == [(finding.level, finding.title) for finding in screen.advice]
    assert figures or screen.bars is None
    if screen.bars is not None and screen.step_ns:
        mean = next(text for text in figures if text.startswith("Step "))
        shown = float(re.findall(r"[\d.]+", mean)[0]) * {"s": 1e9, "ms": 1e6, "µs": 1e3}[mean.split()[2].rstrip(",")]
        assert shown == pytest.approx(screen.step_ns, rel=0.01)
