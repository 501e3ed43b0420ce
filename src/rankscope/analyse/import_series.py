"""Import times by number of nodes: from what was typed, or from a series of a loaded document."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rankscope.model import Tables

POINT = re.compile(r"(\d{1,7}):(\d{1,9}(?:\.\d{1,9})?)s?")
SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?s")
EVERY_SIZE = 1  # the size at which a time that does not depend on it is noted


class NoSeries(Exception):
    """What was named is not there, in one line."""


def series_of(text: str, tables: Tables | None) -> dict[int, float]:
    """Seconds by nodes of `1:23.8,2:12.4`, of `260s` (at any size), of a series by name, or of a sum with +."""
    parts = [_part(part.strip("\t"), tables) for part in text.split("+")]
    made = parts[0]
    for part in parts[1:]:
        made = _added(made, part)
    return made


def _part(text: str, tables: Tables | None) -> dict[int, float]:
    points = [POINT.fullmatch(point.strip()) for point in text.split(",")]
    if all(points):
        return {int(point[1]): float(point[2]) for point in points if point}
    if found := SECONDS.fullmatch(text.strip()):
        return {EVERY_SIZE: float(found[1])}
    return _loaded(text, tables)


def _loaded(name: str, tables: Tables | None) -> dict[int, float]:
    if tables is None:
        raise NoSeries(f"{name}: give points as in 1:23.8,2:12.4, a time as in 260s, or a run with a series so named")
    rows = tables.query(
        "SELECT scale, value FROM figures WHERE series = ? AND scale_name = 'nodes' AND unit = 'ns'", (name,)
    )
    made: dict[int, float] = {}
    for nodes, value_ns in rows:
        if made.setdefault(int(nodes), value_ns / 1e9) != value_ns / 1e9:
            raise NoSeries(f"{name}: several series of that name differ at {int(nodes)} nodes: give points instead")
    if not made:
        raise NoSeries(f"{name}: no series of times by nodes is so named (see rankscope report --table figures)")
    return made


def _added(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """Where only one of them was measured, the other's time at the largest size up to there."""
    return {size: _held(one, size) + _held(other, size) for size in sorted({*one, *other})}


def _held(series: Mapping[int, float], size: int) -> float:
    below = [known for known in series if known <= size]
    return series[max(below) if below else min(series)]
