"""The page of a history: the answer is on the first screen, and runs are drawn with the levels of their series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from browser.chromium import Chromium
from browser.pages import FILLED, UNFOLDED, text_of
from rankscope.cli.history import run as history
from rankscope.model.summaries import RunSummary
from rankscope.store.history import History

PICTURE = "#runs .picture"
CHANGED = """(() => { const told = [];
    const plot = document.querySelector('#runs canvas').getContext('2d');
    const { width, height } = plot.canvas, data = plot.getImageData(0, 0, width, height).data;
    for (let x = 0; x < width; x += 1) {
        let orange = 0;
        for (let y = 0; y < height; y += 1) {
            const at = 4 * (y * width + x);
            orange += data[at] > 190 && data[at + 1] > 70 && data[at + 1] < 120 && data[at + 2] < 40;
        }
        if (orange > height / 4) told.push(x / width);
    }
    return told; })()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two series of 40 runs; the first is slower from its 21st run on."""
    folder = tmp_path_factory.mktemp("history")
    noise = np.random.default_rng(1).lognormal(0, 0.01, (2, 40))
    summaries = [
        RunSummary(
            *(f"{name}-{at:02}", (at + 1) * 10**13, "/p", f"python {name}.py", "ab" * 20),
            ranks=2,
            hosts=["n<b>1"],
            host_own_ns=[1e8],
            step_ns=1e8 * noise[one, at] * (1.3 if one == 0 and at >= 20 else 1.0),
        )
        for one, name in enumerate(("slower", "steady"))
        for at in range(40)
    ]
    History(folder).add(summaries)
    made = folder / "page.html"
    assert history([str(folder), "--html", str(made)]) == 0
    return made


def test_the_first_screen_has_the_answer(chromium: Chromium, page: Path) -> None:
    verdict = {"do": "evaluate", "code": "document.querySelector('.verdict').textContent"}
    bottoms = {
        "do": "evaluate",
        "code": "['.figures', '.first figure', '#regressions li'].map((one) => "
        "document.querySelector(one).getBoundingClientRect().bottom)",
    }
    _, words, low = chromium.ask(page, FILLED, verdict, bottoms, width=1440, height=900).answers
    assert words.startswith("1 regression goes on; the largest: step of slower.py, 2 ranks +") and max(low) < 900


def test_runs_are_drawn_with_their_change(chromium: Chromium, page: Path) -> None:
    """The upright stands in the middle, where the level changes; the other series has none."""
    changed = {"do": "evaluate", "code": CHANGED}
    hover = {"do": "hover", "selector": f"{PICTURE} .u-over", "x": 0.99, "y": 0.5}
    choose = {"do": "select", "selector": f"{PICTURE} select", "value": "steady.py, 2 ranks"}
    caption = {"do": "evaluate", "code": "document.querySelector('#runs figcaption').textContent"}
    asked = chromium.ask(page, FILLED, changed, hover, choose, caption, changed, width=1440, height=900).answers
    _, before, told, _, words, after = asked
    assert before and all(0.45 < x < 0.65 for x in before) and after == []
    assert told.splitlines()[0] == "slower-39" and "n<b>1" in told and "ababababab" in told
    assert words == "Step of steady.py, 2 ranks over 40 runs"


def test_tables_have_the_numbers(chromium: Chromium, page: Path) -> None:
    rows = {"do": "evaluate", "code": text_of("regressions")}
    _, _, (row,) = chromium.ask(page, FILLED, UNFOLDED, rows).answers
    assert row["run"] == "slower-20" and row["commit"] == "ababababab"


def test_it_is_read_on_a_phone_too(chromium: Chromium, page: Path) -> None:
    wide = {"do": "evaluate", "code": "[document.documentElement.scrollWidth, innerWidth]"}
    _, (used, there) = chromium.ask(page, FILLED, wide, width=390, height=844).answers
    assert used <= there
