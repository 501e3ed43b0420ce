"""The page: its top and the words of each section as they are, pictures and tables filled in by its scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.output.cells import filled, heading, printable, shown, unbroken
from rankscope.output.html.graphs import to_figure
from rankscope.pictures import Advice, AnswerPage, Chart, DrawnTimeline, Figure, Level, Page, Points, Section

# ---------------------------------------------------------------------------------------------------------------------
# The scripts and styles of a page, each in one piece, and the policy that lets nothing else in.
FOLDER = Path(__file__).parent
# each after what it imports
MODULES = (
    "elements",
    "numbers",
    "data",
    "csv",
    "colours",
    "hover",
    "selection",
    "table",
    "bars",
    "curve",
    "heat",
    "sizes",
    "top",
    "intervals",
    "history",
    "icicle",
    "levels",
    "timeline",
    "charts",
    "theme",
    "main",
)
LIVE = "live"  # only where a server makes the page anew
IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


@cache
def style() -> str:
    return _text("vendor/uPlot.min.css") + _text("page.css")


@cache
def scripts(live: bool = False) -> tuple[tuple[str, str], ...]:
    """Type and text of each script element, in the order in which they run; the first starts the others."""
    modules = "".join(_module(name) for name in (*MODULES, *((LIVE,) if live else ())))
    before = ("scripts/start.js", "scripts/language.js", "vendor/uPlot.iife.min.js")
    return *(("", _text(name)) for name in before), ("module", modules)


def _module(name: str) -> str:
    """A module as a part of one script, because a page opened from a disk can import no file.

    What it exports is there for those after it; all else stays its own.
    """
    text = IMPORT.sub("", _text(f"scripts/{name}.js"))
    exported = ", ".join(EXPORT.findall(text))
    return f"const {{ {exported} }} = (() => {{\n{EXPORT.sub('', text)}return {{ {exported} }};\n}})();\n"


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def policy(live: bool = False) -> str:
    """Only these very scripts and styles; no image, font, frame, form or connection; a live page may ask its server."""
    allowed = " ".join(_hash(text) for _, text in scripts(live))
    server = "connect-src 'self'; " if live else ""
    only = f"script-src {allowed}; style-src {_hash(style())}; {server}base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; {only}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---------------------------------------------------------------------------------------------------------------------
# The tables of a page as JSON that no name in them can break out of.
FORMAT = 1
DETAILS = "Details"  # the group of questions that answer nothing about the program


def page_data(sections: list[Section]) -> str:
    """All sections, in letters that end no script element and are the same in every encoding."""
    data = {"format": FORMAT, "sections": [_section_data(section) for section in sections]}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _section_data(section: Section) -> dict[str, Any]:
    return {
        "name": section.name,
        "tables": [_table_data(table) for table in section.tables],
        "charts": [_chart(chart) for chart in section.charts],
        "groups": [_table_data(table) for table in section.groups],
        "timeline": _timeline(section.timeline) if section.timeline else None,
    }


def _chart(chart: Chart) -> dict[str, Any]:
    return {name: _plain(getattr(chart, name)) for name in Chart.__slots__}


def _timeline(drawn: DrawnTimeline) -> dict[str, Any]:
    return {
        "lines": [[printable(line.rank), line.kind, printable(line.name)] for line in drawn.lines],
        "names": [printable(name) for name in drawn.names],
        "kinds": list(drawn.kinds),
        "end": drawn.end_ns,
        "levels": [_level(level, len(drawn.lines)) for level in drawn.levels],
    }


def _level(level: Level, lines: int) -> dict[str, Any]:
    """Five columns of numbers of 32 bits, their lowest bytes first, then all second bytes: most are 0 and pack well."""
    blocks = level.blocks
    unit = max(1, -(-(level.end_ns - level.begin_ns) // (1 << 31)))
    clipped = [
        np.clip(times - level.begin_ns, 0, level.end_ns - level.begin_ns) for times in (blocks.start_ns, blocks.end_ns)
    ]
    start, end = (times // unit for times in clipped)
    counts = np.bincount(blocks.line, minlength=lines)
    first = np.cumsum(counts) - counts
    apart = np.diff(start, prepend=0)
    apart[first[counts > 0]] = start[first[counts > 0]]
    span = np.maximum(1, blocks.end_ns - blocks.start_ns)
    filled_share = np.minimum(255, np.round(255 * blocks.busy_ns / span))
    columns = (apart, end - start, blocks.name, blocks.count, filled_share)
    planes = np.stack([np.asarray(column, "<u4") for column in columns]).view(np.uint8).reshape(len(columns), -1, 4)
    packed = zlib.compress(np.ascontiguousarray(planes.transpose(0, 2, 1)).tobytes(), 9)
    return {
        "begin": level.begin_ns,
        "end": level.end_ns,
        "unit": unit,
        "resolution": level.resolution_ns,
        "counts": counts.tolist(),
        "data": base64.b64encode(packed).decode(),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _table_data(table: Table) -> dict[str, Any]:
    shown = set(filled(table.columns, table.rows))
    return {
        "name": table.name,
        "title": printable(table.title),
        "columns": [
            {
                "name": printable(column.name),
                "unit": _unit(table, at).value,
                "title": heading(column),
                "shown": at in shown,
                "formula": column.formula,
            }
            for at, column in enumerate(table.columns)
        ],
        "rows": [[_cell(cell) for cell in row] for row in table.rows],
    }


def _unit(table: Table, at: int) -> Unit:
    """A column of whole numbers has counts: a script cannot tell 1 from 1.0."""
    unit = table.columns[at].unit
    are_whole = unit is Unit.NUMBER and all(isinstance(row[at], int) for row in table.rows if row[at] is not None)
    return Unit.COUNT if are_whole else unit


def _cell(cell: Cell) -> Cell:
    if isinstance(cell, str):
        return printable(cell)
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


# ---------------------------------------------------------------------------------------------------------------------
# The first screen of a page: what is wrong with the recording, key figures, one step, and what to do.
def text(words: str) -> str:
    """Words as themselves: neither markup nor anything that deceives the eye."""
    return escape(printable(words))


def sentence(words: str) -> str:
    """The same, with numbers and their units on one line."""
    return escape(unbroken(printable(words)))


def marked(words: str) -> str:
    """The same, with what is to be typed set as such."""
    return TYPED.sub(r"<code>\1</code>", text(words))


TYPED = re.compile(r"`([^`]+)`")


def _first_screen(page: Page) -> str:
    notes = "".join(f'<p class="note">{text(note)}</p>' for note in page.notes)
    lead = "\n".join(_section(section) for section in page.sections if section.lead)
    return (
        f"{_problems(page.screen.problems)}{notes}{_figures(page.figures)}\n{lead}\n"
        f'<div class="first">\n{_named(page.sections, page.first)}\n{_findings(page)}\n</div>'
    )


def _answer(page: AnswerPage) -> str:
    """The first screen of a page about several runs."""
    known = _table_names(page.sections)
    points = "\n".join(_points(point, known) for point in page.points)
    return (
        f'<p class="verdict">{text(page.verdict)}</p>{_problems(page.problems)}{_figures(page.figures)}\n'
        f'<div class="first">\n{_named(page.sections, page.first)}\n<div>{points}</div>\n</div>'
    )


def _problems(problems: Sequence[str]) -> str:
    return "".join(f'<p class="warning">{marked(problem)}</p>' for problem in problems)


def _figures(figures: Sequence[Figure]) -> str:
    """Beside each other, each with its meaning where one points at it."""
    shown_ones = "".join(
        f'<div title="{text(figure.meaning)}"><dt>{text(figure.label)}</dt><dd>{text(figure.value)}</dd>'
        + (f'<dd class="detail">{text(figure.detail)}</dd>' if figure.detail else "")
        + "</div>"
        for figure in figures
    )
    return f'<dl class="figures" aria-label="Key figures">{shown_ones}</dl>'


def _named(sections: Sequence[Section], name: str) -> str:
    return "\n".join(_section(section) for section in sections if section.name == name)


def _table_names(sections: Sequence[Section]) -> set[str]:
    return {table.name for section in sections for table in section.tables}


def _findings(page: Page) -> str:
    points = Points("findings", "What to do", page.screen.advice, page.screen.verdict)
    unchecked = "".join(f'<p class="note">{text(reason)}</p>' for reason in page.screen.not_checked)
    folded = f"<details><summary>What was not checked</summary>{unchecked}</details>" if unchecked else ""
    return _points(points, _table_names(page.sections), folded)


def _points(points: Points, known: set[str], below: str = "") -> str:
    entries = "".join(_advice(entry, known, opened=at == 0) for at, entry in enumerate(points.entries))
    body = f'<ol class="findings">{entries}</ol>' if entries else f"<p>{marked(points.otherwise)}</p>"
    return _part(points.name, text(points.question), body + below)


def _advice(advice: Advice, known: set[str], opened: bool) -> str:
    """A finding whose action and evidence open in place."""
    saved = ""
    if advice.saved_ns is not None:
        shares = ((advice.steps_share, "steps"), (advice.share, "run"))
        of = "".join(f", {shown(share, Unit.SHARE)} of the {what}" for share, what in shares if share is not None)
        saved = f' <span class="saved">{unbroken(f"could save {shown(advice.saved_ns, Unit.NS)}{of}")}</span>'
    level = f'<span class="level {advice.level.lower()}">{advice.level}</span>'
    summary = f"{level} <strong>{sentence(advice.title)}</strong>{saved}"
    proofs = "".join(_proof(table, proof, known) for table, proof in advice.proofs)
    action = f"<p>{marked(advice.action[:1].upper() + advice.action[1:])}.</p>"
    return f"<li><details{' open' * opened}><summary>{summary}</summary>{action}{proofs}</details></li>"


def _proof(table: str, proof: str, known: set[str]) -> str:
    """What a table says, with its rows where the page has them."""
    if table in known:
        summary = f'<summary>{sentence(proof)} <a href="#table-{table}">{table}</a></summary>'
        return f'<details class="proof" data-table="{table}">{summary}<div class="evidence"></div></details>'
    name = f'<a href="#{table}">{table}</a>' if table in ("coverage", "overview") else f"<code>{text(table)}</code>"
    return f'<p class="evidence">{sentence(proof)} {name}</p>'


def _details(page: Page) -> str:
    """What ran and what was seen of it: at the end, as nothing of it is an answer."""
    table = page.overview
    pairs = [(table.columns[at], row[at]) for row in table.rows[:1] for at in filled(table.columns, table.rows)]
    facts = "".join(f"<dt>{escape(heading(column))}</dt><dd>{_value(cell, column)}</dd>" for column, cell in pairs)
    about = _part("overview", "What ran?", _said(table) + f'<dl class="facts">{facts}</dl>')
    return f"{about}\n{_coverage(page.coverage)}"


def _coverage(table: Table) -> str:
    columns = filled(table.columns, table.rows)
    head = "".join(
        f'<th scope="col"{_side(table.columns[at])}>{escape(heading(table.columns[at]))}</th>' for at in columns
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td{_side(table.columns[at])}>{_value(row[at], table.columns[at])}</td>" for at in columns)
        + "</tr>"
        for row in table.rows
    )
    grid = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    return _part("coverage", "Data completeness", _said(table) + grid + _notes(table))


def _side(column: Column) -> str:
    return "" if column.unit is Unit.NAME else ' class="number"'


def _value(cell: Cell, column: Column) -> str:
    return escape(shown(cell, column.unit))


def _said(table: Table) -> str:
    return "".join(f'<p class="warning">Warning: {text(warning)}</p>' for warning in table.warnings)


def _notes(table: Table) -> str:
    return "".join(f'<p class="note">{text(note)}</p>' for note in table.notes)


def _part(name: str, question: str, body: str) -> str:
    heading_of = f"{name}-question"
    return f'<section id="{name}" aria-labelledby="{heading_of}"><h2 id="{heading_of}">{question}</h2>{body}</section>'


# ---------------------------------------------------------------- page
DOCUMENT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="rankscope">
<title>{title}</title>
<style>{style}</style>
</head>
<body{live}>
<a class="skip" href="#main">Skip to the answer</a>
<header>
<div><h1>{name}</h1><p class="facts">{facts}</p></div>
<div class="actions"><button type="button" id="link" hidden>Copy link</button>
<button type="button" id="theme" hidden>Dark</button></div>
</header>
<nav aria-label="Sections"><ol>{contents}</ol></nav>
<main id="main" tabindex="-1">
{main}
</main>
<p id="told" class="unseen" role="status" aria-live="polite"></p>
<noscript><p>The pictures and tables of this page need JavaScript, which is off. Without <code>--html</code> the command
prints the same tables.</p></noscript>
<script type="application/json" id="data">{data}</script>
{scripts}
</body>
</html>
"""


