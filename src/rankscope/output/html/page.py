"""The page: its top and the words of each section as they are, pictures and tables filled in by its scripts."""

from __future__ import annotations

from html import escape

from rankscope.model import Table
from rankscope.output.cells import printable
from rankscope.pictures import Chart, Page, Section
from rankscope.report.html.assets import policy, scripts, style
from rankscope.report.html.data import page_data
from rankscope.report.html.top import top

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
<body>
<a class="skip" href="#main">Skip to the findings</a>
<header>
<h1>{title}</h1>
<button type="button" id="theme" hidden>Dark</button>
</header>
<nav aria-label="Sections"><ol>{contents}</ol></nav>
<main id="main" tabindex="-1">
{first}
{top}
{sections}
</main>
<p id="told" class="unseen" role="status" aria-live="polite"></p>
<noscript><p>The pictures and tables of this page need JavaScript, which is off. <code>rankscope report</code>
prints the same tables.</p></noscript>
<script type="application/json" id="data">{data}</script>
{scripts}
</body>
</html>
"""


def to_html(page: Page) -> str:
    """The whole page in one file that needs no other and asks for none."""
    return DOCUMENT.format(
        policy=escape(policy()),
        title=text(page.title),
        style=style(),
        contents="".join(_entry(name, question) for name, question in _contents(page)),
        first="\n".join(_section(section) for section in page.sections if section.lead),
        top=top(page),
        sections="\n".join(_section(section) for section in page.sections if not section.lead),
        data=page_data(page.sections),
        scripts="\n".join(_script(kind, code) for kind, code in scripts()),
    )


def text(words: str) -> str:
    """Words as themselves: neither markup nor anything that deceives the eye."""
    return escape(printable(words))


def _contents(page: Page) -> list[tuple[str, str]]:
    first = [(section.name, section.question) for section in page.sections if section.lead]
    asked = [(section.name, section.question) for section in page.sections if not section.lead]
    top_of_it = [("findings", "What matters most?"), ("overview", "What ran?"), ("coverage", "What was seen of it?")]
    return [*first, *top_of_it, *asked]


def _entry(name: str, question: str) -> str:
    return f'<li><a href="#{text(name)}">{text(question)}</a></li>'


def _section(section: Section) -> str:
    name = text(section.name)
    return (
        f'<section id="{name}" aria-labelledby="{name}-question">\n'
        f'<h2 id="{name}-question">{text(section.question)}</h2>\n'
        + (f'<p class="lead">{text(section.lead)}</p>\n' if section.lead else "")
        + "".join(f'<p class="note">{text(note)}</p>\n' for note in section.notes)
        + "".join(_figure(name, at, chart) for at, chart in enumerate(section.charts))
        + "".join(_table(table, folded=not section.charts and not section.lead) for table in section.tables)
        + "</section>"
    )


def _figure(section: str, at: int, chart: Chart) -> str:
    return (
        f'<figure id="{section}-figure-{at}"><figcaption>{text(chart.title)}</figcaption>'
        f'<div class="picture {chart.kind}"></div></figure>\n'
    )


def _table(table: Table, folded: bool) -> str:
    """Its title and what is said of it; the rows are filled in. Folded: opened by a click."""
    warnings = "".join(f'<p class="warning">Warning: {text(told)}</p>' for told in table.warnings)
    notes = "".join(f'<p class="note">{text(told)}</p>' for told in table.notes)
    body = f'{warnings}<div class="rows"></div>{notes}'
    title, name = text(table.title), f"table-{text(table.name)}"
    if folded:
        return f'<details class="table" id="{name}"><summary><h3>{title}</h3></summary>{body}</details>\n'
    return f'<div class="table" id="{name}"><h3>{title}</h3>{body}</div>\n'


def _script(kind: str, code: str) -> str:
    return f'<script type="{kind}">{code}</script>' if kind else f"<script>{code}</script>"
