"""The list of runs as a page, and pages of one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from rankscope.output.cells import time_text
from rankscope.output.html.page import document, page_data, policy, style, text
from rankscope.pictures import RunLine

WIDTH, HEIGHT = 160, 28
NONE = "<p>No run yet: record one with <code>rankscope run</code>.</p>"
SENTENCE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>{style}</style></head>
<body><main><h1>{title}</h1><p>{words}</p><p><a href="/">All runs</a></p></main></body></html>
"""


def run_list(folder: str, lines: Sequence[RunLine], refresh_s: int = 0) -> str:
    """The whole page; with `refresh_s` it asks its server how the runs go on."""
    return document(f"Runs in {folder}", list_content(folder, lines), refresh_s)


def list_content(folder: str, lines: Sequence[RunLine]) -> dict[str, str]:
    """Each run with what its report begins with; its name leads to its page."""
    running = sum(line.state == "running" for line in lines)
    facts = [f"{len(lines)} run{'s' * (len(lines) != 1)}", *([f"{running} running"] if running else [])]
    entries = "".join(_entry(line) for line in lines)
    return {
        "name": text(f"Runs in {folder}"),
        "facts": " · ".join(facts),
        "contents": "",
        "main": f'<ol class="runs">{entries}</ol>' if entries else NONE,
        "data": page_data([]),
    }


def _entry(line: RunLine) -> str:
    state = line.state if line.state in ("running", "ended", "loaded") else "unread"
    facts = text(" · ".join([line.when, *line.facts]))
    step = f"<b>{time_text(line.step_ns)}</b> per step" if line.step_ns else ""
    return (
        f'<li id="run-{quote(line.name, safe="")}"><div class="what">'
        f'<a href="/run/{quote(line.name, safe="")}">{text(line.name)}</a> '
        f'<span class="level {state}">{text(line.state.upper())}</span>'
        f'<p>{text(line.title)}</p><p class="note">{facts}</p></div>'
        f'<div class="pace">{_sparkline(line.curve)}<p>{step}</p></div>'
        f'<p class="finding">{text(line.finding)}</p></li>'
    )


def _sparkline(curve: Sequence[float]) -> str:
    """Step times from left to right, from nothing to the longest."""
    if len(curve) < 2:
        return ""
    most = max(curve) or 1.0
    places = " ".join(
        f"{at * WIDTH / (len(curve) - 1):.1f},{HEIGHT - 1 - (HEIGHT - 2) * value / most:.1f}"
        for at, value in enumerate(curve)
    )
    words = f"Step times, up to {time_text(most)}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img"><title>{words}</title>'
        f'<polyline points="{places}" fill="none" stroke="currentColor" stroke-width="1.2"/></svg>'
    )


def said(title: str, words: str) -> str:
    """A page of one sentence."""
    return SENTENCE.format(policy=text(policy()), title=text(title), style=style(), words=text(words))
