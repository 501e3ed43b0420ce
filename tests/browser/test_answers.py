"""Pages about several runs: the answer is on the first screen, and what is drawn is what the tables say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.chromium import Chromium
from browser.pages import FILLED, UNFOLDED, text_of
from rankscope.cli.compare import run as compare
from rankscope.output.html import to_html
from rankscope.questions.scaling.growth import Series, growth
from rankscope.questions.scaling.page import Scaling, growth_page
from rankscope.questions.scaling.scaling import graphs, laws, projection
from rankscope.rank_file import Part
from runs.small_run import mpi_rank, write_run
from runs.step_runs import steps

BOTTOMS = """['.verdict', '.figures', '.first figure', '#POINTS li:first-child'].map((one) =>
    document.querySelector(one).getBoundingClientRect().bottom)"""
MARKS = """[...document.querySelectorAll('.intervals li')].map((one) => {
    const left = (what) => one.querySelector(what)?.getBoundingClientRect().left;
    return { name: one.querySelector('.words').textContent, told: one.querySelector('b').textContent,
        right: left('.mark') > left('.zero') };
})"""
CUT_OFF = """[document.documentElement.scrollWidth, innerWidth,
    [...document.querySelectorAll('main p, main h2, main li, main dd')].filter((one) => one.checkVisibility()
        && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.textContent)]"""


def evaluate(code: str) -> dict[str, Any]:
    return {"do": "evaluate", "code": code}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs of each side; forward takes 22 instead of 20 ms, and backward 27 instead of 30."""
    folder = tmp_path_factory.mktemp("compared")
    for at, (name, forward, backward) in enumerate([("old", 20.0, 30.0), ("new", 22.0, 27.0)] * 4):
        noise = np.random.default_rng(at).lognormal(0, 0.005, (40, 2))
        writer = mpi_rank(0, 1)
        writer.steps(steps([{Part.FORWARD: forward * f, Part.BACKWARD: backward * b} for f, b in noise]))
        write_run(folder / f"{name}-{at}", writer, expected_ranks=1)
    page = folder / "page.html"
    assert compare([f"{folder}/old-*", f"{folder}/new-*", "--html", str(page)]) == 0
    return page


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("grown") / "page.html"
    scales = (1.0, 2.0, 4.0, 8.0, 16.0)
    found = [
        growth(Series(f"place {n}", "import", "ns", "ranks", tuple((s, 1e9 * (n + s)) for s in scales))) for n in (1, 9)
    ]
    tables = [laws(found), projection(found, [32])]
    page.write_text(to_html(growth_page(Scaling("x", [], found, tables, {"scale_laws": graphs(found, [32])}, [32]))))
    return page


def test_a_comparison_answers_on_the_first_screen(chromium: Chromium, compared: Path) -> None:
    verdict = evaluate("document.querySelector('.verdict').textContent")
    bottoms = evaluate(BOTTOMS.replace("POINTS", "changed"))
    levels = evaluate(
        "[...document.querySelectorAll('#changed li')].map((one) => one.querySelector('summary').innerText)"
    )
    _, words, low, points = chromium.ask(compared, FILLED, verdict, bottoms, levels, width=1440, height=900).answers
    assert words.startswith("new is faster than old. A step takes 2.") and max(low) < 900
    assert points[0].startswith("FASTER backward of a step -10.") or points[0].startswith(
        "FASTER backward of a step -9."
    )
    assert any(point.startswith("SLOWER forward of a step +") for point in points)


def test_changes_are_drawn_as_the_table_has_them(chromium: Chromium, compared: Path) -> None:
    """Slower is to the right of nothing; the numbers are the table's."""
    _, _, marks, rows = chromium.ask(compared, FILLED, UNFOLDED, evaluate(MARKS), evaluate(text_of("changes"))).answers
    assert [mark["name"] for mark in marks] == [row["metric"] for row in rows]
    for mark, row in zip(marks, rows, strict=True):
        assert mark["told"].removeprefix("+").partition(" (")[0] == row["change"]
        assert mark["right"] == (not row["change"].startswith("-")) or float(row["change"].split()[0]) < 1


def test_bars_of_the_sides_add_up(chromium: Chromium, compared: Path) -> None:
    rows = chromium.ask(compared, FILLED, UNFOLDED, evaluate(text_of("step_sides"))).answers[2]
    assert [row["side"] for row in rows] == ["old", "new"]
    for row in rows:
        parts = [
            float(value.split()[0]) for name, value in row.items() if name not in ("side", "step_ns") and value != "0 s"
        ]
        assert sum(parts) == pytest.approx(float(row["step_ns"].split()[0]), abs=0.2)


def test_growth_answers_on_the_first_screen(chromium: Chromium, grown: Path) -> None:
    words, low = chromium.ask(
        *(
            grown,
            evaluate("document.querySelector('.verdict').textContent"),
            evaluate(BOTTOMS.replace("POINTS", "grows")),
        ),
        width=1440,
        height=900,
    ).answers
    assert words == "Import of place 1 adds the most time: from 2 s at 1 to 17 s at 16 ranks, 8.5 times as long."
    assert max(low) < 900


@pytest.mark.parametrize("which", ["compared", "grown"])
def test_nothing_is_cut_off_on_a_telephone(chromium: Chromium, which: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(which)
    wide, window, cut = chromium.ask(page, FILLED, evaluate(CUT_OFF), width=390, height=844, dark=True).answers[1]
    assert wide <= window and cut == []
