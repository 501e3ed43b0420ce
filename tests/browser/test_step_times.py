"""Step time over steps: its numbers, and what a brush over it does to the rest of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.chromium import Chromium
from browser.pages import FILLED, page_of_run, text_of
from rankscope.model.tables import Unit
from rankscope.output.cells import shown
from rankscope.questions.page.section import PageOptions
from rankscope.questions.page.step_times import step_times
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs import long_runs
from runs.small_run import write_run

SLOW = 5  # the rank that is slow in its forward pass
CHOSEN = {"do": "evaluate", "code": "document.querySelector('#step_times .count').textContent"}
BARS = {"do": "hover", "selector": "#steps .u-over", "x": 0.3, "y": (SLOW + 0.5) / 24}
BRUSH = {"do": "drag", "selector": "#step_times .u-over", "from": 0.3, "to": 0.6}


def told(hover: str) -> dict[str, str]:
    lines = hover.split("\n")
    return dict(zip(lines[1::2], lines[2::2], strict=True))


def test_the_table_is_an_independent_sum(runs: dict[str, Path]) -> None:
    """Of every step the shortest, the median and the longest over all ranks, as SQL has them."""
    store = open_run(runs["mpi"], read_rank_file)
    table = step_times(store, PageOptions())
    first = table.rows[0][0]
    sql = """SELECT number, number, count(*), min(end_ns - begin_ns), median(end_ns - begin_ns), max(end_ns - begin_ns)
        FROM steps WHERE number >= ? GROUP BY number ORDER BY number"""
    assert [row[:6] for row in table.rows] == store.query(sql, (first,))
    assert all(later[7] >= before[8] - 1 for before, later in zip(table.rows, table.rows[1:], strict=False))


def test_many_steps_are_thinned(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours share a row, and nothing of the range is lost."""
    store = open_run(runs["mpi"], read_rank_file)
    whole = step_times(store, PageOptions())
    monkeypatch.setattr("rankscope.questions.page.step_times.MOST_ROWS", 7)
    few = step_times(store, PageOptions())
    assert 2 <= len(few.rows) <= 7
    assert sum(int(str(row[2])) for row in few.rows) == sum(int(str(row[2])) for row in whole.rows)
    for at, choose in ((3, np.min), (5, np.max)):
        assert choose([row[at] for row in few.rows]) == choose([row[at] for row in whole.rows])  # type: ignore[operator]


def test_a_brush_chooses_steps_for_the_page(chromium: Chromium, runs: dict[str, Path], page: Path) -> None:
    """The bars then show the mean of these steps, and of all again when the choice is undone."""
    clear = {"do": "click", "selector": "#step_times .controls button"}
    steps: list[dict[str, Any]] = [FILLED, BARS, BRUSH, CHOSEN, BARS, clear, BARS]
    _, before, _, chosen, some, _, after = chromium.ask(page, *steps).answers
    first, last = map(int, re.findall(r"\d+", chosen))
    assert 1 < first < last < 40
    sql = """SELECT avg(forward_ns - blocked_forward_ns), avg(exposed_ns) FROM steps JOIN ranks USING (process)
        WHERE rank = ? AND number BETWEEN ? AND ?"""
    forward, exposed = open_run(runs["mpi"], read_rank_file).query(sql, (SLOW, first, last))[0]
    assert told(some)["Forward"] == shown(forward, Unit.NS)
    assert told(some)["Exposed comm."] == shown(exposed, Unit.NS)
    assert after == before != some


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 steps, of which the ranks' files have the last 8,192; rank 3 was slow from step 4,000 to 8,000."""
    return write_run(tmp_path_factory.mktemp("long") / "run", *long_runs.ranks_of(20_000, {3: (4_000, 8_000, 5.0)}))


def test_a_long_job_shows_its_whole_life_first(chromium: Chromium, long_run: Path) -> None:
    """And below it single steps, as far as these are known; steps are chosen there only."""
    section = {"do": "evaluate", "code": "document.querySelector('#step_times').innerText"}
    whole = {"do": "hover", "selector": "#step_times .u-over", "x": 0.3, "y": 0.5}
    answers = chromium.ask(page_of_run(long_run), FILLED, section, whole, BRUSH, section).answers
    assert "All 19,9" in answers[1] and "Half of the last 8,192 steps take 11" in answers[1]
    assert answers[1].count("Drag over the curve") == 1 and "middle half of the steps" in answers[1]
    stretch = answers[2].split("\n")[0]
    first, last = map(int, re.findall(r"\d+", stretch))
    assert 4_000 < first < last < 8_000
    assert told(answers[2])["Longest own time on rank"] == "3"
    assert float(told(answers[2])["Median"].split()[0]) == pytest.approx(16, abs=0.5)
    assert answers[4] == answers[1]  # dragging over the whole job chooses nothing


def test_keys_choose_steps_too(chromium: Chromium, page: Path) -> None:
    focus = {"do": "evaluate", "code": "document.querySelector('#step_times .canvas').focus()"}
    right = {"do": "key", "key": "ArrowRight"}
    shift = {
        "do": "evaluate",
        "code": """document.activeElement.dispatchEvent(
        new KeyboardEvent('keydown', { key: 'ArrowRight', shiftKey: true }))""",
    }
    spoken = {"do": "evaluate", "code": "document.getElementById('told').textContent"}
    escape = {"do": "key", "key": "Escape"}
    rows = {"do": "evaluate", "code": text_of("step_times")}
    answers = chromium.ask(page, FILLED, rows, focus, right, spoken, shift, CHOSEN, escape, CHOSEN).answers
    first, second = answers[1][:2]
    assert answers[4].startswith(f"Step {first['first_step']}, Median {first['median_ns']}")
    assert answers[6] == f"Steps {first['first_step']} to {second['first_step']}"
    assert answers[8].startswith("Drag over the curve")
