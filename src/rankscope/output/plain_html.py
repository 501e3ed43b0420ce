"""Tables as one plain page: no scripts, nothing from elsewhere, for comparisons and lists."""

from __future__ import annotations

import base64
import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from urllib.parse import quote

from rankscope.model import Cell, Column, Table, Unit
from rankscope.output.cells import filled, heading, printable, shown
from rankscope.pictures import Curve, Graph

# ---------------------------------------------------------------------------------------------------------------------
# Graphs as inline SVG: logarithmic axes, measured points, fitted curves with their intervals; no script, no style.
WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 84, 200, 14, 52  # the right margin holds the names
COLOURS = ("#1f77d0", "#e07b00", "#0a9a6c", "#c2549d", "#d0402b", "#7a6fd0", "#8a7a00", "#2aa7b8")  # on white and black
STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))  # within a power of ten
FEWEST_TICKS, MOST_TICKS, MOST_SCALES = 3, 9, 12
LETTERS = 23  # of a name beside the graph
Place = Callable[[float], float]


def to_figure(graph: Graph) -> str:
    """The graph under its title, as a figure of a page."""
    return f"<figure><figcaption><strong>{_text(graph.title)}</strong></figcaption>{to_svg(graph)}</figure>"


def to_svg(graph: Graph) -> str:
    values = [value for curve in graph.curves for _, value in curve.points if value > 0]
    values += [value for curve in graph.curves for point in curve.fitted for value in point[1:] if value > 0]
    scales = [scale for curve in graph.curves for scale in (*_scales(curve), *(point[0] for point in curve.fitted))]
    if not values or not scales:
        return ""
    across = _logarithmic(min(scales), max(scales), LEFT, WIDTH - RIGHT)
    ticks = value_ticks(min(values), max(values))
    up = _logarithmic(min([*ticks, *values]), max([*ticks, *values]), HEIGHT - BOTTOM, TOP)
    parts = [*_axes(graph, across, up, scale_ticks(graph.curves, max(scales)), ticks)]
    for number, curve in enumerate(graph.curves):
        parts += _curve(curve, number, across, up)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-size="12" fill="currentColor">'
    return f"{head}<title>{_text(graph.title)}</title>{''.join(parts)}</svg>"