def to_html(page: Page | AnswerPage, refresh_s: int = 0) -> str:
    """The whole page in one file that needs no other and asks for none; with `refresh_s` it asks its server."""
    return document(f"{_name(page)} – {page.title}", content(page), refresh_s)


def document(title: str, parts: Mapping[str, str], refresh_s: int = 0) -> str:
    live = bool(refresh_s)
    return DOCUMENT.format(
        policy=escape(policy(live)),
        title=text(title),
        style=style(),
        live=f' data-refresh="{refresh_s}"' if live else "",
        scripts=_scripts(live),
        **parts,
    )


def content(page: Page | AnswerPage) -> dict[str, str]:
    """What differs from page to page, and from moment to moment."""
    if isinstance(page, Page):
        missing = any(problem.startswith("INCOMPLETE") for problem in page.screen.problems)
        facts = [*page.screen.facts, *([] if missing else [page.screen.completeness])]
        first, rest = _first_screen(page), list(_rest(page))
    else:
        below = [section for section in page.sections if section.name != page.first]
        facts, first, rest = list(page.facts), _answer(page), [_section(section) for section in below]
    return {
        "name": text(_name(page)),
        "facts": text(" · ".join([*([page.title] if page.title != _name(page) else []), *facts])),
        "contents": "".join(f'<li><a href="#{text(name)}">{text(words)}</a></li>' for words, name in _contents(page)),
        "main": "\n".join([first, *rest]),
        "data": page_data(page.sections),
    }


