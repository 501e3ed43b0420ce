"""A page for everybody: by keyboard, by screen reader, and without text over text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import Chromium
from browser.pages import FILLED, page_of_run


def evaluate(code: str) -> dict[str, Any]:
    return {"do": "evaluate", "code": code}


def nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield tree
    for child in tree.get("children", ()):
        yield from nodes(child)


def test_what_a_screen_reader_is_told(chromium: Chromium, page: Path) -> None:
    told = chromium.ask(page, FILLED, {"do": "tree"}).answers[1]
    found = list(nodes(told))
    named = [(one["role"], one.get("name", "")) for one in found]
    headings = [(one["level"], one["name"]) for one in found if one["role"] == "heading"]
    assert headings[0] == (1, "train.py")
    assert all(after <= before + 1 for (before, _), (after, _) in pairwise(headings))
    assert (2, "Who waits for whom?") in headings
    for role in ("button", "link", "searchbox", "combobox", "image", "img", "region"):
        assert all(name.strip() for kind, name in named if kind == role), role
    pictures = [name for kind, name in named if kind in ("image", "img")]
    assert len(pictures) >= 8
    assert all("the table below has the numbers" in name.lower() for name in pictures)


def test_tables_have_captions_and_heads(chromium: Chromium, page: Path) -> None:
    code = """[...document.querySelectorAll('.rows table')].map((table) => [table.caption?.textContent ?? '',
        table.querySelectorAll('thead th[scope=col]').length, table.querySelectorAll('tbody th[scope=row]').length,
        table.tBodies[0].rows.length])"""
    found = chromium.ask(page, FILLED, evaluate(code)).answers[1]
    assert len(found) > 15
    assert all(caption and columns and named == rows for caption, columns, named, rows in found)


def test_keyboard_order(chromium: Chromium, page: Path) -> None:
    """The first key jumps past the contents; nothing forces another order than that of the page."""
    where = evaluate("document.activeElement.textContent")
    forced = evaluate("[...document.querySelectorAll('[tabindex]')].filter((one) => one.tabIndex > 0).length")
    tab = {"do": "key", "key": "Tab"}
    enter = {"do": "key", "key": "Enter"}
    main = evaluate("document.activeElement.id")
    _, first, _, at, count = chromium.ask(page, tab, where, enter, main, forced).answers
    assert (first, at, count) == ("Skip to the answer", "main", 0)


# notes the box of every text that is drawn, until its canvas is cleared
SPY = """
    const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const size = this.measureText(text), form = this.getTransform();
        const left = { left: 0, start: 0, center: size.width / 2, right: size.width, end: size.width }[this.textAlign];
        const corner = (a, b) => form.transformPoint(new DOMPoint(a, b));
        const one = corner(x - left, y - size.actualBoundingBoxAscent);
        const other = corner(x - left + size.width, y + size.actualBoundingBoxDescent);
        const from = [Math.min(one.x, other.x), Math.min(one.y, other.y)];
        const to = [Math.max(one.x, other.x), Math.max(one.y, other.y)];
        (this.canvas.texts ??= []).push([text, ...from, ...to]);
        draw.call(this, text, x, y);
    };
    const clear = CanvasRenderingContext2D.prototype.clearRect;
    CanvasRenderingContext2D.prototype.clearRect = function (...box) {
        this.canvas.texts = [];
        clear.apply(this, box);
    };
    const width = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, 'width');
    Object.defineProperty(HTMLCanvasElement.prototype, 'width', {
        get: width.get, set(value) { this.texts = []; width.set.call(this, value); },
    });"""
TEXTS = """[...document.querySelectorAll('.picture canvas')].map((canvas) => ({
    section: canvas.closest('section').id, size: [canvas.width, canvas.height], texts: canvas.texts ?? [] }))"""


@pytest.mark.parametrize("width", [1200, 600, 390])
@pytest.mark.parametrize("kind", ["mpi", "gpu"])
def test_no_text_lies_over_another(chromium: Chromium, runs: dict[str, Path], kind: str, width: int) -> None:
    """Nor outside of its picture."""
    page = page_of_run(runs[kind])
    pictures = chromium.ask(page, FILLED, evaluate(TEXTS), before=SPY, width=width).answers[1]
    assert sum(len(one["texts"]) for one in pictures) > 60
    for one in pictures:
        assert overlapping(one["texts"]) == [], one["section"]
        wide, tall = one["size"]
        outside = [
            text
            for text, left, top, right, low in one["texts"]
            if min(left, top) < -1 or right > wide + 1 or low > tall + 1
        ]
        assert outside == [], one["section"]


def overlapping(texts: list[Any]) -> list[tuple[str, str]]:
    found = []
    for at, (text, left, top, right, low) in enumerate(texts):
        for other, left2, top2, right2, low2 in texts[at + 1 :]:
            if left < right2 - 1 and left2 < right - 1 and top < low2 - 1 and top2 < low - 1:
                found.append((text, other))
    return found
