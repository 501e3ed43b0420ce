"""The timeline in a real browser: what pointing tells, moving by pointer, wheel and keys, search, and the brush."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from browser.chromium import Chromium
from browser.pages import FILLED
from rankscope.model.tables import Unit
from rankscope.output.cells import shown
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run

CANVAS = "#timeline canvas"
READY = {"do": "wait", "code": "document.querySelector('#timeline .picture').dataset.unpacked === 'yes'"}
VIEW = {
    "do": "evaluate",
    "code": f"""(() => {{
    const {{ view, place }} = document.querySelector('{CANVAS}').dataset;
    const box = document.querySelector('{CANVAS}').getBoundingClientRect();
    return [...view.split(' ').map(Number), ...place.split(' ').map(Number), box.width, box.height];
}})()""",
}
SPOKEN = {"do": "evaluate", "code": "document.getElementById('told').textContent"}
FRAME = {"do": "evaluate", "code": "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"}
WHOLE = {"do": "click", "selector": "#timeline .view:last-of-type"}


def key(name: str) -> dict[str, Any]:
    return {"do": "key", "key": name}


def test_pointing_tells_name_and_duration(chromium: Chromium, runs: dict[str, Path], page: Path) -> None:
    """Of a collective of rank 0, at the moment that the log has for it."""
    view = chromium.ask(page, FILLED, READY, VIEW).answers[2]
    store = open_run(runs["mpi"], read_rank_file)
    begin = store.query("SELECT min(started_ns) FROM ranks")[0][0]
    sql = """SELECT name, start_ns - ?, end_ns - ? FROM events JOIN ranks USING (process)
        WHERE rank = 0 AND (start_ns + end_ns) / 2 - ? BETWEEN ? AND ? ORDER BY start_ns"""
    name, start, end = store.query(sql, (begin, begin, begin, view[0], view[1]))[0]
    x = (view[2] + view[3] * ((start + end) / 2 - view[0]) / (view[1] - view[0])) / view[4]
    steps = [{"do": "hover", "selector": CANVAS, "x": x, "y": at / view[5]} for at in range(5, 60, 2)]
    told = [one for one in chromium.ask(page, FILLED, READY, *steps).answers[2:] if one and name in one]
    assert told and told[0].split("\n")[:3] == [name, "Duration", shown(end - start, Unit.NS)]


def test_moving_and_zooming(chromium: Chromium, page: Path) -> None:
    """By dragging, the wheel and keys; the page says where one is."""
    drag = {"do": "drag", "selector": CANVAS, "from": 0.4, "to": 0.6}
    wheel = {"do": "wheel", "selector": CANVAS, "turn": 100}
    steps = [FILLED, READY, WHOLE, VIEW, drag, FRAME, VIEW, wheel, VIEW, key("+"), VIEW, key("ArrowRight"), VIEW]
    answers = chromium.ask(page, *steps, key("Home"), FRAME, VIEW, SPOKEN).answers
    whole, dragged, wheeled, nearer, moved, home = (answers[at][:2] for at in (3, 6, 8, 10, 12, 15))
    wide = [to - begin for begin, to in (whole, dragged, wheeled, nearer, moved, home)]
    assert 0.15 < wide[1] / wide[0] < 0.3  # the labels are a part of the canvas
    assert abs(wide[2] / wide[1] - 1.25) < 0.01
    assert abs(wide[3] / wide[2] - 0.5) < 0.01
    assert abs(wide[4] - wide[3]) <= 2 and abs((moved[0] - nearer[0]) / wide[3] - 0.2) < 0.01
    assert abs(wide[5] / wide[0] - 1) < 0.05
    assert answers[-1].startswith("From ")


def test_the_page_scrolls_past_it(chromium: Chromium, page: Path) -> None:
    wheel = {"do": "wheel", "selector": CANVAS, "turn": 100}
    _, _, before, _, after = chromium.ask(page, FILLED, READY, VIEW, wheel, VIEW).answers
    assert before[:2] == after[:2]


def test_search_finds_by_name(chromium: Chromium, page: Path) -> None:
    field = "#timeline input"
    count = {"do": "evaluate", "code": "document.querySelector('#timeline .count').textContent"}
    search = {"do": "type", "selector": field, "text": "allred"}
    steps = [FILLED, READY, search, count, key("Enter"), SPOKEN, {"do": "type", "selector": field, "text": "x"}, count]
    _, _, _, found, _, spoken, _, nothing = chromium.ask(page, *steps).answers
    assert found.split()[0] == str(24 * 40)  # one a step and rank
    assert spoken.startswith("MPI_Allreduce at ")
    assert nothing == "No such name"


def test_keys_walk_along_a_line(chromium: Chromium, page: Path) -> None:
    focus = {"do": "evaluate", "code": f"document.querySelector('{CANVAS}').focus()"}
    answers = chromium.ask(page, FILLED, READY, focus, key("ArrowDown"), SPOKEN, key("ArrowDown"), SPOKEN).answers
    first, second = answers[4], answers[6]
    assert first.startswith("step ") and "Duration 100 ms" in first
    assert int(second.split()[1].strip(",")) == int(first.split()[1].strip(",")) + 1


def test_it_follows_the_brush(chromium: Chromium, page: Path) -> None:
    brush = {"do": "drag", "selector": "#step_times .u-over", "from": 0.3, "to": 0.6}
    rows = {
        "do": "evaluate",
        "code": "[...document.querySelectorAll('#step_times .count')][0].textContent.match(/\\d+/g).map(Number)",
    }
    _, _, _, (first, last), _, view = chromium.ask(page, FILLED, READY, brush, rows, FRAME, VIEW).answers
    assert abs((view[1] - view[0]) / 1e8 - (last - first + 1)) < 0.1  # every step takes 100 ms
