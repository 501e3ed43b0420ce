"""Names that want to be markup, scripts or colours of a terminal are shown as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import Chromium
from browser.pages import FILLED, page_of_run
from rankscope.rank_file import LayerNumber
from runs.small_run import SECOND, mpi_rank, write_run
from runs.step_runs import log

NAMES = [
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    "--><!--<script>window.hacked=1",
    "</style><b>bold</b>",
    "\"onmouseover=window.hacked=1 '><svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "&lt;b&gt; &amp; &#x41;",
    "${window.hacked=1}`",
    "{{constructor.constructor('window.hacked=1')()}}",
    "\\u003cscript\\u003e",
    "核心 ядро nœud 🚀",
    "a,b\"c'd;e=1+1",
]
ESCAPES = ["\x1b[31mred\x1b[0m\x07", "left\u202eright", "line\u2028break\u2029", "tab\tnew\nline", "nul\x00"]


def hostile_run(folder: Path) -> Path:
    """Two ranks whose calls, kernels, groups, hosts, commands and versions are all hostile."""
    made = []
    for rank in range(2):
        one = mpi_rank(
            rank,
            2,
            host=NAMES[0].encode(),
            mpi_version=NAMES[1].encode(),
            command=b"python\0" + NAMES[1].encode() + b"\0",
        )
        for at, name in enumerate((*NAMES, *ESCAPES)):
            text = name.replace("\x00", "")
            one.tally(text, 10 + at, SECOND // 10 + at, size_class=4, bytes=80)
            one.tally(f"{text} kernel", 10 + at, SECOND // 10 + at + rank, layer=LayerNumber.GPU)
        log(one, [(NAMES[0], 8, 1000.0 + 100 * at + 50 * rank, 1080.0 + 100 * at) for at in range(40)], NAMES[1])
        made.append(one)
    return write_run(
        folder / "</title><script>window.hacked=1</script>".replace("/", "_"), *made, command=[NAMES[1], *ESCAPES]
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of_run(hostile_run(tmp_path_factory.mktemp("hostile")))


def evaluate(code: str) -> dict[str, Any]:
    return {"do": "evaluate", "code": code}


def test_nothing_in_a_name_runs(chromium: Chromium, page: Path) -> None:
    """Neither as the page loads nor when pictures are pointed at; no element comes from a name."""
    strange = evaluate(
        "document.querySelectorAll('img, svg, iframe, object, b b, body style, [onerror], [onload]').length"
    )
    scripts = evaluate("document.scripts.length")
    names = evaluate("[...document.querySelectorAll('#table-gpu tbody th')].map((cell) => cell.textContent)")
    point = {"do": "hover", "selector": "#communication .u-over", "x": 0.1, "y": 0.5}
    hacked = evaluate("window.hacked ?? null")
    _, found, count, kernels, hover, was_hacked = chromium.ask(
        page, FILLED, strange, scripts, names, point, hacked
    ).answers
    assert (found, count, was_hacked) == (0, 5, None)
    assert {f"{name} kernel" for name in NAMES} <= set(kernels)
    assert any(name in hover for name in NAMES)


def test_escapes_are_shown_as_such(chromium: Chromium, page: Path) -> None:
    text = chromium.ask(page, FILLED, evaluate("document.body.innerText")).answers[1]
    assert "\\x1b[31mred\\x1b[0m\\x07" in text
    assert "left\\u202eright" in text
    assert not set(text) & set("\x1b\x07\u202e\u2028\u2029")


def test_only_own_scripts_run_and_nothing_is_fetched(chromium: Chromium, page: Path) -> None:
    """Even if a script got in, the policy would not let it run or talk to anybody."""
    inject = """(() => {
        const script = document.createElement('script');
        script.textContent = 'window.hacked = 1';
        document.body.append(script);
        document.body.insertAdjacentHTML('beforeend', '<svg onload="window.hacked = 1"></svg>');
        return window.hacked ?? null;
    })()"""
    fetch = "fetch('http://127.0.0.1:9/').then(() => 'let through', (problem) => problem.name)"
    told = chromium.ask(page, evaluate(inject), evaluate(fetch), evaluate("window.hacked ?? null"), quiet=False)
    assert told.answers == [None, "TypeError", None]
    assert told.requests == [page.as_uri()]
    assert any("Content Security Policy" in line for line in told.console)


def test_the_data_of_the_page_is_inert(page: Path) -> None:
    """The tables are in one script element that holds no sign of markup, whatever the names are."""
    text = page.read_text(encoding="utf-8")
    data = text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    assert not set(data) & set("<>&\u2028\u2029")
    tables = {table["name"]: table for section in json.loads(data)["sections"] for table in section["tables"]}
    assert {row[0] for row in tables["sizes"]["rows"]} >= set(NAMES)