def _name(page: Page | AnswerPage) -> str:
    return page.screen.name if isinstance(page, Page) else page.name


def _rest(page: Page) -> Iterator[str]:
    """All that is not on the first screen; what ran is the first of the details."""
    below = [section for section in page.sections if not section.lead and section.name != page.first]
    groups = [section.group for section in below]
    at = groups.index(DETAILS) if DETAILS in groups else len(below)
    yield from (_section(section) for section in below[:at])
    yield _details(page)
    yield from (_section(section) for section in below[at:])


def _contents(page: Page | AnswerPage) -> list[tuple[str, str]]:
    """Where each group of questions begins."""
    first_of_group = {section.group: section.name for section in reversed(page.sections) if not section.lead}
    order = dict.fromkeys(section.group for section in page.sections if not section.lead)
    if isinstance(page, AnswerPage):
        return [
            *((point.question.rstrip("?"), point.name) for point in page.points),
            *((group, first_of_group[group]) for group in order),
        ]
    groups = [(group, first_of_group[group]) for group in order if group != DETAILS]
    return [("What to do", "findings"), *groups, (DETAILS, "overview")]


def _section(section: Section) -> str:
    name = text(section.name)
    return (
        f'<section id="{name}" aria-labelledby="{name}-question">\n'
        f'<h2 id="{name}-question">{text(section.question)}</h2>\n'
        + (f'<p class="lead">{text(section.lead)}</p>\n' if section.lead else "")
        + "".join(f'<p class="note">{text(note)}</p>\n' for note in section.notes)
        + "".join(_figure(name, at, chart) for at, chart in enumerate(section.charts))
        + (f'<div class="graphs">{"".join(map(to_figure, section.graphs))}</div>\n' if section.graphs else "")
        + "".join(_table(table, not section.unfolded, section.question) for table in section.tables)
        + "</section>"
    )


def _figure(section: str, at: int, chart: Chart) -> str:
    return (
        f'<figure id="{section}-figure-{at}"><figcaption>{text(chart.title)}</figcaption>'
        f'<div class="picture {chart.kind}"></div></figure>\n'
    )


def _table(table: Table, folded: bool, above: str) -> str:
    """Its title, unless it stands above, and what is said of it; the rows are filled in. Folded: opened by a click."""
    warnings = "".join(f'<p class="warning">Warning: {text(warning)}</p>' for warning in table.warnings)
    notes = "".join(f'<p class="note">{text(note)}</p>' for note in table.notes)
    body = f'{warnings}<div class="rows"></div>{notes}'
    title, name = text(table.title), f"table-{text(table.name)}"
    if folded:
        return f'<details class="table" id="{name}"><summary><h3>{title}</h3></summary>{body}</details>\n'
    hidden = ' class="unseen"' if table.title == above else ""
    return f'<div class="table" id="{name}"><h3{hidden}>{title}</h3>{body}</div>\n'


def _scripts(live: bool) -> str:
    (_, start), *others = scripts(live)
    waiting = [f'<script type="text/plain" data-type="{kind}">{code}</script>' for kind, code in others]
    return "\n".join([*waiting, f"<script>{start}</script>"])