def value_ticks(low: float, high: float) -> list[float]:
    """Round numbers from below the lowest to above the highest value, not too many and not too few."""
    made: list[float] = []
    for steps in STEPS:
        powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
        every = [step * 10.0**power for power in powers for step in steps]
        first = max([at for at, tick in enumerate(every) if tick <= low * 1.001], default=0)
        last = min([at for at, tick in enumerate(every) if tick >= high * 0.999], default=len(every) - 1)
        found = every[first : last + 1]
        if not made or len(found) <= MOST_TICKS:
            made = found
        if len(made) >= FEWEST_TICKS:
            break
    return made[:: -(-len(made) // MOST_TICKS)]


def scale_ticks(curves: Sequence[Curve], largest: float) -> list[float]:
    """The scales that were measured, thinned out, and how far curves are drawn."""
    found = sorted({scale for curve in curves for scale in _scales(curve)} | {largest})
    return found[:: -(-len(found) // MOST_SCALES)]


def _scales(curve: Curve) -> list[float]:
    return [scale for scale, value in curve.points if value > 0]


def _logarithmic(low: float, high: float, begin: float, end: float) -> Place:
    span = math.log(high / low) if high > low else 0.0
    return lambda value: begin + (end - begin) * (math.log(value / low) / span if span else 0.5)


def _axes(graph: Graph, across: Place, up: Place, scales: Sequence[float], ticks: Sequence[float]) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    made = []
    for tick in ticks:
        y = up(tick)
        made.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" opacity=".18"/>')
        label = _text(shown(tick, graph.unit) if graph.unit.value != "number" else f"{tick:g}")
        made.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for scale in scales:
        x = across(scale)
        made.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="currentColor"/>')
        made.append(f'<text x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{scale:g}</text>')
    made.append(f'<line x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="currentColor"/>')
    middle = (LEFT + right) / 2
    made.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{_text(graph.scale_axis)} (log)</text>')
    turned = f'transform="translate(14 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle"'
    unit = {"ns": "s, ", "number": ""}.get(graph.unit.value, f"{graph.unit.value}, ")
    return [*made, f"<text {turned}>{_text(_cut(graph.value_axis, 44))} ({unit}log)</text>"]


def _curve(curve: Curve, number: int, across: Place, up: Place) -> list[str]:
    """The interval as an area, the law as a line, every measured value as a mark; without a law a thin line."""
    colour = COLOURS[number % len(COLOURS)]
    made = [f"<g><title>{_text(curve.name)}</title>"]
    dashes = ' stroke-dasharray="6 4"' if curve.published else ""
    if curve.fitted:
        kept = [point for point in curve.fitted if point[2] > 0]
        edge = [(x, high) for x, _, _, high in kept] + [(x, low) for x, _, low, _ in reversed(kept)]
        made.append(f'<polygon points="{_path(edge, across, up)}" fill="{colour}" opacity=".15"/>')
        line = _path([(x, value) for x, value, _, _ in curve.fitted], across, up)
        made.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
    else:
        line = _path(_medians(curve), across, up)
        made.append(f'<polyline points="{line}" fill="none" stroke="{colour}" opacity=".5" stroke-dasharray="2 3"/>')
    made += [_mark(across(x), up(value), number, colour, curve.published) for x, value in curve.points if value > 0]
    y = TOP + 12 + 20 * number
    made.append(_mark(WIDTH - RIGHT + 14, y, number, colour, curve.published))
    name = _text(_cut(curve.name, LETTERS))
    return [*made, f'<text x="{WIDTH - RIGHT + 26}" y="{y + 4}">{name}</text></g>']


def _medians(curve: Curve) -> list[tuple[float, float]]:
    found: dict[float, list[float]] = {}
    for scale, value in curve.points:
        if value > 0:
            found.setdefault(scale, []).append(value)
    return [(scale, sorted(found[scale])[len(found[scale]) // 2]) for scale in sorted(found)]


def _mark(x: float, y: float, number: int, colour: str, hollow: bool) -> str:
    """Circle, square, triangle, diamond: told apart without colours too; hollow where somebody else measured."""
    fill = f'fill="none" stroke="{colour}" stroke-width="1.6"' if hollow else f'fill="{colour}"'
    if number % 4 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {fill}/>'
    corners = {
        1: ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        2: ((0, -5), (5, 4), (-5, 4)),
        3: ((0, -5), (5, 0), (0, 5), (-5, 0)),
    }[number % 4]
    places = " ".join(f"{x + right:.1f},{y + down:.1f}" for right, down in corners)
    return f'<polygon points="{places}" {fill}/>'


def _path(points: Sequence[tuple[float, float]], across: Place, up: Place) -> str:
    return " ".join(f"{across(x):.1f},{up(value):.1f}" for x, value in points if value > 0)


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


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


# ---------------------------------------------------------------- plain html
def to_plain_html(tables: Sequence[Table], graphs: Mapping[str, Sequence[Graph]] | None = None, title: str = "") -> str:
    """Each table under its title, warnings before and notes after it; graphs under the table of that name."""
    titles = [table.title for table in tables if table.name == "changes"] or [tables[0].title]
    drawn = graphs or {}
    shown_ones = [table for table in tables if table.rows or table.warnings or drawn.get(table.name)]
    return page(title or titles[0], "".join(section(table, drawn.get(table.name, ())) for table in shown_ones))


def section(table: Table, graphs: Sequence[Graph] = ()) -> str:
    warnings = "".join(f"<p><strong>warning:</strong> {_text(text)}</p>" for text in table.warnings)
    notes = "".join(f"<p><small>{_text(text)}</small></p>" for text in table.notes)
    figures = "".join(to_figure(graph) for graph in graphs)
    return f"<h2>{_text(table.title)}</h2>{warnings}{figures}{_grid(table) if table.rows else ''}{notes}"


def _grid(table: Table) -> str:
    if table.verbatim:
        return f"<pre>{chr(10).join(_text(str(row[0])) for row in table.rows)}</pre>"
    kept = filled(table.columns, table.rows)
    head = "".join(f"<th scope=col>{_text(heading(table.columns[at]))}</th>" for at in kept)
    body = "".join(f"<tr>{''.join(_cell(table.columns[at], row[at]) for at in kept)}</tr>" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(column: Column, cell: Cell) -> str:
    number = column.unit is not Unit.NAME
    return f"<td{' class=number' if number else ''}>{escape(shown(cell, column.unit))}</td>"
