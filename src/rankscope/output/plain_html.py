"""The list of runs as one plain page, and pages of one sentence."""

from __future__ import annotations

import base64
import hashlib
import time
from html import escape
from urllib.parse import quote

from rankscope.model import Table
from rankscope.output.cells import printable


def _text(words: str) -> str:
    return escape(printable(words))


# ---------------------------------------------------------------- the list of runs as a page
STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td { overflow-wrap: anywhere; min-width: 4.5em; }
figure { margin: 1.2rem 0; }
svg { max-width: 100%; height: auto; }
td.number { min-width: 0; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
"""
DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{DIGEST}'"
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>
<body><main><h1>{title}</h1>{body}</main></body></html>
"""


def run_list(table: Table) -> str:
    """Columns name, started_ns, state, ranks, command; each name leads to the run's page."""
    head = "".join(f"<th scope=col>{escape(column.title)}</th>" for column in table.columns)
    rows = "".join(_row(*(str(cell) if cell is not None else "" for cell in row)) for row in table.rows)
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return page(table.title, body if table.rows else "<p>No run yet: record one with <code>rankscope run</code>.</p>")


def _row(name: str, started_ns: str, state: str, ranks: str, command: str) -> str:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(int(started_ns) / 1e9))
    link = f'<a href="/run/{quote(name, safe="")}">{_text(name)}</a>'
    cells = (link, started, _text(state), _text(ranks), f"<code>{_text(command)}</code>")
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def said(title: str, text: str) -> str:
    """A page of one sentence."""
    return page(title, f"<p>{_text(text)}</p>")


def page(title: str, body: str) -> str:
    return PAGE.format(title=_text(title), style=STYLE, body=body)
