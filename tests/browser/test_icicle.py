"""Imports as boxes in boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from browser.chromium import Chromium
from browser.pages import FILLED
from rankscope.output.html import to_html
from rankscope.questions.page import PageOptions, page_of
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs.small_run import MILLI, mpi_rank, write_run


def box(name: str, own_ms: float, own_calls: int, *children: dict[str, Any]) -> dict[str, Any]:
    """A module with its own time and calls; the inclusive ones are added up."""
    return {
        "name": name,
        "self_wall_ns": own_ms * MILLI,
        "wall_ns": own_ms * MILLI + sum(child["wall_ns"] for child in children),
        "self_calls": own_calls,
        "calls": own_calls + sum(child["calls"] for child in children),
        "children": list(children),
    }


def deep(depth: int) -> dict[str, Any]:
    return box(f"deep{depth}", 1, 3, *([deep(depth - 1)] if depth else []))


TREE = box(
    "all processes",
    0,
    0,
    box(
        "python train.py",
        *(50, 100),
        box("torch", 400, 1000, box("torch._C", 150, 20), box("torch.nn", 100, 400), deep(12)),
        box("numpy", 187, 4000, *(box(f"numpy.part{at}", 1, 5) for at in range(50))),
    ),
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("icicle")
    run = open_run(write_run(folder / "run", mpi_rank(0, 1)), read_rank_file)
    page = folder / "icicle.html"
    page.write_text(to_html(page_of(run, "imports", PageOptions(imports=TREE))), encoding="utf-8")
    return page


def test_boxes_tell_zoom_and_change_their_measure(chromium: Chromium, page: Path) -> None:
    canvas = "#imports canvas"
    path = {"do": "evaluate", "code": "document.querySelector('#imports .path').textContent"}
    second, third = 1.5, 2.5  # rows of boxes from the top
    height = {"do": "evaluate", "code": f"document.querySelector('{canvas}').clientHeight / 20"}
    rows = chromium.ask(page, FILLED, height).answers[1]
    assert rows == 16  # all, the process, torch, and 13 in each other

    def point(x: float, row: float) -> dict[str, Any]:
        return {"do": "hover", "selector": canvas, "x": x, "y": row / rows}

    click = {
        "do": "evaluate",
        "code": f"document.querySelector('{canvas}').dispatchEvent(new MouseEvent('click', where))",
    }
    where = f"window.where = (({{left, width, top}}) => ({{clientX: left + 0.1 * width, clientY: top + {third} * 20}}))"
    remember = {"do": "evaluate", "code": f"({where}(document.querySelector('{canvas}').getBoundingClientRect())), 0"}
    by_calls = {"do": "select", "selector": "#imports select", "value": "1"}
    steps = [FILLED, point(0.1, second), point(0.1, third), by_calls, point(0.1, third), remember, click, path]
    _, process, torch, _, numpy, _, _, crumbs = chromium.ask(page, *steps).answers
    assert process.split("\n")[:3] == ["python train.py", "Time", "950 ms"]
    assert torch.split("\n")[:5] == ["torch", "Time", "663 ms", "Self time", "400 ms"]
    assert numpy.split("\n")[0] == "numpy"
    assert crumbs == "all › python train.py › numpy"
