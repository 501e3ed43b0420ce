"""Graphs as inline SVG: logarithmic axes, measured points, fitted curves with their intervals; no script, no style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from rankscope.output.cells import printable, shown
from rankscope.pictures import Curve, Graph


@dataclass(frozen=True, slots=True)
class Frame:
    """The size of a graph, and what is left around the curves for ticks, titles and names."""

    width: int
    height: int  # without names below the curves
    left: int
    right: int
    top: int
    bottom: int
    beside: bool  # names stand beside the curves, not below them
    letters: int  # of a name
    most_scales: int

    @property
    def end(self) -> int:
        return self.width - self.right

    @property
    def floor(self) -> int:
        return self.height - self.bottom

    def tall(self, curves: int) -> int:
        return self.height if self.beside else self.height + LINE * curves


LINE = 20
WIDE = Frame(760, 400, 84, 200, 14, 52, beside=True, letters=23, most_scales=12)
NARROW = Frame(350, 290, 70, 20, 14, 52, beside=False, letters=34, most_scales=6)
COLOURS = ("#1f77d0", "#e07b00", "#0a9a6c", "#c2549d", "#d0402b", "#7a6fd0", "#8a7a00", "#2aa7b8")  # on white and black
STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))  # within a power of ten
FEWEST_TICKS, MOST_TICKS = 3, 9
Place = Callable[[float], float]


def to_figure(graph: Graph) -> str:
    """The graph under its title, drawn for a wide and for a narrow window, of which a page shows one."""
    drawn = f'<div class="wide">{to_svg(graph)}</div><div class="narrow">{to_svg(graph, NARROW)}</div>'
    return f'<figure class="graph"><figcaption>{_text(graph.title)}</figcaption>{drawn}</figure>'


def to_svg(graph: Graph, frame: Frame = WIDE) -> str:
    values = [value for curve in graph.curves for _, value in curve.points if value > 0]
    values += [value for curve in graph.curves for point in curve.fitted for value in point[1:] if value > 0]
    scales = [scale for curve in graph.curves for scale in (*_scales(curve), *(point[0] for point in curve.fitted))]
    if not values or not scales:
        return ""
    across = _logarithmic(min(scales), max(scales), frame.left, frame.end)
    ticks = value_ticks(min(values), max(values))
    up = _logarithmic(min([*ticks, *values]), max([*ticks, *values]), frame.floor, frame.top)
    along = scale_ticks(graph.curves, max(scales), frame.most_scales)
    parts = [*_axes(graph, frame, across, up, along, ticks)]
    for number, curve in enumerate(graph.curves):
        name_at = (frame.end + 14, frame.top + 12) if frame.beside else (frame.left, frame.height + 8)
        parts += _curve(curve, number, across, up, (name_at[0], name_at[1] + LINE * number, frame.letters))
    tall = frame.tall(len(graph.curves))
    size = f'viewBox="0 0 {frame.width} {tall}" width="{frame.width}" height="{tall}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-size="12" fill="currentColor">'
    return f"{head}<title>{_text(graph.title)}</title>{''.join(parts)}</svg>"


def value_ticks(low: float, high: float) -> list[float]:
    """Round numbers from below the lowest to above the highest value, not too many and not too few."""
    ticks: list[float] = []
    for steps in STEPS:
        powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
        every = [step * 10.0**power for power in powers for step in steps]
        first = max([at for at, tick in enumerate(every) if tick <= low * 1.001], default=0)
        last = min([at for at, tick in enumerate(every) if tick >= high * 0.999], default=len(every) - 1)
        ticks_here = every[first : last + 1]
        if not ticks or len(ticks_here) <= MOST_TICKS:
            ticks = ticks_here
        if len(ticks) >= FEWEST_TICKS:
            break
    return ticks[:: -(-len(ticks) // MOST_TICKS)]


def scale_ticks(curves: Sequence[Curve], largest: float, most: int) -> list[float]:
    """The scales that were measured, thinned out, and how far curves are drawn."""
    scales = sorted({scale for curve in curves for scale in _scales(curve)} | {largest})
    return scales[:: -(-len(scales) // most)]


def _scales(curve: Curve) -> list[float]:
    return [scale for scale, value in curve.points if value > 0]


def _logarithmic(low: float, high: float, begin: float, end: float) -> Place:
    span = math.log(high / low) if high > low else 0.0
    return lambda value: begin + (end - begin) * (math.log(value / low) / span if span else 0.5)


def _axes(
    graph: Graph, frame: Frame, across: Place, up: Place, scales: Sequence[float], ticks: Sequence[float]
) -> list[str]:
    left, right, bottom = frame.left, frame.end, frame.floor
    parts = []
    for tick in ticks:
        y = up(tick)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" opacity=".18"/>')
        label = _text(shown(tick, graph.unit) if graph.unit.value != "number" else f"{tick:g}")
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for scale in scales:
        x = across(scale)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="currentColor"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{scale:g}</text>')
    parts.append(f'<line x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="currentColor"/>')
    middle = (left + right) / 2
    parts.append(f'<text x="{middle}" y="{bottom + 40}" text-anchor="middle">{_text(graph.scale_axis)} (log)</text>')
    turned = f'transform="translate(14 {(frame.top + bottom) / 2}) rotate(-90)" text-anchor="middle"'
    unit = {"ns": "s, ", "number": ""}.get(graph.unit.value, f"{graph.unit.value}, ")
    return [*parts, f"<text {turned}>{_text(_cut(graph.value_axis, 44 if frame.beside else 28))} ({unit}log)</text>"]


def _curve(curve: Curve, number: int, across: Place, up: Place, named: tuple[int, int, int]) -> list[str]:
    """The interval as an area, the law as a line, every measured value as a mark; without a law a thin line."""
    colour = COLOURS[number % len(COLOURS)]
    parts = [f"<g><title>{_text(curve.name)}</title>"]
    dashes = ' stroke-dasharray="6 4"' if curve.published else ""
    if curve.fitted:
        fitted = [point for point in curve.fitted if point[2] > 0]
        edge = [(x, high) for x, _, _, high in fitted] + [(x, low) for x, _, low, _ in reversed(fitted)]
        parts.append(f'<polygon points="{_path(edge, across, up)}" fill="{colour}" opacity=".15"/>')
        line = _path([(x, value) for x, value, _, _ in curve.fitted], across, up)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
    else:
        line = _path(_medians(curve), across, up)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" opacity=".5" stroke-dasharray="2 3"/>')
    parts += [_mark(across(x), up(value), number, colour, curve.published) for x, value in curve.points if value > 0]
    x, y, letters = named
    parts.append(_mark(x, y, number, colour, curve.published))
    return [*parts, f'<text x="{x + 12}" y="{y + 4}">{_text(_cut(curve.name, letters))}</text></g>']


def _medians(curve: Curve) -> list[tuple[float, float]]:
    by_scale: dict[float, list[float]] = {}
    for scale, value in curve.points:
        if value > 0:
            by_scale.setdefault(scale, []).append(value)
    return [(scale, sorted(by_scale[scale])[len(by_scale[scale]) // 2]) for scale in sorted(by_scale)]


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
