"""What a reader does with a page: sort, filter, point, move by keys, change colours, print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from browser.chromium import Chromium
from browser.pages import FILLED, UNFOLDED, text_of

SLOW = 5  # the rank that is slow in its forward pass
NAV = "getComputedStyle(document.querySelector('nav')).display"
PAPER = "getComputedStyle(document.body).backgroundColor"


def evaluate(code: str) -> dict[str, Any]:
    return {"do": "evaluate", "code": code}


def click(selector: str) -> dict[str, Any]:
    return {"do": "click", "selector": selector}


def test_quiet(chromium: Chromium, page: Path) -> None:
    """No error, no warning, no request; the times are for the reader of the log."""
    told = chromium.ask(page, {"do": "scroll"}, FILLED, {"do": "scroll"})
    print(f"first paint after {told.paint_ms:.0f} ms, frames {told.answers[0]}, again {told.answers[2]}")


def test_sort_and_filter(chromium: Chromium, page: Path) -> None:
    head = "#table-step_parts button[title^=forward_ns]"
    how = evaluate(f"document.querySelector('{head}').parentElement.getAttribute('aria-sort')")
    rows = evaluate(text_of("step_parts"))
    count = evaluate("document.querySelector('#table-step_parts .count').textContent")
    search = {"do": "type", "selector": "#table-step_parts input", "text": "node0001 100"}
    steps = [FILLED, UNFOLDED, rows, click(head), rows, how, click(head), rows, how, search, rows, count]
    _, _, first, _, down, falling, _, up, rising, _, found, told = chromium.ask(page, *steps).answers
    assert [row["rank"] for row in first[:3]] == ["0", "1", "2"]
    assert (down[0]["rank"], falling) == (str(SLOW), "descending")
    assert rising == "ascending"
    assert str(SLOW) not in [row["rank"] for row in up]
    assert {row["host"] for row in found} == {"node0001"}
    assert told == "8 of 24 rows"


def test_a_head_tells_the_formula(chromium: Chromium, page: Path) -> None:
    head = "#table-step_parts button[title^=exposed_share]"
    _, told = chromium.ask(page, FILLED, evaluate(f"document.querySelector('{head}').title")).answers
    assert told == "exposed_share: `exposed_ns` ÷ `step_ns`"


def test_top_list_follows_the_search(chromium: Chromium, page: Path) -> None:
    listed = evaluate("[...document.querySelectorAll('.toplist .words')].map((one) => one.textContent)")
    search = {"do": "type", "selector": "#table-gpu input", "text": "kernel_1"}
    _, _, first, _, found = chromium.ask(page, FILLED, UNFOLDED, listed, search, listed).answers
    assert len(first) == 12
    assert sorted(found) == ["kernel_1", "kernel_10", "kernel_11"]


def test_pointing_tells_the_numbers_of_the_table(chromium: Chromium, page: Path) -> None:
    at = (SLOW + 0.5) / 24
    steps = [
        FILLED,
        evaluate(text_of("step_parts")),
        {"do": "hover", "selector": "#steps .u-over", "x": 0.4, "y": at},
        {"do": "hover", "selector": "#waiting .heat canvas", "x": 0.5, "y": 0.2},
    ]
    _, rows, bar, cell = chromium.ask(page, *steps).answers
    row = next(row for row in rows if row["rank"] == str(SLOW))
    lines = bar.split("\n")
    assert lines[0] == f"rank {SLOW}"
    told = dict(zip(lines[1::2], lines[2::2], strict=True))
    assert told["Forward"] == row["forward_ns"]
    assert told["Sum"] == "100 ms"
    assert cell.startswith("rank ")
    assert "waits for rank" in cell


def test_bars_in_another_order(chromium: Chromium, page: Path) -> None:
    """By waiting: the slow rank, which waits least, comes last."""
    choose = {"do": "select", "selector": "#steps .picture select", "value": "exposed_wait_ns"}
    last = {"do": "hover", "selector": "#steps .u-over", "x": 0.4, "y": 23.5 / 24}
    _, before, _, after = chromium.ask(page, FILLED, last, choose, last).answers
    assert before.startswith("rank 23")
    assert after.startswith(f"rank {SLOW}")


def test_keys_move_through_a_picture_and_tell_it(chromium: Chromium, page: Path) -> None:
    spoken = evaluate("document.getElementById('told').textContent")
    down = {"do": "key", "key": "ArrowDown"}
    bars = evaluate("document.querySelector('#steps .canvas').focus()")
    heat = evaluate("document.querySelector('#waiting .heat canvas').focus()")
    right = {"do": "key", "key": "ArrowRight"}
    answers = chromium.ask(page, FILLED, bars, down, down, spoken, heat, right, right, spoken).answers
    assert answers[4].startswith("rank 1, Forward 30")
    assert answers[8].startswith("rank 0, waits for rank 1 ")


def test_dark_and_light(chromium: Chromium, page: Path) -> None:
    """As the system says, by the switch, and in time as the system changes; text stands out in both."""
    theme = evaluate("document.documentElement.dataset.theme")
    contrast = evaluate(CONTRAST)
    steps = [theme, contrast, click("#theme"), theme, evaluate(PAPER), contrast]
    answers = chromium.ask(page, *steps, dark=True).answers
    assert (answers[0], answers[3], answers[4]) == ("dark", "light", "rgb(255, 255, 255)")
    assert min(answers[1] + answers[5]) >= 4.5
    follows = {"do": "wait", "code": "document.documentElement.dataset.theme === 'dark'"}
    assert chromium.ask(page, theme, {"do": "scheme", "value": "dark"}, follows).answers[::2] == ["light", True]


# of every colour of text against the paper, by the formula of WCAG
CONTRAST = """(() => {
    const light = (colour) => {
        const [r, g, b] = colour.match(/\\w\\w/g).map((pair) => parseInt(pair, 16) / 255)
            .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const style = getComputedStyle(document.documentElement);
    const of = (name) => light(style.getPropertyValue(name).trim());
    return ['--ink', '--faint', '--link', '--warn'].map((name) => {
        const [high, low] = [of(name), of('--paper')].sort((one, other) => other - one);
        return (high + 0.05) / (low + 0.05);
    });
})()"""


def test_on_paper(chromium: Chromium, page: Path) -> None:
    """Light although the screen is dark, without what cannot be clicked there, and with everything filled in."""
    unfolded = {"do": "wait", "code": "[...document.querySelectorAll('details')].every((one) => one.open)"}
    steps = [{"do": "media", "type": "print"}, evaluate(PAPER), evaluate(NAV), unfolded, FILLED, {"do": "pdf"}]
    _, paper, nav, *_, size = chromium.ask(page, *steps, dark=True).answers
    assert (paper, nav) == ("rgb(255, 255, 255)", "none")
    assert size > 50_000


def test_nothing_is_cut_off_on_paper(chromium: Chromium, page: Path) -> None:
    """A landscape A4 page has room for 1,032 CSS pixels between its margins."""
    wide = """[...document.querySelectorAll('table, figure')].filter((one) =>
        one.getBoundingClientRect().right > innerWidth + 1).map((one) =>
        [one.getBoundingClientRect().right, one.innerText.slice(0, 300)])"""
    unfolded = {"do": "wait", "code": "[...document.querySelectorAll('details')].every((one) => one.open)"}
    steps = [FILLED, {"do": "media", "type": "print"}, unfolded, evaluate(wide)]
    assert chromium.ask(page, *steps, width=1032, height=700).answers[3] == []


def test_links_lead_to_evidence(chromium: Chromium, page: Path) -> None:
    """Every link within the page has a target; one to a folded table opens it."""
    links = evaluate("[...document.querySelectorAll('a')].map((one) => one.getAttribute('href'))")
    ids = evaluate("[...document.querySelectorAll('[id]')].map((one) => '#' + one.id)")
    open_one = evaluate("location.hash = '#table-routines'; new Promise((done) => setTimeout(done, 100))")
    is_open = evaluate("document.getElementById('table-routines').open")
    found, targets, _, opened = chromium.ask(page, links, ids, open_one, is_open).answers
    assert set(found) <= set(targets)
    assert len(targets) == len(set(targets))
    assert "#table-waiting" in found or "#table-step_parts" in found  # evidence of a finding
    assert opened


def test_language_that_intl_refuses(chromium: Chromium, page: Path) -> None:
    """Some browsers name a language that is none, where the system has no locale."""
    odd = "Object.defineProperty(navigator, 'language', { get: () => 'en-US@posix', configurable: true })"
    drawn = evaluate("document.querySelectorAll('.u-wrap').length")
    assert chromium.ask(page, FILLED, drawn, before=odd).answers[1] > 5


def test_narrow_window(chromium: Chromium, page: Path) -> None:
    """Nothing but tables is wider than the window of a phone."""
    wide = """[...document.querySelectorAll('body *')].filter((one) => !one.closest('.scroll, .unseen, .skip')
        && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"""
    assert chromium.ask(page, FILLED, evaluate(wide), width=390, height=800).answers[1] == []
