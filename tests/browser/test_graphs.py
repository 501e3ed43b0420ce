"""Graphs of growth in a real browser: nothing over anything else, readable in the dark, and nothing asked for."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import pytest

from browser.chromium import Chromium
from rankscope.output.html import to_html
from rankscope.questions.scaling.growth import Series, growth
from rankscope.questions.scaling.page import Scaling, growth_page
from rankscope.questions.scaling.scaling import graphs, laws
from studies.studying import study, write_toml

BOXES = """[...document.querySelectorAll('svg')].filter((svg) => svg.checkVisibility()).map((svg) => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].map((text) => {
        const box = text.getBoundingClientRect();
        return [text.textContent, box.left - frame.left, box.top - frame.top, box.right - frame.left,
            box.bottom - frame.top, frame.width, frame.height];
    });
})"""
COLOURS = """[getComputedStyle(document.querySelector('svg text')).fill === getComputedStyle(document.body).color,
    matchMedia('(prefers-color-scheme: dark)').matches]"""


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """Six places from 1 to 512 nodes, one of them with a name that is far too long, and one quantity of rates."""
    scales = [2.0**power for power in range(10)]
    made = [
        Series(
            f"place {n} " + "x" * 60 * (n == 3), "import", "ns", "nodes", tuple((s, 1e7 * n * s**0.9) for s in scales)
        )
        for n in range(1, 7)
    ]
    made.append(Series("bus", "bandwidth", "bytes/s", "ranks", ((1, 1.1e9), (2, 1.2e9), (4, 1.3e9), (8, 1.4e9))))
    grown = [growth(one) for one in made]
    path = tmp_path / "growth.html"
    found = Scaling("growth", [], grown, [laws(grown)], {"scale_laws": graphs(grown, [1024])}, [1024])
    path.write_text(to_html(growth_page(found)), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1440, 1100, 600, 390])
def test_no_text_lies_over_another_or_outside(chromium: Chromium, drawn: Path, width: int) -> None:
    pictures = chromium.ask(drawn, {"do": "evaluate", "code": BOXES}, width=width).answers[0]
    assert [len(texts) > 8 for texts in pictures] == [True, True]
    for texts in pictures:
        for text, left, top, right, bottom, wide, tall in texts:
            assert left >= -1 and top >= -1 and right <= wide + 1 and bottom <= tall + 1, text
        for one, other in combinations(texts, 2):
            apart = one[3] <= other[1] + 1 or other[3] <= one[1] + 1 or one[4] <= other[2] + 1 or other[4] <= one[2] + 1
            assert apart, (one[0], other[0])


def test_text_is_light_in_the_dark(chromium: Chromium, drawn: Path) -> None:
    same, dark = chromium.ask(drawn, {"do": "evaluate", "code": COLOURS}, dark=True).answers[0]
    assert dark and same


@pytest.fixture(scope="module")
def study_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a study that was run, with three sizes: twice the ranks take twice as long, on a busy machine, too."""
    folder = tmp_path_factory.mktemp("study")
    command = [sys.executable, "-c", "import time; time.sleep(0.3 * {ranks})"]
    own = write_toml(folder / "pauses.toml", command, {"ranks": [1, 2, 4]}, {"launcher": "local"})
    assert study(own, "--out", folder / "out").returncode == 0
    return folder / "out" / "pauses.html"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_a_study_begins_with_its_answer(
    chromium: Chromium, study_page: Path, width: int, height: int, dark: bool
) -> None:
    """The verdict, the key figures and, where there is room, the graph of what the verdict speaks of."""
    code = """(() => {
        const box = (one) => document.querySelector(one).getBoundingClientRect();
        return {
            verdict: document.querySelector('.verdict').textContent,
            caption: document.querySelector('.first figcaption').textContent,
            bottoms: ['.verdict', '.figures', '#grows li summary'].map((one) => box(one).bottom),
            graph: box('.first figure').bottom,
            wide: document.documentElement.scrollWidth,
        };
    })()"""
    found = chromium.ask(study_page, {"do": "evaluate", "code": code}, width=width, height=height, dark=dark).answers[0]
    assert max(found["bottoms"]) < height and found["wide"] <= width
    assert found["graph"] < height or width < 500
    what = found["verdict"].partition(" of ")[0]
    assert "adds the most time" in found["verdict"] and found["caption"].lower().startswith(f"{what.lower()}: ")
