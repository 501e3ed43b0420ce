"""What the moments at which both clocks were read say of CUPTI's clock against the host's."""

from __future__ import annotations

from typing import Any

from rankscope.model import Figure
from rankscope.rank_file import Rows
from rankscope.rank_files.clock import Clock

SERIES = "CUPTI clock"


def clock_figures(clock: Clock, how: Rows) -> list[Figure]:
    """Of the first and the last reading: CUPTI's time - the host's, half of how long the reading took, the span."""
    rows = how[how["started_ns"] > 0]
    if not len(rows) or not clock.known:
        return []
    row = rows[0]
    figures = _reading(clock, row, "started", "first")
    span_ns = int(row["flushed_ns"]) - int(row["started_ns"])
    if span_ns > 0 and int(row["flushed_ticks"]) > int(row["started_ticks"]):
        figures += _reading(clock, row, "flushed", "last")
        figures.append(Figure(SERIES, "span", float(span_ns), "ns"))
    return figures


def _reading(clock: Clock, row: Any, field: str, which: str) -> list[Figure]:
    after_ns = int(row[f"{field}_ns"]) - int(clock.unix_ns(int(row[f"{field}_ticks"])))
    half_ns = clock.ns(int(row[f"{field}_width_ticks"])) / 2
    figures = [Figure(SERIES, f"{which} offset", after_ns + half_ns, "ns")]
    return [*figures, Figure(SERIES, f"{which} error", half_ns, "ns")] if half_ns else figures
