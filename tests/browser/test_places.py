"""Every chart of a page lies in its own place from the start: over no neighbour, and nothing of it is cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from browser.chromium import Chromium
from browser.pages import FILLED, page_of_run

WINDOWS = [(1440, 900), (390, 844)]
# what was drawn, what stands around it, and the place that it has to stay in
PLACES = """(() => {
    const box = (one) => {
        const { left, top, right, bottom } = one.getBoundingClientRect();
        return [left, top + scrollY, right, bottom + scrollY];
    };
    const drawn = [...document.querySelectorAll('.picture :is(.u-wrap, canvas, .toplist)')]
        .filter((one) => !one.parentElement.closest('.u-wrap'));
    const words = [...document.querySelectorAll('h1, h2, h3, figcaption, p, .controls, .rows, nav')];
    const seen = (one) => one.checkVisibility() && one.getClientRects().length
        && !one.closest('.unseen, .skip') && getComputedStyle(one.closest('nav') ?? one).position !== 'sticky';
    const described = (one) => ({
        name: `${one.closest('section')?.id ?? ''} ${one.className || one.tagName} ${one.textContent.slice(0, 30)}`,
        box: box(one), place: box(one.parentElement), frame: box(one.closest('.small, .picture') ?? one),
    });
    return { drawn: drawn.filter(seen).map(described), words: words.filter(seen).map(described), width: innerWidth };
})()"""


def apart(one: list[float], other: list[float]) -> bool:
    return one[2] <= other[0] + 1 or other[2] <= one[0] + 1 or one[3] <= other[1] + 1 or other[3] <= one[1] + 1


def within(one: list[float], other: list[float]) -> bool:
    return all(inner >= outer - 1 for inner, outer in zip(one[:2], other[:2], strict=True)) and all(
        inner <= outer + 1 for inner, outer in zip(one[2:], other[2:], strict=True)
    )


def check(places: dict[str, Any]) -> None:
    drawn = places["drawn"]
    for at, one in enumerate(drawn):
        assert within(one["box"], one["place"]), ("out of its place", one)
        assert within(one["box"], one["frame"]), ("out of its frame", one)
        assert one["box"][0] >= 0 and one["box"][2] <= places["width"] + 1, ("cut off", one)
        for other in [*drawn[at + 1 :], *places["words"]]:
            assert apart(one["box"], other["box"]), (one, other)


@pytest.mark.parametrize(("width", "height"), WINDOWS)
@pytest.mark.parametrize("kind", ["mpi", "gpu"])
def test_no_chart_lies_over_a_neighbour(
    chromium: Chromium, runs: dict[str, Path], kind: str, width: int, height: int
) -> None:
    """As the page opens: the window is never resized."""
    page = page_of_run(runs[kind])
    places = chromium.ask(page, FILLED, {"do": "evaluate", "code": PLACES}, width=width, height=height).answers[1]
    assert len(places["drawn"]) > 8
    check(places)
